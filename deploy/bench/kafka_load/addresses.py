"""Client addresses as record keys, partitioners over them, and the evenness of the partitions. Pure.

The population is synthetic: networks of 254 clients (`10.A.B.0/24`). Network i sends with a weight of 1 / i, and so does client
i of a network.
"""

import random
import statistics
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal

__all__ = [
    "OWN_PARTITIONERS",
    "Partitioner",
    "assign_partitions",
    "client_addresses",
    "late_records",
    "network_of",
    "skew_figures",
    "split_keys",
]  # fmt: skip

Partitioner = Literal["network", "balanced", "round_robin", "murmur2", "consistent"]
"""`network`: all clients of a /24 network in one partition, by a hash of it. `balanced`: the same, but the networks that a
sample shows as the busiest are placed first, each on the partition that has the least. `round_robin`: by turns, whatever the key.
`murmur2` and `consistent` are Kafka's own by the whole key: that of its Java client, and librdkafka's (CRC32)."""
OWN_PARTITIONERS: Final[Mapping[str, str]] = {"murmur2": "murmur2_random", "consistent": "consistent_random"}
"""Partitioners of the client library, by its names for them."""

_CLIENTS: Final = 254
_SAMPLE_OF: Final = 10
"""`balanced` knows the first tenth of the records beforehand."""


def client_addresses(count: int, *, networks: int, seed: int = 1) -> list[bytes]:
    """The addresses of `count` records in order; the same for the same seed."""
    chance = random.Random(seed)  # noqa: S311 - spreads load, guards nothing
    nets = chance.choices(range(networks), cum_weights=_zipf(networks), k=count)
    clients = chance.choices(range(1, _CLIENTS + 1), cum_weights=_zipf(_CLIENTS), k=count)
    # The busiest networks are not neighbours.
    names = [f"10.{number >> 8}.{number & 255}." for number in chance.sample(range(1 << 16), networks)]
    return [f"{names[net]}{client}".encode() for net, client in zip(nets, clients, strict=True)]


def network_of(address: bytes) -> bytes:
    """Return the /24 network of an address: `10.1.2.3` is in `10.1.2`."""
    return address.rpartition(b".")[0]


def assign_partitions(addresses: Sequence[bytes], partitioner: Partitioner, partitions: int) -> list[int | None]:
    """The partition of each record by a partitioner of ours; None where the client library decides."""
    match partitioner:
        case "round_robin":
            return [number % partitions for number in range(len(addresses))]
        case "network":
            return [_by_hash(network_of(address), partitions) for address in addresses]
        case "balanced":
            sample = addresses[: max(1, len(addresses) // _SAMPLE_OF)]
            places = _balanced(Counter(map(network_of, sample)), partitions)
            return [
                places[network] if network in places else _by_hash(network, partitions)
                for network in map(network_of, addresses)
            ]
        case "murmur2" | "consistent":
            return [None] * len(addresses)


def _by_hash(network: bytes, partitions: int) -> int:
    return zlib.crc32(network) % partitions


def _balanced(records: Mapping[bytes, int], partitions: int) -> dict[bytes, int]:
    """Networks on partitions, the busiest first, each where the least is so far."""
    loads = [0] * partitions
    places: dict[bytes, int] = {}
    for network, count in sorted(records.items(), key=lambda one: (-one[1], one[0])):
        place = loads.index(min(loads))
        places[network] = place
        loads[place] += count
    return places


def skew_figures(sizes: Sequence[int]) -> dict[str, float]:
    """Return how uneven partitions of these sizes are.

    Returns:
        `most_to_mean`, the largest over the mean (1 is even; a topic's consumers can be no faster than its largest partition
        allows), and `size_variation`, the coefficient of variation: standard deviation over mean.
    """
    mean = statistics.fmean(sizes)
    return {
        "most_to_mean": round(max(sizes) / mean, 4) if mean else 0.0,
        "size_variation": round(statistics.pstdev(sizes) / mean, 4) if mean else 0.0,
    }


def split_keys(records: Sequence[tuple[int, bytes, int]]) -> int:
    """Keys with records in more than one partition: Kafka promises no order among those."""
    places: dict[bytes, set[int]] = defaultdict(set)
    for partition, key, _ in records:
        places[key].add(partition)
    return sum(len(found) > 1 for found in places.values())


def late_records(records: Sequence[tuple[int, bytes, int]]) -> int:
    """Records that were read after a later one of the same key, in the order in which they were read."""
    highest: dict[bytes, int] = {}
    late = 0
    for _, key, number in records:
        late += number < highest.get(key, -1)
        highest[key] = max(number, highest.get(key, -1))
    return late


def _zipf(count: int) -> list[float]:
    return list(accumulate(1 / number for number in range(1, count + 1)))

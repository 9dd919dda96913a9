"""Bounded look at records of one topic, newest first, without a group, a commit or any other trace in Kafka.

A look for a key reads only its partition, which is chosen as Kafka's Java clients and our producer choose it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.read.bounded_reader import BoundedReader, BrowseBudget, Ends
from ingest.read.partition_walk import WalkRequest, WalkResult, merge_page, read_backward, read_forward
from ingest.read.shown_record import ShownRecord

__all__ = ["Begin", "BrowseRequest", "BrowseResult", "browse_topic", "partition_of_key"]

MOST_RECORDS: Final = 100_000
MOST_BYTES: Final = 32 * 1024 * 1024
MOST_SECONDS: Final = 5.0

Begin = Literal["newest", "oldest", "offset", "time", "before", "after"]
Positions = Mapping[int, int]
"""Partition -> offset."""

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class BrowseRequest:
    """Records to look at.

    Attributes:
        topic: its name.
        begin: `newest` and `oldest` are the topic's ends; `offset` and `time` begin at `at` and continue to newer records;
            `before` and `after` continue from the `positions` of an earlier look.
        at: an offset, or epoch ms.
        positions: per partition, from `BrowseResult.older` or `BrowseResult.newer`.
        partition: only this one.
        key: only records with exactly this key.
        limit: most records.
    """

    topic: str
    begin: Begin = "newest"
    at: int = 0
    positions: Positions | None = None
    partition: int | None = None
    key: bytes | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class BrowseResult:
    """Records of a look, and how far it went.

    Attributes:
        records: newest first.
        older: where a look `before` these continues; None if there is nothing older.
        newer: where a look `after` these continues.
        looked: how many records were read for it.
        looked_bytes: size of their keys and values.
        spent: limit that ended the look early: `records`, `bytes` or `seconds`; None if none did.
        back_to_ms: time of the oldest record that was read, if a limit ended the look.
        only_partition: partition of the key, if the others were left out because of the key.
        gone: whether the wanted offset no longer exists, or does not exist yet.
        silent: partitions whose leader did not answer.
    """

    records: tuple[ShownRecord, ...]
    older: Positions | None
    newer: Positions
    looked: int
    looked_bytes: int
    spent: str | None
    back_to_ms: int | None
    only_partition: int | None
    gone: bool
    silent: tuple[int, ...]


def browse_topic(
    settings: KafkaSettings,
    wanted: BrowseRequest,
    *,
    keyed: bool = False,
    most_seconds: float = MOST_SECONDS,
    most_records: int = MOST_RECORDS,
    most_bytes: int = MOST_BYTES,
) -> BrowseResult:
    """Look once.

    Args:
        settings: the cluster.
        wanted: where and what.
        keyed: whether the hash of the key chose the topic's partitions, so that one partition is enough.
        most_seconds: when to give up or to stop.
        most_records: how many records may be read.
        most_bytes: how many bytes of keys and values may be read.

    Raises:
        UnavailableError: the topic or partition does not exist, or this user may not read it.
        RetryableError: Kafka does not answer in time.
    """
    budget = BrowseBudget(most_records, most_bytes, time.monotonic() + most_seconds)
    with BoundedReader(settings, wanted.topic, budget) as reader:
        partitions, only = _partitions(reader.partitions(), wanted, keyed=keyed)
        ends = reader.ends(partitions)
        walk = WalkRequest(reader, budget, wanted.key, wanted.limit)
        if wanted.begin in ("newest", "before"):
            bounds = _clamped(wanted.positions or {}, ends, otherwise=1)
            found = read_backward(walk, {one: (ends[one][0], bound) for one, bound in bounds.items()})
        else:
            bounds = _starts(reader, wanted, ends)
            found = read_forward(walk, {one: (start, ends[one][1]) for one, start in bounds.items()})
    return _look(wanted, found, bounds, ends, budget, only=only, silent=tuple(set(partitions) - ends.keys()))


def _partitions(there: list[int], wanted: BrowseRequest, *, keyed: bool) -> tuple[list[int], int | None]:
    """Return the partitions to look at, and the one that must hold the key."""
    if wanted.partition is not None:
        if wanted.partition not in there:
            message = f"Topic {wanted.topic} has no partition {wanted.partition}: it has {len(there)}, counted from 0"
            raise UnavailableError(message)
        return [wanted.partition], None
    if keyed and wanted.key is not None and len(there) > 1:
        only = partition_of_key(wanted.key, len(there))
        return [only], only
    return there, None


def _clamped(positions: Positions, ends: Ends, *, otherwise: int) -> dict[int, int]:
    """Return the positions limited to existing offsets; without a position, the oldest (0) or the newest (1) end."""
    return {one: min(max(positions.get(one, both[otherwise]), both[0]), both[1]) for one, both in ends.items()}


def _starts(reader: BoundedReader, wanted: BrowseRequest, ends: Ends) -> dict[int, int]:
    if wanted.begin == "time":
        found = reader.offsets_at(list(ends), wanted.at)
        # No record is that new: there is nothing to show, and later records are newer.
        return _clamped(found, ends, otherwise=1)
    if wanted.begin == "offset":
        return _clamped(dict.fromkeys(ends, wanted.at), ends, otherwise=0)
    return _clamped(wanted.positions or {}, ends, otherwise=0)


def _look(
    wanted: BrowseRequest,
    found: WalkResult,
    bounds: Positions,
    ends: Ends,
    budget: BrowseBudget,
    *,
    only: int | None,
    silent: tuple[int, ...],
) -> BrowseResult:
    backwards = wanted.begin in ("newest", "before")
    shown, reached = merge_page(found, wanted.limit, backwards=backwards)
    older, newer = (reached, dict(bounds)) if backwards else (dict(bounds), reached)
    enough = len(shown) >= wanted.limit or all(reached[one] == ends[one][0 if backwards else 1] for one in reached)
    return BrowseResult(
        records=tuple(shown),
        older=older if any(older[one] > ends[one][0] for one in older) else None,
        newer=newer,
        looked=budget.looked,
        looked_bytes=budget.looked_bytes,
        spent=None if enough else budget.spent,
        back_to_ms=found.back_to_ms if backwards else found.forth_to_ms,
        only_partition=only,
        gone=wanted.begin == "offset" and not any(oldest <= wanted.at < end for oldest, end in ends.values()),
        silent=silent,
    )


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic whose number of partitions never changed."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """Return Austin Appleby's MurmurHash2 with the seed of org.apache.kafka.common.utils.Utils."""
    whole = len(data) & ~3
    found = _SEED ^ len(data)
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MIX & _WORD
        found = (found * _MIX & _WORD) ^ ((word ^ word >> 24) * _MIX & _WORD)
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * _MIX & _WORD
    found = (found ^ found >> 13) * _MIX & _WORD
    return found ^ found >> 15

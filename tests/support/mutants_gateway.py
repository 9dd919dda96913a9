"""Deliberate faults of the gateway: changes of what is in Kafka. `from tests.support.mutants_gateway import GATEWAY`.

A row says which of audit and ledger must find the fault and which need not: a ledger that adds up says nothing about values,
and the audit reads no derived table.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ingest.contract.outcome import decode_outcome, encode_outcome
from ingest.contract.reading import decode_record, encode_record
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from tests.support.mutants import (
    Fault,
)

Triple = tuple[str, bytes, bytes]


def once(topic: str, chosen: Callable[[Any], bool], change: Callable[[Any], list[Any]]) -> Fault:
    """A fault of the first record of a topic that is chosen; `change` gives what stands in the log for it."""
    codec = {READINGS: (decode_record, encode_record), OUTCOMES: (decode_outcome, encode_outcome)}
    decode, encode = codec.get(topic, (json.loads, lambda data: json.dumps(data).encode()))
    done = []

    def fault(name: str, key: bytes, value: bytes) -> list[Triple]:
        if name != topic or done or not chosen(record := decode(value)):
            return [(name, key, value)]
        done.append(record)
        return [(name, getattr(each, "device", key.decode()).encode(), encode(each)) for each in change(record)]

    return fault


def of(device: str, seq: int | None = None) -> Callable[[Any], bool]:
    """Chooses records of a device (and number), whichever world it is of."""

    def chosen(record: Any) -> bool:
        name = record.get("device") if isinstance(record, dict) else record.device
        return name.startswith(f"{device}-") and (seq is None or record.seq == seq)

    return chosen


def counts(device: str) -> Callable[[Any], bool]:
    """Chooses outcomes that count something of a device."""
    return lambda record: any(count.device.startswith(f"{device}-") for count in record.counts)


def whole(letter: Any) -> bool:
    """Chooses dead letters of whole messages."""
    return not letter.get("partial")


def part(letter: Any) -> bool:
    return not whole(letter)


def nothing(record: Any) -> list[Any]:
    return []


def twice(record: Any) -> list[Any]:
    return [record, record]


def misnamed(record: Any) -> list[Any]:
    record.device = _other(record.device)
    return [record]


def _other(device: str) -> str:
    """The device `a` of the same world."""
    return f"a-{device.partition('-')[2]}"


def hotter(record: Any) -> list[Any]:
    record.readings[0].value += 100.0
    return [record]


def later(record: Any) -> list[Any]:
    record.readings[0].time_us += 60 * 1_000_000
    return [record]


def partless(record: Any) -> list[Any]:
    del record.readings[0]
    return [record]


def recounted(device: str, by: int = 0, *, other: bool = False, minutes: int = 0) -> Callable[[Any], list[Any]]:
    """An outcome whose count of a device is larger by so many, of another device, or of another minute."""

    def change(record: Any) -> list[Any]:
        for count in record.counts:
            if count.device.startswith(f"{device}-"):
                count.received, count.accepted = count.received + by, count.accepted + by
                count.device = _other(count.device) if other else count.device
                count.minute += minutes
        return [record]

    return change


def swapped() -> Fault:
    """The second message of a device overtakes the third."""
    held: list[Triple] = []

    def fault(topic: str, key: bytes, value: bytes) -> list[Triple]:
        if topic != READINGS or not of("a")(record := decode_record(value)) or record.seq not in {2, 3}:
            return [(topic, key, value)]
        if record.seq == 2:
            held.append((topic, key, value))
            return []
        return [(topic, key, value), *held]

    return fault


def foreign(record: Any) -> list[Any]:
    """A record that no gateway sent stands behind it."""
    copy = decode_record(encode_record(record))
    copy.gateway, copy.number = "somebody", 1
    return [record, copy]


def renumbered(record: Any) -> list[Any]:
    """A record under the name of this gateway, far past what it counts."""
    copy = decode_record(encode_record(record))
    copy.number, copy.seq, copy.message_id = 1_000_000, 77, "bs:7:77"
    return [record, copy]


@dataclass(frozen=True)
class Mutant:
    """A fault; `audit` and `ledger` say whether these must find it. `breaks` makes it, as said below each table."""

    name: str
    hop: str
    audit: bool
    ledger: bool
    breaks: Any


GATEWAY = [
    Mutant(
        "acknowledges a reading without producing it",
        "gateway",
        True,
        True,
        partial(once, READINGS, of("a", 2), nothing),
    ),
    Mutant(
        "loses half of a message's readings", "gateway", False, False, partial(once, READINGS, of("a", 2), partless)
    ),
    Mutant("alters a value", "gateway", False, False, partial(once, READINGS, of("a", 2), hotter)),
    Mutant("alters a time", "gateway", False, False, partial(once, READINGS, of("a", 2), later)),
    Mutant("produces a record twice", "gateway", True, True, partial(once, READINGS, of("b"), twice)),
    Mutant("swaps two messages of a device", "gateway", True, False, swapped),
    Mutant("names another device", "gateway", True, True, partial(once, READINGS, of("b"), misnamed)),
    Mutant(
        "acknowledges a refusal without its dead letter",
        "gateway",
        True,
        True,
        partial(once, DEAD_LETTERS, whole, nothing),
    ),
    Mutant("loses the dead letter of a part", "gateway", False, False, partial(once, DEAD_LETTERS, part, nothing)),
    Mutant("produces a dead letter twice", "gateway", True, True, partial(once, DEAD_LETTERS, whole, twice)),
    Mutant("loses an outcome", "gateway", True, True, partial(once, OUTCOMES, counts("b"), nothing)),
    Mutant("counts an outcome twice", "gateway", True, True, partial(once, OUTCOMES, counts("b"), twice)),
    Mutant(
        "counts one message too many", "gateway", True, True, partial(once, OUTCOMES, counts("b"), recounted("b", 1))
    ),
    Mutant(
        "counts one message too few", "gateway", True, True, partial(once, OUTCOMES, counts("b"), recounted("b", -1))
    ),
    Mutant(
        "counts for another device",
        "gateway",
        True,
        True,
        partial(once, OUTCOMES, counts("b"), recounted("b", other=True)),
    ),
    Mutant(
        "counts in another minute",
        "gateway",
        True,
        True,
        partial(once, OUTCOMES, counts("b"), recounted("b", minutes=1)),
    ),
    Mutant("lets somebody else's record through", "gateway", True, False, partial(once, READINGS, of("b"), foreign)),
    Mutant(
        "lets a record far past its own numbers through",
        "gateway",
        True,
        False,
        partial(once, READINGS, of("e"), renumbered),
    ),
]
"""`breaks` makes a fault between the gateway and Kafka."""

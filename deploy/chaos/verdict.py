"""Verdict on numbered messages: sent and acknowledged ones, compared with the records in Kafka. Pure.

The rule is that of Kafka's own `validate_delivery`: every acknowledged message must be consumed. Two records of one identity
are a repetition, which the landing drops; two records of one message with two identities are a duplicate.
"""

import base64
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter
from ingest.contract.outcome import OutcomeRecord, decode_outcome
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.log import LogRecord

__all__ = ["DeliveryVerdict", "MessageKey", "RecordedMessages", "judge"]

_EXAMPLES = 5


class MessageKey(NamedTuple):
    """Identity of a message: the device's own numbers."""

    device: str
    boot: int
    seq: int


@dataclass
class RecordedMessages:
    """Records in Kafka of the requested gateways."""

    readings: list[tuple[LogRecord, ReadingRecord]] = field(default_factory=list)
    dead_letters: list[tuple[LogRecord, DeadLetterRecord]] = field(default_factory=list)
    outcomes: list[OutcomeRecord] = field(default_factory=list)

    def add_readings(self, batch: Iterable[LogRecord], gateways: frozenset[str]) -> None:
        """Take records of `telemetry.readings`."""
        found = ((record, decode_record(record.value or b"")) for record in batch)
        self.readings += [(record, reading) for record, reading in found if reading.gateway in gateways]

    def add_dead_letters(self, batch: Iterable[LogRecord], gateways: frozenset[str]) -> None:
        """Take records of `telemetry.dead-letters`."""
        found = ((record, decode_dead_letter(record.value or b"")) for record in batch)
        self.dead_letters += [(record, letter) for record, letter in found if letter.gateway in gateways]

    def add_outcomes(self, batch: Iterable[LogRecord], gateways: frozenset[str]) -> None:
        """Take records of `telemetry.outcomes`."""
        found = (decode_outcome(record.value or b"") for record in batch)
        self.outcomes += [outcome for outcome in found if outcome.gateway in gateways]

    def keys(self, start: int = 0) -> set[MessageKey]:
        """The numbered messages that have a reading, from the `start`-th one on."""
        return {key for _, reading in self.readings[start:] if (key := _key(reading)) is not None}


@dataclass
class DeliveryVerdict:
    """Counts of messages; all but `sent`, `acknowledged`, `stored`, `dead_lettered` and `repeated` should be 0.

    `lost` had a PUBACK and is nowhere. `duplicate` would land twice. `reordered` comes after a later message of its
    device (`by_device` judged), or of its gateway's connection. `unexplained`: in Kafka but not sent, or the
    gateway's counts say another number than Kafka holds. `repeated` is there again under the same identity.
    """

    sent: int
    acknowledged: int
    stored: int
    dead_lettered: int
    lost: int
    duplicate: int
    repeated: int
    reordered: int
    unexplained: int
    examples: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """True if nothing is wrong."""
        return not (self.lost or self.duplicate or self.reordered or self.unexplained)


def judge(
    sent: Mapping[MessageKey, bytes],
    acknowledged: Iterable[MessageKey],
    landed: RecordedMessages,
    *,
    by_device: bool = True,
) -> DeliveryVerdict:
    """Strike the balance.

    Args:
        sent: payload of each message that was handed to the publisher's connection.
        acknowledged: those with a PUBACK.
        landed: everything in Kafka from the gateways that had to take them.
        by_device: judge the order by the devices' own numbers, sent ascending; without it by the order of receiving,
            for faults that disturb the publisher's own link, which then sends again as it likes.
    """
    copies: dict[MessageKey, list[ReadingRecord]] = defaultdict(list)
    strangers: list[Any] = []
    for _, reading in landed.readings:
        key = _key(reading)
        if key is None or key not in sent:
            strangers.append((reading.device, reading.boot, reading.seq))
        else:
            copies[key].append(reading)
    refused, unknown = _refused(sent, landed)
    strangers += unknown
    lost = sorted(set(acknowledged) - copies.keys() - refused)
    twice = sorted(key for key, found in copies.items() if _is_double(found) or key in refused)
    swapped = _swapped_by_device(landed) if by_device else _swapped_by_receiving(landed)
    difference = _count_difference(landed)
    examples = {"lost": lost, "duplicate": twice, "reordered": swapped, "unexplained": strangers}
    return DeliveryVerdict(
        sent=len(sent),
        acknowledged=len(set(acknowledged)),
        stored=len(copies),
        dead_lettered=len(refused),
        lost=len(lost),
        duplicate=len(twice),
        repeated=sum(len(found) - 1 for found in copies.values()),
        reordered=len(swapped),
        unexplained=len(strangers) + difference,
        examples={name: found[:_EXAMPLES] for name, found in examples.items() if found},
    )


def _key(reading: ReadingRecord) -> MessageKey | None:
    if reading.boot is None or reading.seq is None:
        return None
    return MessageKey(reading.device, reading.boot, reading.seq)


def _is_double(copies: list[ReadingRecord]) -> bool:
    return len(copies) > 1 and len({copy.message_id or id(copy) for copy in copies}) > 1


def _refused(sent: Mapping[MessageKey, bytes], landed: RecordedMessages) -> tuple[set[MessageKey], list[Any]]:
    """Return the messages that became dead letters, known by their bytes, and the dead letters without a sent message."""
    by_payload = {(key.device, payload): key for key, payload in sent.items()} if landed.dead_letters else {}
    refused: set[MessageKey] = set()
    unknown: list[Any] = []
    for _, letter in landed.dead_letters:
        device = letter.device or f"/{letter.topic}".split("/")[-2]
        key = by_payload.get((device, base64.b64decode(letter.payload_base64)))
        if key is None:
            unknown.append((letter.topic, letter.reason))
        elif not letter.partial:
            refused.add(key)
    return refused, unknown


def _swapped_by_device(landed: RecordedMessages) -> list[Any]:
    """Return the places where a message first comes after a later one of the same device and boot."""
    highest: dict[tuple[str, int], int] = {}
    seen: set[MessageKey] = set()
    swapped: list[Any] = []
    for key in (_key(reading) for _, reading in sorted(landed.readings, key=_place)):
        if key is None or key in seen:
            continue
        seen.add(key)
        before = highest.get(key[:2], -1)
        if key.seq < before:
            swapped.append((*key, f"behind {before}"))
        highest[key[:2]] = max(key.seq, before)
    return swapped


def _swapped_by_receiving(landed: RecordedMessages) -> list[Any]:
    """Return the places where a device's message comes after one that the same gateway received later."""
    last: dict[tuple[str, str], tuple[int, int]] = {}
    swapped: list[Any] = []
    for _, reading in sorted(landed.readings, key=_place):
        name, received = (reading.gateway, reading.device), (reading.epoch, reading.number)
        if received < last.get(name, received):
            swapped.append((*name, *received))
        last[name] = received
    return swapped


def _place(pair: tuple[LogRecord, ReadingRecord]) -> tuple[int, int]:
    return pair[0].partition, pair[0].offset


def _count_difference(landed: RecordedMessages) -> int:
    """Return the difference between the counts in the outcomes and the messages in Kafka, up to where outcomes reach."""
    upto: dict[tuple[str, int], int] = {}
    counted = 0
    for outcome in landed.outcomes:
        name = (outcome.gateway, outcome.epoch)
        upto[name] = max(upto.get(name, 0), outcome.upto)
        counted += sum(count.received - sum(count.ignored.values()) for count in outcome.counts)
    there = {(r.gateway, r.epoch, r.number) for _, r in landed.readings}
    there |= {(r.gateway, r.epoch, r.number) for _, r in landed.dead_letters}
    return abs(counted - sum(1 for gateway, epoch, number in there if number <= upto.get((gateway, epoch), -1)))

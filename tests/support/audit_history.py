"""A whole pipeline as a model: gateways that die and come back, Kafka, a landing; what they leave must balance.

`from tests.support.audit_history import History`. Every choice comes from a `random.Random`, so that a seed names a
history. Tests break it afterwards, in one place.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from deploy.balance import MINUTE_US, BalanceFigures, MessageBalance
from deploy.corrections import Correction
from ingest.contract.dead_letter import DeadLetterRecord, encode_dead_letter
from ingest.contract.outcome import Count, OutcomeRecord, encode_outcome
from ingest.contract.reading import Reading, ReadingRecord, encode_record
from ingest.contract.reasons import Reason
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.log import LogRecord
from tests.support.balance import DEAD_LETTER_ROWS, EPOCH, READING_ROWS, START_US, utc

WINDOW = 8
DEVICES = ("a", "b", "c", "d")
Row = dict[str, Any]


class Sent(NamedTuple):
    """What a device sent; a broker may deliver it several times. `said` names the payload."""

    kind: str
    devices: tuple[str, ...]
    identity: str | None
    said: int
    time_us: int | None


@dataclass
class Kept:
    """A record in Kafka: `value` is decoded."""

    partition: int
    at_ms: int
    value: Any


@dataclass
class Epoch:
    """A connection of a gateway."""

    gateway: str
    epoch: int
    first: int
    outcomes: list[tuple[int, OutcomeRecord]] = field(default_factory=list)


class History:
    """Lists of what is left: `records`, `letters`, `epochs` (with outcomes), `rows`, `letter_rows`."""

    def __init__(self, random: Random, *, connections: int = 4, messages: int = 12) -> None:
        self.random = random
        self.at_us = START_US
        self.records: list[Kept] = []
        self.letters: list[Kept] = []
        self.epochs: list[Epoch] = []
        self.rows: list[Row] = []
        self.letter_rows: list[Row] = []
        self.erased: list[tuple[str, int]] = []
        self.corrected: list[Correction] = []
        self._seq: Counter[str] = Counter()
        self._said = 0
        self._old: list[Sent] = []
        self._numbers: Counter[str] = Counter()
        self._again: dict[str, list[Sent]] = {}
        for _ in range(connections):
            self._connect(random.choice(("gw-1", "gw-2")), random.randint(1, messages))
        self._land()

    # The gateways.

    def _connect(self, gateway: str, messages: int) -> None:
        """One connection: what the last one left unacknowledged comes first; it ends well, or with a tail."""
        self._sleep(5_000_000)
        if self.random.random() < 0.5:
            self._numbers[gateway] = 0
        epoch = Epoch(gateway, EPOCH + (self.at_us - START_US) // 1000, self._numbers[gateway] + 1)
        self.epochs.append(epoch)
        waiting = self._again.pop(gateway, []) + [self._new() for _ in range(messages)]
        while waiting:
            size = min(len(waiting), self.random.randint(1, WINDOW))
            block, waiting = waiting[:size], waiting[size:]
            if self.random.random() < 0.25:
                self._die(epoch, block)
                # The broker keeps what was sent before it came so far.
                self._again[gateway] = block + waiting
                return
            first = self._numbers[gateway] + 1
            minutes: dict[tuple[str | None, int], Count] = {}
            for sent in block:
                self._receive(epoch, sent, minutes)
            self._sleep(20_000)
            number = self._numbers[gateway]
            outcome = OutcomeRecord(1, gateway, epoch.epoch, first, number, list(minutes.values()), began=epoch.first)
            epoch.outcomes.append((self.at_us // 1000, outcome))

    def _die(self, epoch: Epoch, block: list[Sent]) -> None:
        """Numbers are given, and some of the records are in Kafka."""
        for sent in block:
            self._receive(epoch, sent, {}, lost=self.random.random() < 0.3)

    def _new(self) -> Sent:
        if self._old and self.random.random() < 0.1:
            return self.random.choice(self._old)  # the device sends it again
        self._said += 1
        device = self.random.choice(DEVICES)
        kind = self.random.choices(
            ("stored", "nameless", "refused", "ignored", "several", "partial"), (8, 3, 2, 2, 1, 1)
        )[0]
        devices = tuple(sorted({device, self.random.choice(DEVICES)})) if kind == "several" else (device,)
        self._seq[device] += 1
        identity = None if kind in ("nameless", "refused", "ignored") else f"bs:1:{device}{self._seq[device]}"
        sent = Sent(kind, devices, identity, self._said, self.at_us - 1000 if self.random.random() < 0.7 else None)
        if identity is not None:
            self._old.append(sent)
        return sent

    def _receive(
        self, epoch: Epoch, sent: Sent, counts: dict[tuple[str | None, int], Count], *, lost: bool = False
    ) -> None:
        self._sleep(self.random.choice((1000, 2000, 9_000_000)))
        self._numbers[epoch.gateway] += 1
        name = (epoch.gateway, epoch.epoch, self._numbers[epoch.gateway], self.at_us, f"t/{sent.said}")
        device = None if sent.kind == "refused" else sent.devices[0]
        count = counts.setdefault((device, self.at_us // MINUTE_US), Count(self.at_us // MINUTE_US, 0, device))
        count.received += 1
        if sent.kind == "refused":
            count.dead_lettered = {"bad_json": sum(count.dead_lettered.values()) + 1}
        elif sent.kind == "ignored":
            count.ignored = {"no_value": sum(count.ignored.values()) + 1}
        else:
            count.accepted += 1
        if not lost:
            self._produce(sent, name)

    def _produce(self, sent: Sent, name: tuple[str, int, int, int, str]) -> None:
        at_ms = self.at_us // 1000
        if sent.kind in ("refused", "partial"):
            is_part = sent.kind == "partial"
            letter = DeadLetterRecord(
                1, *name, Reason.BAD_JSON, f"{sent.said}", 0, partial=is_part, device=sent.devices[0]
            )
            self.letters.append(Kept(0, at_ms, letter))
        if sent.kind in ("refused", "ignored"):
            return
        for device in sent.devices:
            readings = [
                Reading(
                    f"m{i}", sent.said + i / 4, text=f"text {sent.said}" if i else None, unit="°C", time_us=sent.time_us
                )
                for i in range(1 + sent.said % 3)
            ]
            record = ReadingRecord(1, *name, device, readings, message_id=sent.identity)
            self.records.append(Kept(partition_of(device), at_ms, record))

    def _sleep(self, us: int) -> None:
        self.at_us += us

    # The landing.

    def _land(self) -> None:
        seen: set[tuple[Any, ...]] = set()
        for place, kept in self.placed(self.records):
            message = kept.value
            for reading in message.readings:
                key = (message.device, reading.metric, message.message_id)
                if message.message_id is not None and key in seen:
                    continue
                seen.add(key)
                self.rows.append(reading_row(kept.partition, place, message, reading))
        for place, kept in self.placed(self.letters):
            origin = origin_row(kept.partition, place, kept.value)
            self.letter_rows.append(origin | {"source_topic": DEAD_LETTERS, "stage": "gateway", "reason": "bad_json"})

    @staticmethod
    def placed(kept: list[Kept]) -> Iterator[tuple[int, Kept]]:
        """With the offset of each."""
        ends: Counter[int] = Counter()
        for one in kept:
            yield ends[one.partition], one
            ends[one.partition] += 1

    # What happens to tables on purpose.

    def erase(self, device: str) -> None:
        """All rows of a device go, and a receipt says so."""
        self.rows = [row for row in self.rows if row["device"] != device]
        self.erased.append((sha256(device), self.at_us + 1))

    def correct(self, device: str, metric: str, *, delete: bool) -> None:
        """Rows of a device's metric go or change, and the journal says so."""
        chosen = [row for row in self.rows if row["device"] == device and row["metric"] == metric]
        if delete:
            self.rows = [row for row in self.rows if row not in chosen]
        for row in chosen:
            row |= {"value": row["value"] * 2, "text": None, "flags": ["corrected"]}
        self.corrected.append(Correction(sha256(device), metric, None, None, self.at_us + 1, delete))

    # The audit.

    def balance(self, cutoff_us: int = START_US, *, pending: int = 0) -> BalanceFigures:
        """What the audit finds; of the newest `pending` records no row is in the tables yet."""
        placed = list(self.placed(self.records))
        left_out = {(kept.partition, place) for place, kept in placed[len(placed) - pending :]}
        ends = {READINGS: {0: 0, 1: 0}, DEAD_LETTERS: {0: len(self.letters)}}
        for place, kept in placed:
            if (kept.partition, place) not in left_out:
                ends[READINGS][kept.partition] = max(ends[READINGS][kept.partition], place + 1)
        rows = [row for row in self.rows if (row["partition"], row["offset"]) not in left_out]
        known = ("gw-1", "gw-2")
        with MessageBalance(cutoff_us, window_messages=WINDOW, gateways=known, from_the_start=True) as books:
            books.load_tables(
                pa.Table.from_pylist(rows, READING_ROWS), pa.Table.from_pylist(self.letter_rows, DEAD_LETTER_ROWS)
            )
            books.add_erased(self.erased)
            books.add_corrections(self.corrected)
            outcomes = sorted(((at, o) for epoch in self.epochs for at, o in epoch.outcomes), key=lambda one: one[0])
            books.add_outcomes(LogRecord(0, i, at, b"k", encode_outcome(o)) for i, (at, o) in enumerate(outcomes))
            books.add_readings(log_records(placed, encode_record))
            books.add_dead_letters(log_records(self.placed(self.letters), encode_dead_letter))
            return books.balance(ends)


def log_records(placed: Any, encode: Callable[[Any], bytes]) -> list[LogRecord]:
    return [LogRecord(kept.partition, place, kept.at_ms, b"k", encode(kept.value)) for place, kept in placed]


def partition_of(device: str) -> int:
    return DEVICES.index(device) % 2 if device in DEVICES else 0


def sha256(device: str) -> str:
    return hashlib.sha256(device.encode()).hexdigest()


def origin_row(partition: int, offset: int, message: Any) -> Row:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=message.received_us)
    return {
        "partition": partition, "offset": offset, "gateway_epoch": message.epoch, "message_number": message.number,
        "received_at": at, "date": at.date(), "device": message.device,
    }  # fmt: skip


def reading_row(partition: int, offset: int, message: ReadingRecord, reading: Reading) -> Row:
    return origin_row(partition, offset, message) | {
        "metric": reading.metric, "index": reading.index, "message_id": message.message_id, "value": reading.value,
        "text": reading.text, "unit": reading.unit, "flags": [],
        "event_time": utc(message.received_us if reading.time_us is None else reading.time_us),
        "device_time": None if reading.time_us is None else utc(reading.time_us),
    }  # fmt: skip

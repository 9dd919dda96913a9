"""A small world of messages for the audit's arithmetic, to be broken by a test.

`from tests.support.balance import World`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from deploy.balance import MINUTE_US, BalanceFigures, MessageBalance
from deploy.corrections import Correction
from ingest.contract.dead_letter import DeadLetterRecord, encode_dead_letter
from ingest.contract.outcome import Count, OutcomeRecord, encode_outcome
from ingest.contract.reading import Reading, ReadingRecord, encode_record
from ingest.contract.reasons import Reason
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.log import LogRecord

START_US = 1_700_000_040_000_000
assert START_US % MINUTE_US == 0
EPOCH = 1_700_000_000_000
Row = dict[str, Any]
_ORIGIN = [
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("gateway_epoch", pa.int64()),
    ("message_number", pa.int64()),
    ("received_at", pa.timestamp("us", "UTC")),
    ("date", pa.date32()),
    ("device", pa.string()),
]
_TIME = pa.timestamp("us", "UTC")
READING_ROWS = pa.schema(
    [
        *_ORIGIN, ("metric", pa.string()), ("index", pa.int32()), ("message_id", pa.string()), ("value", pa.float64()),
        ("text", pa.string()), ("unit", pa.string()), ("event_time", _TIME), ("device_time", _TIME),
        ("flags", pa.list_(pa.string())), ("payload_hash", pa.int64()), ("mqtt_topic", pa.string()),
    ]
)  # fmt: skip
DEAD_LETTER_ROWS = pa.schema([*_ORIGIN, ("source_topic", pa.string()), ("stage", pa.string()), ("reason", pa.string())])


def utc(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


class World:
    """What the gateway, Kafka and Spark would have left behind, as plain lists to be broken by a test."""

    def __init__(self) -> None:
        self.number = 0
        self.counted = 0
        self.at_ms = 0
        self.epoch = EPOCH
        self.gateway = "gw-1"
        self.records: list[LogRecord] = []
        self.letters: list[LogRecord] = []
        self.outcomes: list[LogRecord] = []
        self.rows: list[Row] = []
        self.letter_rows: list[Row] = []

    def store(
        self,
        device: str,
        message_id: str | None = None,
        *,
        metrics: int = 1,
        land: bool = True,
        value: float = 0.0,
        topic: str = "",
        time_us: int | None = None,
        payload: int | None = None,
        retained: bool = False,
    ) -> int:
        """A message with `metrics` readings, in Kafka and (`land`) in the table; returns its number."""
        self.number += 1
        received_us = START_US + self.number * 1000
        readings = [Reading(metric=f"m{i}", value=value + i, time_us=time_us) for i in range(metrics)]
        name = (self.gateway, self.epoch, self.number, received_us, topic or f"t/{device}", device)
        record = ReadingRecord(1, *name, readings, message_id=message_id, retain=retained, payload_hash=payload)
        self.records.append(LogRecord(0, len(self.records), self.at_ms, device.encode(), encode_record(record)))
        if land:
            self.rows += [self.row(len(self.records) - 1, record, reading) for reading in readings]
        return self.number

    def store_batch(self, device: str, items: list[tuple[str | None, bool]]) -> None:
        """A message whose items carry identities of their own: (identity, is its row in the table); one metric."""
        self.number += 1
        readings = [
            Reading(metric="m0", value=1.0, message_id=name, index=i * (not name)) for i, (name, _) in enumerate(items)
        ]
        at = START_US + self.number * 1000
        record = ReadingRecord(1, self.gateway, self.epoch, self.number, at, "t", device, readings)
        self.records.append(LogRecord(0, len(self.records), self.at_ms, device.encode(), encode_record(record)))
        self.rows += [
            self.row(len(self.records) - 1, record, reading)
            for reading, (_, land) in zip(readings, items, strict=True)
            if land
        ]

    def store_devices(self, devices: dict[str, bool], message_id: str | None = None) -> None:
        """One message with a reading of each of these devices, a record each: (device, is its row in the table)."""
        for device, land in devices.items():
            self.store(device, message_id, land=land, topic="t/gateway")
            self.number -= 1
        self.number += 1

    def refuse(self, device: str | None, *, partial: bool = False, land: bool = True, topic: str = "") -> None:
        """A dead letter: of the whole next message, or (`partial`) of a part of the last one."""
        self.number += not partial
        received_us = START_US + self.number * 1000
        name = (self.gateway, self.epoch, self.number, received_us, topic or f"t/{device}")
        letter = DeadLetterRecord(1, *name, Reason.BAD_JSON, "", 0, partial=partial, device=device)
        self.letters.append(LogRecord(0, len(self.letters), self.at_ms, b"k", encode_dead_letter(letter)))
        if land:
            self.letter_rows.append(
                self.origin(len(self.letters) - 1, device) | {"source_topic": DEAD_LETTERS, "stage": "gateway"}
            )

    def count(
        self, *, accepted: Sequence[str] = (), dead: int = 0, ignored: int = 0, minute: int = START_US // MINUTE_US
    ) -> None:
        """The gateway's outcome for everything since the last one: devices of accepted messages, and the others.

        Ignored messages take numbers of their own.
        """
        self.number += ignored
        counts = [Count(minute, n, device, n) for device, n in Counter(accepted).items()]
        if dead:
            counts.append(Count(minute, dead, None, dead_lettered={"bad_json": dead}))
        if ignored:
            counts.append(Count(minute, ignored, "d", ignored={"no_value": ignored}))
        self.outcome(OutcomeRecord(1, self.gateway, self.epoch, self.counted + 1, self.number, counts, began=1))
        self.counted = self.number

    def outcome(self, outcome: OutcomeRecord) -> None:
        """An outcome as it is given."""
        self.outcomes.append(LogRecord(0, len(self.outcomes), self.at_ms, b"k", encode_outcome(outcome)))

    def connect(self) -> None:
        """The gateway dies and comes back: a new process, with numbers of its own."""
        self.epoch, self.number, self.counted = self.epoch + 1, 0, 0
        self.at_ms += 1000

    def load_tables(self, books: MessageBalance) -> None:
        """Both tables, as they are now."""
        rows, letters = (
            pa.Table.from_pylist(self.rows, READING_ROWS),
            pa.Table.from_pylist(self.letter_rows, DEAD_LETTER_ROWS),
        )
        books.load_tables(rows, letters)

    def balance(
        self,
        cutoff_us: int = START_US,
        *,
        erased: Iterable[tuple[str, int]] = (),
        corrected: Iterable[Correction] = (),
        window_messages: int = 1000,
    ) -> BalanceFigures:
        """What the audit finds, once all is landed."""
        landed = {READINGS: {0: len(self.records)}, DEAD_LETTERS: {0: len(self.letters)}}
        with MessageBalance(cutoff_us, window_messages=window_messages, from_the_start=True, is_deep=True) as books:
            self.load_tables(books)
            books.add_erased(erased)
            books.add_corrections(corrected)
            books.add_outcomes(self.outcomes)
            for start in range(0, len(self.records), 2):
                books.add_readings(self.records[start : start + 2])
            books.add_dead_letters(self.letters)
            return books.balance(landed)

    def row(self, offset: int, record: ReadingRecord, reading: Reading) -> Row:
        """The row of a reading of the last message."""
        claimed = reading.time_us if reading.claimed_us is None else reading.claimed_us
        return self.origin(offset, record.device) | {
            "metric": reading.metric, "index": reading.index, "message_id": reading.message_id or record.message_id,
            "value": reading.value, "text": reading.text, "unit": reading.unit,
            "event_time": utc(record.received_us if reading.time_us is None else reading.time_us),
            "device_time": None if claimed is None else utc(claimed), "flags": reading.flags or [],
            "payload_hash": record.payload_hash, "mqtt_topic": record.topic,
        }  # fmt: skip

    def origin(self, offset: int, device: str | None) -> Row:
        """What a row says of the record it comes from: the last message's."""
        at = datetime.fromtimestamp(START_US / 1e6, UTC) + timedelta(milliseconds=self.number)
        return {
            "partition": 0, "offset": offset, "gateway_epoch": self.epoch, "message_number": self.number,
            "received_at": at, "date": at.date(), "device": device,
        }  # fmt: skip


@pytest.fixture
def world() -> Iterator[World]:
    """Six messages: three stored (one of them in part), one refused, two ignored; all counted, landed and whole."""
    world = World()
    world.store("a", "bs:1:1", metrics=3)
    world.store("a", "bs:1:2")
    world.store("b")
    world.refuse("b", partial=True)
    world.refuse(None)
    world.count(accepted=["a", "a", "b"], dead=1, ignored=2)
    yield world


def assert_faults(figures: BalanceFigures, *, unaccounted: int = 0, duplicate_rows: int = 0, order: int = 0) -> None:
    found = (figures.unaccounted, figures.duplicate_rows, figures.order_violations)
    assert found == (unaccounted, duplicate_rows, order), figures

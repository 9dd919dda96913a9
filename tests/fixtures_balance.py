"""A small world of messages for the audit's arithmetic, to be broken by a test.

`from tidegate_tests_fixtures_balance import World`.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from deploy.balance import MINUTE_US, Books, Figures
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
_READINGS = pa.schema([*_ORIGIN, ("metric", pa.string()), ("index", pa.int32()), ("message_id", pa.string())])
_DEAD_LETTERS = pa.schema([*_ORIGIN, ("source_topic", pa.string()), ("stage", pa.string()), ("reason", pa.string())])


class World:
    """What the gateway, Kafka and Spark would have left behind, as plain lists to be broken by a test."""

    def __init__(self) -> None:
        self.number = 0
        self.epoch = EPOCH
        self.gateway = "gw-1"
        self.records: list[LogRecord] = []
        self.letters: list[LogRecord] = []
        self.outcomes: list[LogRecord] = []
        self.rows: list[Row] = []
        self.letter_rows: list[Row] = []

    def store(self, device: str, message_id: str | None = None, *, metrics: int = 1, land: bool = True) -> int:
        """A message with `metrics` readings, in Kafka and (`land`) in the table; returns its number."""
        self.number += 1
        received_us = START_US + self.number * 1000
        readings = [Reading(metric=f"m{i}", value=float(i)) for i in range(metrics)]
        name = (self.gateway, self.epoch, self.number, received_us, f"t/{device}", device)
        record = ReadingRecord(1, *name, readings, message_id=message_id)
        self.records.append(LogRecord(0, len(self.records), 0, device.encode(), encode_record(record)))
        if land:
            self.rows += [
                self.origin(len(self.records) - 1, device)
                | {"metric": reading.metric, "index": 0, "message_id": message_id}
                for reading in readings
            ]
        return self.number

    def store_batch(self, device: str, items: list[tuple[str | None, bool]]) -> None:
        """A message whose items carry identities of their own: (identity, is its row in the table); one metric."""
        self.number += 1
        readings = [
            Reading(metric="m0", value=1.0, message_id=name, index=i * (not name)) for i, (name, _) in enumerate(items)
        ]
        at = START_US + self.number * 1000
        record = ReadingRecord(1, self.gateway, self.epoch, self.number, at, "t", device, readings)
        self.records.append(LogRecord(0, len(self.records), 0, device.encode(), encode_record(record)))
        self.rows += [
            self.origin(len(self.records) - 1, device)
            | {"metric": "m0", "index": reading.index, "message_id": reading.message_id}
            for reading, (_, land) in zip(readings, items, strict=True)
            if land
        ]

    def store_devices(self, devices: dict[str, bool], message_id: str | None = None) -> None:
        """One message with a reading of each of these devices, a record each: (device, is its row in the table)."""
        for device, land in devices.items():
            self.store(device, message_id, land=land)
            self.number -= 1
        self.number += 1

    def refuse(self, device: str | None, *, partial: bool = False, land: bool = True) -> None:
        """A dead letter: of the whole next message, or (`partial`) of a part of the last one."""
        self.number += not partial
        received_us = START_US + self.number * 1000
        name = (self.gateway, self.epoch, self.number, received_us, "t")
        letter = DeadLetterRecord(1, *name, Reason.BAD_JSON, "", 0, partial=partial, device=device)
        self.letters.append(LogRecord(0, len(self.letters), 0, b"k", encode_dead_letter(letter)))
        if land:
            self.letter_rows.append(
                self.origin(len(self.letters) - 1, device) | {"source_topic": DEAD_LETTERS, "stage": "gateway"}
            )

    def count(self, *, accepted: int = 0, dead: int = 0, ignored: int = 0, minute: int = START_US // MINUTE_US) -> None:
        """The gateway's outcome for everything up to the last number (ignored messages take numbers of their own)."""
        self.number += ignored
        count = Count(
            minute,
            accepted + dead + ignored,
            "d",
            accepted,
            dead_lettered={"bad_json": dead} if dead else {},
            ignored={"no_value": ignored} if ignored else {},
        )
        outcome = OutcomeRecord(1, self.gateway, self.epoch, 1, self.number, [count])
        self.outcomes.append(LogRecord(0, len(self.outcomes), 0, b"k", encode_outcome(outcome)))

    def load_tables(self, books: Books) -> None:
        """Both tables, as they are now."""
        rows, letters = (
            pa.Table.from_pylist(self.rows, _READINGS),
            pa.Table.from_pylist(self.letter_rows, _DEAD_LETTERS),
        )
        books.load_tables(rows, letters)

    def balance(self, cutoff_us: int = START_US, *, erased: Iterable[tuple[str, int]] = ()) -> Figures:
        """What the audit finds, once all is landed."""
        landed = {READINGS: {0: len(self.records)}, DEAD_LETTERS: {0: len(self.letters)}}
        with Books(cutoff_us) as books:
            self.load_tables(books)
            books.add_erased(erased)
            books.add_outcomes(self.outcomes)
            for start in range(0, len(self.records), 2):
                books.add_readings(self.records[start : start + 2])
            books.add_dead_letters(self.letters)
            return books.balance(landed)

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
    world.count(accepted=3, dead=1, ignored=2)
    yield world


def assert_faults(figures: Figures, *, unaccounted: int = 0, duplicate_rows: int = 0, order: int = 0) -> None:
    found = (figures.unaccounted, figures.duplicate_rows, figures.order_violations)
    assert found == (unaccounted, duplicate_rows, order), figures

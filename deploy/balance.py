"""The arithmetic of the audit: what the gateway counted, what Kafka holds, what the tables hold. No servers, no clock.

Messages are named by (gateway, epoch, number). DuckDB joins and spills to disk: see balance.sql.
"""

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb
import msgspec
import pyarrow as pa

from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.outcome import decode_outcome
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.log import LogRecord

__all__ = ["MINUTE_US", "Books", "Figures", "Rows"]

MINUTE_US: Final = 60_000_000

Rows = Any
"""Rows of a table: an Arrow table or dataset with the columns of lakehouse/tables.py."""

_QUERIES: Final = dict(
    re.findall(
        r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)",
        (Path(__file__).parent / "balance.sql").read_text("utf-8"),
        re.M | re.S,
    )
)


@dataclass
class Figures:
    """What came out, in messages (`duplicate_rows`: rows, `foreign`: records); `examples` names some of each fault."""

    received: int = 0
    stored: int = 0
    partial: int = 0
    dead_lettered: int = 0
    ignored: int = 0
    duplicate: int = 0
    unaccounted: int = 0
    pending: int = 0
    duplicate_rows: int = 0
    order_violations: int = 0
    foreign: int = 0
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def only_counts_differ(self) -> bool:
        """True when every message in Kafka is accounted for, and only the gateway's counts say another number."""
        return "count_differs" in self.examples and "unaccounted" not in self.examples


class Books:
    """Collects the three sources and strikes the balance: first `load_tables`, then the `add_*`, then `balance`.

    Args:
        cutoff_us: only messages received at or after this time count; a whole minute.
    """

    def __init__(self, cutoff_us: int) -> None:
        self.cutoff_us = cutoff_us
        self._received = 0
        self._ignored = 0
        self._foreign = 0
        self._upto: dict[tuple[str, int], int] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="tidegate-audit-")
        limits: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": self._folder.name,
            "memory_limit": "512MB",
            "threads": 2,
        }
        self._db = duckdb.connect(":memory:", config=limits)
        self._db.execute("set timezone = 'UTC'")
        self._db.execute(f"set variable cutoff_us = {cutoff_us}")
        self._db.execute(
            f"set variable readings_topic = '{READINGS}'; set variable dead_letters_topic = '{DEAD_LETTERS}'"
        )
        self._db.execute(_QUERIES["schema"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()
        self._folder.cleanup()

    def load_tables(self, readings: Rows, dead_letters: Rows) -> None:
        """Take a snapshot of the two tables; may be called again with newer ones."""
        self._db.register("readings", readings)
        self._db.register("dead_letters", dead_letters)
        self._db.execute(_QUERIES["views"])
        self._db.execute(_QUERIES["rows_at"])

    def add_erased(self, devices: Iterable[tuple[str, int]]) -> None:
        """Take which devices were erased by request: SHA-256 of the id, and until when (µs); they count as they did before."""
        self._insert("erased", _ERASED, list(devices))

    def add_outcomes(self, batch: Iterable[LogRecord]) -> None:
        """Take what the gateways counted."""
        for record in batch:
            try:
                outcome = decode_outcome(record.value or b"")
            except msgspec.DecodeError:
                self._foreign += 1
                continue
            name = (outcome.gateway, outcome.epoch)
            self._upto[name] = max(outcome.upto, self._upto.get(name, outcome.upto))
            counts = [count for count in outcome.counts if count.minute * MINUTE_US >= self.cutoff_us]
            self._received += sum(count.received for count in counts)
            self._ignored += sum(sum(count.ignored.values()) for count in counts)

    def add_readings(self, batch: Iterable[LogRecord]) -> None:
        """Take records of `telemetry.readings`."""
        decoded: list[tuple[LogRecord, ReadingRecord]] = []
        for record in batch:
            try:
                message = decode_record(record.value or b"")
            except msgspec.DecodeError:
                self._foreign += 1
                continue
            if message.received_us >= self.cutoff_us:
                decoded.append((record, message))
        rows = [
            (READINGS, r.partition, r.offset, m.gateway, m.epoch, m.number, m.received_us, m.device, False,
             len(m.readings))
            for r, m in decoded
        ]  # fmt: skip
        self._insert("records", _RECORDS, rows)
        self._want_missing(decoded)

    def add_dead_letters(self, batch: Iterable[LogRecord]) -> None:
        """Take records of `telemetry.dead-letters`."""
        rows = []
        for record in batch:
            try:
                letter = decode_dead_letter(record.value or b"")
            except msgspec.DecodeError:
                self._foreign += 1
                continue
            if letter.received_us >= self.cutoff_us:
                rows.append(
                    (DEAD_LETTERS, record.partition, record.offset, letter.gateway, letter.epoch, letter.number,
                     letter.received_us, letter.device, letter.partial, 1)
                )  # fmt: skip
        self._insert("records", _RECORDS, rows)

    def balance(self, landed: dict[str, dict[int, int]]) -> Figures:
        """Strike the balance. `landed` says up to which offset Spark has come: what lies behind it is pending."""
        self._db.execute("delete from upto; delete from landed")
        self._insert("upto", _UPTO, [(*name, number) for name, number in self._upto.items()])
        ends = [(topic, p, offset) for topic, parts in landed.items() for p, offset in parts.items()]
        self._insert("landed", _LANDED, ends)
        for name in ("states", "pardon", "messages", "doubled", "swapped"):
            self._db.execute(_QUERIES[name])
        figures = self._figures()
        # What the outcomes count and no topic holds, or the other way round, is unaccounted too.
        accounted = figures.stored + figures.dead_lettered + figures.ignored + figures.duplicate + figures.unaccounted
        difference = figures.received - accounted
        figures.unaccounted += abs(difference)
        if difference:
            what = "counted by the gateway, but in no topic" if difference > 0 else "in a topic, but not counted"
            figures.examples["count_differs"] = [{"messages": abs(difference), "what": what}]
        return figures

    def _figures(self) -> Figures:
        classes = dict(self._db.execute("select class, count(*) from messages group by class").fetchall())
        figures = Figures(
            received=self._received + self._one("select count(*) from messages where not is_counted"),
            stored=classes.get("stored", 0),
            partial=self._one("select count(*) from messages where class = 'stored' and has_part"),
            dead_lettered=classes.get("dead_lettered", 0),
            ignored=self._ignored,
            duplicate=classes.get("duplicate", 0),
            unaccounted=classes.get("unaccounted", 0),
            pending=self._one("select count(*) from messages where class = 'unaccounted' and is_pending"),
            duplicate_rows=self._one("select coalesce(sum(extra), 0) from doubled"),
            order_violations=self._one("select count(*) from swapped"),
            foreign=self._foreign,
        )
        for name in ("unaccounted", "duplicate_rows", "order_violations"):
            if getattr(figures, name):
                figures.examples[name] = self._rows(_QUERIES[f"show_{name}"])
        return figures

    def _insert(self, table: str, schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            columns = [
                pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), schema.types, strict=True)
            ]
            self._db.register("batch", pa.Table.from_arrays(columns, schema=schema))
            self._db.table("batch").insert_into(table)
            self._db.unregister("batch")

    def _want_missing(self, decoded: Sequence[tuple[LogRecord, ReadingRecord]]) -> None:
        """Of records that have fewer rows than readings, note each reading: is it stored elsewhere?"""
        if not decoded:
            return
        offsets = [record.offset for record, _ in decoded]
        complete = set(self._db.execute(_QUERIES["complete"], [min(offsets), max(offsets)]).fetchall())
        rows = [
            (r.partition, r.offset, m.epoch, m.number, m.device, x.metric, x.index, x.message_id or m.message_id)
            for r, m in decoded
            if (r.partition, r.offset) not in complete
            for x in m.readings
        ]
        self._insert("wanted", _WANTED, rows)

    def _rows(self, query: str) -> list[dict[str, Any]]:
        cursor = self._db.execute(query)
        names = [column[0] for column in cursor.description or []]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _one(self, query: str) -> int:
        row = self._db.execute(query).fetchone()
        return int(row[0]) if row else 0


_RECORDS: Final = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("gateway", pa.string()),
        ("epoch", pa.int64()), ("number", pa.int64()), ("received_us", pa.int64()), ("device", pa.string()),
        ("is_partial", pa.bool_()), ("reading_count", pa.int64()),
    ]
)  # fmt: skip
_WANTED: Final = pa.schema(
    [
        ("partition", pa.int32()), ("offset", pa.int64()), ("epoch", pa.int64()), ("number", pa.int64()),
        ("device", pa.string()), ("metric", pa.string()), ("index", pa.int32()), ("message_id", pa.string()),
    ]
)  # fmt: skip
_UPTO: Final = pa.schema([("gateway", pa.string()), ("epoch", pa.int64()), ("upto", pa.int64())])
_LANDED: Final = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("end", pa.int64())])
_ERASED: Final = pa.schema([("device_sha256", pa.string()), ("at_us", pa.int64())])

"""Balance of the audit: compares the gateways' counts, Kafka's records and the tables' rows. No servers, no clock.

A message is named by (gateway, epoch, number). DuckDB runs the joins of balance.sql and spills to disk. The code shares
nothing with the writers of the three sources, so that a fault of a writer cannot hide itself here.
"""

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from deploy.balance_rows import (
    CORRECTION_ROWS,
    COUNTED_ROWS,
    ERASED_ROWS,
    GATEWAY_ROWS,
    LANDED_ROWS,
    LIFE_ROWS,
    READING_ROWS,
    RECORD_ROWS,
    RUN_ROWS,
    arrow_table,
    dead_letter_row,
    reading_rows,
    record_row,
)
from deploy.corrections import Correction
from deploy.counted_messages import MINUTE_US, CountedMessages, NumberRun
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.outcome import OutcomeRecord, decode_outcome
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.log import LogRecord
from lakehouse.dataset import read_in_turn

__all__ = ["MINUTE_US", "BalanceFigures", "MessageBalance", "Rows"]

NEAR_US: Final = 15 * MINUTE_US
"""Span before the window in which the audit first looks for the original of a copy. Most originals are there."""
AHEAD_US: Final = 10 * MINUTE_US
"""Assumed limit of how far a device's clock is ahead of the time of receipt."""
_DAY_US: Final = 24 * 60 * MINUTE_US
_WEEK_US: Final = 8 * _DAY_US
_FAULTS: Final = ("lost", "altered", "hole", "uncounted", "twice")

Rows = Any
"""Rows of a table: an Arrow table or dataset with the columns of lakehouse/tables.py."""

_QUERIES: Final = dict(
    re.findall(
        r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)",
        (Path(__file__).parent / "balance.sql").read_text("utf-8"),
        re.M | re.S,
    )
)
_SHOWN: Final = {
    "lost": "unaccounted",
    "altered": "altered",
    "uncounted": "uncounted",
    "twice": "named_twice",
}
"""Class of a message -> its name among the examples."""
_NEWER: Final = {"payload": "payload_hash", "topic": "mqtt_topic"}
"""Columns that tables of older versions do not have, by their names in the queries."""
_OLDER: Final = (
    "device", "message_id", "metric", "index", "value", "text", "unit", "device_time", "flags", "received_at", "partition",
    "offset",
)  # fmt: skip
_NAME: Final = ("gateway_epoch", "message_number")
_PLACE: Final = ("event_time", "date")


@dataclass
class BalanceFigures:
    """Results in messages (`duplicate_rows`: rows, `foreign`: records); `examples` names some of each fault.

    `unaccounted` is the sum of the faults: lost, `altered`, not counted, counted twice, counted but without a record.
    """

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
    altered: int = 0
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def only_counts_differ(self) -> bool:
        """True if every message in Kafka is accounted for, and only the gateway's counts differ."""
        return self.unaccounted > 0 and not {"unaccounted", "altered"} & self.examples.keys()


class MessageBalance:
    """Collector of the three sources, and their balance. Call `load_tables`, then each `add_*`, then `balance`.

    Args:
        cutoff_us: only messages received at or after this time count; epoch µs of a whole minute.
        window_messages: most messages that a gateway may have received and not yet counted.
        horizon_us: most time in µs between an original and its copy: what the broker keeps for a gateway that is away.
        gateways: gateways that are known, even if they have counted nothing yet.
        from_the_start: True if the outcomes are read from their topic's first record.
        is_deep: look for duplicates of every row within the horizon, not only of rows that may have one.
    """

    def __init__(
        self,
        cutoff_us: int,
        *,
        window_messages: int = 1000,
        horizon_us: int = _WEEK_US,
        gateways: Iterable[str] = (),
        from_the_start: bool = False,
        is_deep: bool = False,
    ) -> None:
        self.cutoff_us = cutoff_us
        self._is_deep = is_deep
        self._near_us = max(0, cutoff_us - (max(NEAR_US, horizon_us) if is_deep else NEAR_US))
        self._horizon_us = horizon_us
        self._window_messages = window_messages
        self._received = self._ignored = self._foreign = 0
        self._counted = CountedMessages(cutoff_us, from_the_start=from_the_start)
        self._known, self._gateways = frozenset(gateways), set[str]()
        self._folder = tempfile.TemporaryDirectory(prefix="tidegate-audit-")
        limits: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": self._folder.name,
            "memory_limit": "512MB",
            "threads": 2,
        }
        self._db = duckdb.connect(":memory:", config=limits)
        self._db.execute("set timezone = 'UTC'")
        variables: dict[str, int | str] = {
            "cutoff_us": cutoff_us,
            "near_us": self._near_us,
            "window_messages": window_messages,
            "readings_topic": READINGS,
            "dead_letters_topic": DEAD_LETTERS,
        }
        for name, value in variables.items():
            self._db.execute(f"set variable {name} = {value!r}")
        self._db.execute(_QUERIES["schema"])
        self._insert("gateways", GATEWAY_ROWS, [(gateway,) for gateway in sorted(self._known)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()
        self._folder.cleanup()

    def load_tables(self, readings: Rows, dead_letters: Rows) -> None:
        """Take a snapshot of the two tables; may be called again with newer ones."""
        self._readings = readings
        names = set(readings.schema.names)
        self._columns = {f"${name}": column if column in names else "null" for name, column in _NEWER.items()}
        if self._is_deep:
            # These may be most rows of the table, so do not copy them.
            self._db.register("readings", readings)
        else:
            self._copy_near()
        self._db.register("dead_letters", dead_letters)
        self._db.execute(self._filled("views"))
        self._db.execute(_QUERIES["rows_at"])

    def _copy_near(self) -> None:
        """Copy the rows from near the window on: several queries read them, and the files may be many and large."""
        low = datetime.fromtimestamp(self._near_us / 1e6, UTC)
        near = (ds.field("date") >= low.date()) & (ds.field("received_at") >= _at(low))
        newer = [column for column in self._columns.values() if column != "null"]
        self._db.register("scanned", read_in_turn(self._dataset(), [*_OLDER, *_NAME, *_PLACE, *newer], near))
        self._db.execute("create or replace temp table readings as select * from scanned")
        self._db.unregister("scanned")

    def _dataset(self) -> ds.Dataset:
        return self._readings if isinstance(self._readings, ds.Dataset) else ds.dataset(self._readings)

    def add_erased(self, devices: Iterable[tuple[str, int]]) -> None:
        """Take devices that were erased: SHA-256 of the id, and until when (µs). Their messages count as before the erasure."""
        self._insert("erased", ERASED_ROWS, list(devices))

    def add_corrections(self, corrections: Iterable[Correction]) -> None:
        """Take all corrections, in place of earlier ones. Rows of a correction may be gone or differ from their records."""
        self._db.execute("delete from corrections")
        self._insert("corrections", CORRECTION_ROWS, list(corrections))

    def add_outcomes(self, batch: Iterable[LogRecord]) -> None:
        """Take outcome records of the audited range of `telemetry.outcomes`."""
        sums: dict[tuple[str, int, int, str | None], list[int]] = {}
        for record in batch:
            outcome = self._outcome(record)
            if outcome is None or not self._counted.add(outcome, record.timestamp_ms):
                continue
            for count in outcome.counts:
                if count.minute * MINUTE_US < self.cutoff_us:
                    continue
                found = sums.setdefault((outcome.gateway, outcome.epoch, count.minute, count.device), [0, 0])
                found[0] += count.accepted
                found[1] += sum(count.dead_lettered.values())
                self._received += count.received
                self._ignored += sum(count.ignored.values())
        self._insert("counted", COUNTED_ROWS, [(*name, *found) for name, found in sums.items()])

    def add_late_outcomes(self, batch: Iterable[LogRecord]) -> None:
        """Take outcome records outside of that range: they show which gateways are alive, and how far these have counted."""
        for record in batch:
            if (outcome := self._outcome(record)) is not None:
                self._counted.add_late(outcome, record.timestamp_ms)

    @property
    def unknown_gateways(self) -> set[str]:
        """Gateways that wrote records of the window, but no outcome."""
        return {gateway for gateway in self._gateways - self._known if not self._counted.knows(gateway)}

    def add_readings(self, batch: Iterable[LogRecord]) -> None:
        """Take records of `telemetry.readings`."""
        records: list[tuple[Any, ...]] = []
        readings: list[tuple[Any, ...]] = []
        for record in batch:
            try:
                message: ReadingRecord = decode_record(record.value or b"")
            except msgspec.DecodeError:
                self._foreign += 1
                continue
            if message.received_us >= self.cutoff_us:
                records.append(record_row(record, message))
                readings += reading_rows(record, message)
        self._take(records, readings)

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
                rows.append(dead_letter_row(record, letter))
        self._take(rows, [])

    def balance(self, landed: Mapping[str, Mapping[int, int]]) -> BalanceFigures:
        """Return the balance. `landed` is the next offset that Spark will land, by topic and partition; the rest is pending."""
        self._db.execute("delete from landed; delete from ranges; delete from lives; delete from openings")
        ends = [(topic, p, offset) for topic, parts in landed.items() for p, offset in parts.items()]
        self._insert("landed", LANDED_ROWS, ends)
        self._insert("ranges", RUN_ROWS, list(self._counted.runs()))
        self._insert("lives", LIFE_ROWS, list(self._counted.lives()))
        self._insert("openings", RUN_ROWS, list(self._counted.openings(self._window_messages, self._near_us)))
        self._db.execute(_QUERIES["here"])
        self._find_older()
        for name in ("states", "messages", "uncounted", "doubled", "swapped"):
            self._db.execute(_QUERIES[name])
        figures = self._figures()
        self._compare_counts(figures)
        return figures

    def _outcome(self, record: LogRecord) -> OutcomeRecord | None:
        try:
            return decode_outcome(record.value or b"")
        except msgspec.DecodeError:
            self._foreign += 1
            return None

    def _take(self, records: Sequence[tuple[Any, ...]], readings: Sequence[tuple[Any, ...]]) -> None:
        """Keep the records, and the readings of each record whose rows in the table differ from it."""
        if records:
            self._gateways |= {row[4] for row in records}
            self._db.register("batch_records", arrow_table(RECORD_ROWS, records))
            self._db.register("batch_readings", arrow_table(READING_ROWS, readings))
            self._db.execute(_QUERIES["take_records"])
            self._db.unregister("batch_records")
            self._db.unregister("batch_readings")

    def _find_older(self) -> None:
        """Read rows from before the window: originals of copies that were not found near it, and rows that may be copies.

        The search begins in the days for which the broker may have kept a copy. Only what is still missing is then looked for
        in the rest of the table.
        """
        self._db.execute(_QUERIES["older"])
        self._db.execute(_QUERIES["elsewhere"])
        far_us, day_us = max(0, self._near_us - self._horizon_us), max(0, self._near_us - _DAY_US)
        lost = {(device, name) for device, name in self._pairs(_QUERIES["unresolved"])}
        recent, old, low_us = set[tuple[str, str]](), set(lost), self._near_us
        for device, name, event_us in self._pairs(_QUERIES["suspects"]):
            if event_us is None or event_us - AHEAD_US < day_us:
                old.add((device, name))
            else:
                recent.add((device, name))
                low_us = min(low_us, event_us - AHEAD_US)
        self._fetch(recent - old, low_us, self._near_us)
        self._fetch(old, far_us, self._near_us)
        if lost:
            self._db.execute(_QUERIES["elsewhere"])
            self._fetch(set(self._pairs(_QUERIES["unresolved"])), 0, far_us)
        self._db.execute(_QUERIES["elsewhere"])
        replays = [(device, int(payload)) for device, payload in self._pairs(_QUERIES["unresolved_replays"])]
        if replays and "null" not in self._columns.values():
            self._fetch(replays, 0, self._near_us, by="payload_hash")
            self._db.execute(_QUERIES["elsewhere"])

    def _pairs(self, query: str) -> list[tuple[Any, ...]]:
        return self._db.execute(query).fetchall()

    def _filled(self, query: str) -> str:
        """Return a query with `null` in place of the columns that a table of an older version lacks."""
        text: str = _QUERIES[query]
        for name, column in self._columns.items():
            text = text.replace(name, column)
        return text

    def _fetch(
        self, pairs: Iterable[tuple[str, str | int]], low_us: int, high_us: int, *, by: str = "message_id"
    ) -> None:
        """Read the rows of these (device, `by`) that were received in a span; other files and row groups are skipped."""
        pairs = sorted(pairs)
        if not pairs or low_us >= high_us:
            return
        names = pa.table({"device": [d for d, _ in pairs], by: [m for _, m in pairs]})
        low, high = (datetime.fromtimestamp(us / 1e6, UTC) for us in (low_us, high_us))
        device, received = ds.field("device"), ds.field("received_at")
        when = (ds.field("date") >= low.date()) & (ds.field("date") <= high.date()) & (received >= _at(low))
        who = (device >= pairs[0][0]) & (device <= pairs[-1][0]) & device.isin(names["device"].unique())
        found = read_in_turn(
            self._dataset(),
            [*_OLDER, *_NAME, *(column for column in self._columns.values() if column != "null")],
            when & (received < _at(high)) & who & ds.field(by).isin(names[by].unique()),
        )
        self._db.register("pairs", names)
        self._db.register("fetched", found)
        self._db.execute(self._filled("take_older").replace("$by", by))
        self._db.unregister("fetched")
        self._db.unregister("pairs")

    def _figures(self) -> BalanceFigures:
        classes = dict(self._db.execute("select class, count(*) from messages group by class").fetchall())
        figures = BalanceFigures(
            received=self._received + self._one("select count(*) from messages where place <> 'counted'"),
            stored=classes.get("stored", 0),
            partial=self._one("select count(*) from messages where class = 'stored' and has_part"),
            dead_lettered=classes.get("dead_lettered", 0),
            ignored=self._ignored,
            duplicate=classes.get("duplicate", 0),
            unaccounted=sum(classes.get(name, 0) for name in _FAULTS),
            pending=self._one("select count(*) from messages where class = 'lost' and is_pending"),
            duplicate_rows=self._one("select coalesce(sum(extra), 0) from doubled"),
            order_violations=self._one("select count(*) from swapped"),
            foreign=self._foreign,
            altered=classes.get("altered", 0),
        )
        for name, shown in _SHOWN.items():
            if classes.get(name):
                figures.examples[shown] = self._rows(_QUERIES["show_messages"], [name])
        for name in ("duplicate_rows", "order_violations"):
            if getattr(figures, name):
                figures.examples[name] = self._rows(_QUERIES[f"show_{name}"])
        return figures

    def _compare_counts(self, figures: BalanceFigures) -> None:
        """Count as unaccounted: counted but without record, recorded but not counted, counted twice, and never counted."""
        holes = list(self._counted.holes())
        if holes:
            # Some of these messages have records, which are unaccounted already.
            missing = max(
                0, sum(run.messages for run in holes) - self._one("select count(*) from messages where class = 'hole'")
            )
            figures.unaccounted += missing
            figures.received += missing
            figures.examples["hole"] = [_shown(run, "received, but in no outcome record") for run in holes[:10]]
        elif records := self._rows(_QUERIES["show_messages"], ["hole"]):
            figures.examples["hole"] = records
        if self._counted.overlaps:
            figures.unaccounted += self._counted.overlaps
            figures.received += self._counted.overlaps
            figures.examples["overlap"] = [_shown(run, "counted twice") for run in self._counted.examples]
        rows = self._rows(_QUERIES["differing"])
        differing: dict[tuple[str, int], list[int]] = {}
        for row in rows:
            sums = differing.setdefault((row["gateway"], row["epoch"]), [0, 0])
            sums[0] += row["messages"]
            sums[1] += row["difference"]
        for name, count in self._counted.short().items():
            sums = differing.setdefault(name, [0, 0])
            sums[0] = max(sums[0], count)
        if differing:
            figures.unaccounted += sum(count for count, _ in differing.values())
            figures.examples["count_differs"] = [
                {"gateway": gateway, "epoch": epoch, "messages": count, "what": _what(difference)}
                for (gateway, epoch), (count, difference) in list(differing.items())[:10]
            ]

    def _insert(self, table: str, schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            self._db.register("batch", arrow_table(schema, rows))
            self._db.table("batch").insert_into(table)
            self._db.unregister("batch")

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        cursor = self._db.execute(query, list(values))
        names = [column[0] for column in cursor.description or []]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _one(self, query: str) -> int:
        row = self._db.execute(query).fetchone()
        return int(row[0]) if row else 0


def _at(moment: datetime) -> pa.Scalar:
    return pa.scalar(moment, pa.timestamp("us", "UTC"))


def _shown(run: NumberRun, what: str) -> dict[str, Any]:
    return {"gateway": run.gateway, "epoch": run.epoch, "from": run.first, "to": run.upto, "what": what}


def _what(difference: int) -> str:
    if difference:
        return "counted by the gateway, but in no topic" if difference > 0 else "in a topic, but not counted"
    return "counted differently: another device, minute, outcome or number of messages"

"""`bench audit`: cost of an audit of ten minutes, with a small table and with a large one.

The rows of the window are real. The other rows are one file of a million rows, which is linked into the days before under many
names; in the log each link has the times of its own day. So a table of 100 million rows needs the disk space of one million.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from deploy.balance import MINUTE_US, BalanceFigures, MessageBalance
from deploy.bench.environment import hardware, hardware_line, versions
from deploy.bench.temporary import own_folder
from ingest.contract.outcome import Count, OutcomeRecord, encode_outcome
from ingest.contract.reading import Reading, ReadingRecord, encode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.log import LogRecord
from lakehouse.dataset import dataset_of
from lakehouse.paths import log_name

__all__ = ["measure_audit", "render_audit"]

FILE_ROWS: Final = 1_000_000
FILES_A_DAY: Final = 8
WINDOW_MINUTES: Final = 10
DEVICES: Final = 1000
LATE_EVERY: Final = 50
COPY_EVERY: Final = 100
BLOCK: Final = 500
_EPOCH: Final = 1_700_000_000_000
_TIME: Final = pa.timestamp("us", "UTC")
_READINGS: Final = pa.schema(
    [
        pa.field("device", pa.string()), pa.field("metric", pa.string()), pa.field("index", pa.int32()),
        pa.field("message_id", pa.string()), pa.field("value", pa.float64()), pa.field("text", pa.string()),
        pa.field("unit", pa.string()), pa.field("event_time", _TIME), pa.field("device_time", _TIME),
        pa.field("flags", pa.list_(pa.string())), pa.field("partition", pa.int32()), pa.field("offset", pa.int64()),
        pa.field("gateway_epoch", pa.int64()), pa.field("message_number", pa.int64()),
        pa.field("received_at", _TIME, nullable=False), pa.field("landed_at", _TIME, nullable=False),
        pa.field("date", pa.date32()),
    ]
)  # fmt: skip
_DEAD_LETTERS: Final = pa.schema(
    [
        ("partition", pa.int32()), ("offset", pa.int64()), ("gateway_epoch", pa.int64()), ("message_number", pa.int64()),
        ("received_at", _TIME), ("date", pa.date32()), ("source_topic", pa.string()), ("stage", pa.string()),
        ("reason", pa.string()),
    ]
)  # fmt: skip


def measure_audit(
    *, rows: tuple[int, ...], messages: int, runs: int, tell: Callable[[str], object] = lambda text: None
) -> dict[str, Any]:
    """Audit the same window next to tables of each size, in turn; the result as it is printed with --json.

    Args:
        rows: of each table, before the window; whole millions.
        messages: of the window; some are late, some come twice.
        runs: of each; the medians are shown.
        tell: gets a sentence for each step.
    """
    machine = hardware()
    start = (datetime.now(UTC) - timedelta(minutes=WINDOW_MINUTES)).replace(second=0, microsecond=0)
    records, outcomes, stored = _window(start, messages)
    cells: dict[int, list[float]] = {size: [] for size in rows}
    balanced = True
    with own_folder() as folder:
        for size in rows:
            tell(f"Adding {size:,} rows to the {len(stored):,} of the audit.")
            _write(folder / str(size), stored, start, size)
        for _ in range(runs):
            for size in rows:
                began = time.process_time()
                figures = _strike(str(folder / str(size)), start, records, outcomes)
                cells[size].append(time.process_time() - began)
                balanced = balanced and not (figures.unaccounted or figures.duplicate_rows or figures.order_violations)
    medians = {size: statistics.median(times) for size, times in cells.items()}
    return {
        "messages": messages,
        "balanced": balanced,
        "cells": [{"rows": size, "cpu_seconds": round(median, 3)} for size, median in medians.items()],
        "ratio": round(medians[rows[-1]] / medians[rows[0]], 2),
        "hardware": machine,
        "versions": versions(),
    }


def render_audit(result: dict[str, Any]) -> str:
    """Render the result as a table for people."""
    lines = [f"audit of {WINDOW_MINUTES} minutes, {result['messages']:,} messages"]
    lines += [f"  next to {cell['rows']:>13,} rows: {cell['cpu_seconds']:.2f} s of CPU" for cell in result["cells"]]
    lines += [f"  ratio {result['ratio']:.2f}; {'balanced' if result['balanced'] else 'NOT balanced'}"]
    return "\n".join([*lines, hardware_line(result["hardware"])])


def _window(start: datetime, messages: int) -> tuple[list[LogRecord], list[LogRecord], list[dict[str, Any]]]:
    """Kafka's records, the outcomes, and the rows that the landing made of them: copies have none."""
    start_us, records, rows = int(start.timestamp()) * 1_000_000, list[LogRecord](), list[dict[str, Any]]()
    outcomes: list[OutcomeRecord] = []
    step = WINDOW_MINUTES * MINUTE_US // (messages + 1)
    for place in range(messages):
        # A copy repeats what came one round of the devices before.
        said = place - DEVICES - 1 if place % COPY_EVERY == 0 and place > DEVICES else place
        at_us, device = start_us + place * step, f"device-{said % DEVICES:05d}"
        sent_us = start_us + said * step - (3_000_000_000 if said % LATE_EVERY == 7 else 20_000)
        reading = Reading("temperature", 20.0 + said % 100 / 10, unit="°C", time_us=sent_us)
        message = ReadingRecord(
            1,
            "gw-1",
            _EPOCH,
            place + 1,
            at_us,
            f"tidegate/v1/{device}/readings",
            device,
            [reading],
            message_id=f"bs:1:{said}",
        )
        records.append(LogRecord(0, place, at_us // 1000, device.encode(), encode_record(message)))
        if said == place:
            rows.append(_row(message, place))
        if not outcomes or place - outcomes[-1].first + 1 >= BLOCK:
            outcomes.append(OutcomeRecord(1, "gw-1", _EPOCH, place + 1, place, [], began=1))
        _count(outcomes[-1], device, at_us // MINUTE_US)
    encoded = [LogRecord(0, i, start_us // 1000, b"gw-1", encode_outcome(each)) for i, each in enumerate(outcomes)]
    return records, encoded, rows


def _count(outcome: OutcomeRecord, device: str, minute: int) -> None:
    outcome.upto += 1
    outcome.counts.append(Count(minute, 1, device, 1))


def _row(message: ReadingRecord, offset: int) -> dict[str, Any]:
    at, reading = datetime.fromtimestamp(message.received_us / 1e6, UTC), message.readings[0]
    sent = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=reading.time_us or 0)
    return {
        "device": message.device, "metric": reading.metric, "index": 0, "message_id": message.message_id,
        "value": reading.value, "unit": reading.unit, "event_time": sent, "device_time": sent, "flags": [],
        "partition": 0, "offset": offset, "gateway_epoch": message.epoch, "message_number": message.number,
        "received_at": at, "landed_at": at, "date": at.date(),
    }  # fmt: skip


def _write(root: Path, stored: list[dict[str, Any]], start: datetime, size: int) -> None:
    readings, made = str(root / "readings"), str(root / "made")
    write_deltalake(readings, pa.Table.from_pylist(stored, _READINGS), partition_by=["date"])
    write_deltalake(made, _old_rows(start.date()), partition_by=["date"])
    [path] = (root / "made").glob("date=*/*.parquet")
    _link(root / "readings", path, _slots(start, size // FILE_ROWS))


def _old_rows(day: date) -> pa.Table:
    at = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    places = range(FILE_ROWS)
    devices = [f"device-{place * DEVICES // FILE_ROWS:05d}" for place in places]
    times = pa.array([at] * FILE_ROWS, _TIME)
    values: dict[str, Any] = {
        "device": devices, "metric": ["temperature"] * FILE_ROWS, "index": [0] * FILE_ROWS,
        "message_id": [f"bs:0:{place}" for place in places], "value": [float(place) for place in places],
        "text": [None] * FILE_ROWS, "unit": ["°C"] * FILE_ROWS, "event_time": times, "device_time": times,
        "flags": [[]] * FILE_ROWS, "partition": [1] * FILE_ROWS, "offset": list(places),
        "gateway_epoch": [1] * FILE_ROWS, "message_number": list(places), "received_at": times, "landed_at": times,
        "date": [day] * FILE_ROWS,
    }  # fmt: skip
    return pa.table(values, schema=_READINGS)


def _slots(start: datetime, files: int) -> Iterator[tuple[datetime, datetime]]:
    """Yield one stretch of time for each file, from the window backwards."""
    length, end = timedelta(days=1) / FILES_A_DAY, start - timedelta(seconds=1)
    for place in range(files):
        yield end - length * (place + 1), end - length * place


def _link(table: Path, path: Path, slots: Iterator[tuple[datetime, datetime]]) -> None:
    size, lines = path.stat().st_size, []
    for place, (low, high) in enumerate(slots):
        name = f"date={low.date()}/linked-{place}.parquet"
        (table / name).parent.mkdir(exist_ok=True)
        os.link(path, table / name)
        bounds = {name: f"{at:%Y-%m-%dT%H:%M:%S.000Z}" for name, at in (("low", low), ("high", high))}
        times = ("received_at", "landed_at", "event_time")
        stats = {
            "numRecords": FILE_ROWS,
            "minValues": dict.fromkeys(times, bounds["low"]),
            "maxValues": dict.fromkeys(times, bounds["high"]),
            "nullCount": dict.fromkeys(times, 0),
        }
        add = {
            "path": name, "partitionValues": {"date": str(low.date())}, "size": size, "dataChange": True,
            "modificationTime": int(high.timestamp() * 1000), "stats": json.dumps(stats),
        }  # fmt: skip
        lines.append(json.dumps({"add": add}))
    version = DeltaTable(str(table)).version() + 1
    (table / log_name(version)).write_text("\n".join(lines) + "\n", "utf-8")


def _strike(root: str, start: datetime, records: list[LogRecord], outcomes: list[LogRecord]) -> BalanceFigures:
    with MessageBalance(int(start.timestamp()) * 1_000_000, from_the_start=True) as books:
        books.load_tables(dataset_of(DeltaTable(f"{root}/readings")), _DEAD_LETTERS.empty_table())
        books.add_outcomes(outcomes)
        for place in range(0, len(records), 10_000):
            books.add_readings(records[place : place + 10_000])
        return books.balance({READINGS: {0: len(records)}, DEAD_LETTERS: {0: 0}})

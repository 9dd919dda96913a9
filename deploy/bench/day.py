"""`bench day`: a table after a day of landing at three commits per second, each with a small file, which is written beforehand.

It measures the table, the time of a snapshot, and a query of the last hour, without maintenance and after it.
"""

import json
import os
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deploy.bench.environment import hardware, versions
from deploy.bench.temporary import own_folder
from deploy.local.artifacts import fetch_jars
from deploy.requests import run_request
from deploy.settings import load_settings
from lakehouse.create import create_table
from lakehouse.maintenance import table_state
from lakehouse.paths import log_name, table_uri
from lakehouse.requests import Request
from lakehouse.tables import READINGS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["day_rows", "measure_day", "reader_figures", "render_day", "write_day"]

COMMITS_PER_SECOND: Final = 3.0
_LAST_HOUR: Final = "select count(*), avg(value) from readings where received_at > now() - interval 1 hour"
CHECKPOINT_COMMITS: Final = 30_000
"""A stream without maintenance has no checkpoint at all; without any, only making the table would take longer."""
_BLOCK: Final = 600
"""Commits whose rows are made in one go."""


def measure_day(
    *, commits: int, rows_per_commit: int, devices: int = 100, tell: Callable[[str], object] = lambda text: None
) -> dict[str, Any]:
    """Make the day, measure, maintain, measure again; the result as it is printed with --json."""
    machine = hardware()
    fetch_jars("spark", lambda text: None)
    with own_folder() as folder:
        root = str(folder / "tables")
        overrides = {"lake.root": root, "stream.checkpoint": str(folder / "checkpoint"), "stream.driver_memory": "1g"}
        tell(f"Writing {commits} commits.")
        write_day(root, commits=commits, rows_per_commit=rows_per_commit, devices=devices)
        before = reader_figures(root)
        tell("Maintaining.")
        settings = load_settings(overrides=overrides, environ={})
        kept = run_request(settings, Request("maintain", {"table": READINGS.name, "full": True}), tell=tell)
        after = reader_figures(root)
    return {
        "commits": commits,
        "rows": commits * rows_per_commit,
        "before": before,
        "after": after,
        "maintain": kept,
        "hardware": machine,
        "versions": versions(),
    }


def reader_figures(root: str) -> dict[str, float]:
    """Measure the reader's figures."""
    from lakehouse.query import run_sql

    state = table_state(root, READINGS.name)
    opened = statistics.median(table_state(root, READINGS.name).load_seconds for _ in range(3))
    times = []
    for _ in range(2):
        began = time.perf_counter()
        run_sql(root, _LAST_HOUR)
        times.append(time.perf_counter() - began)
    return {
        "files": state.file_count,
        "megabytes": round(state.bytes / 1e6, 1),
        "log_files": sum(1 for _ in (Path(root) / READINGS.name / "_delta_log").iterdir()),
        "open_ms": round(opened * 1000, 1),
        "last_hour_ms": round(min(times) * 1000, 1),
    }


def render_day(result: dict[str, Any]) -> str:
    """Render the result as a table for people."""
    lines = [f"{result['commits']} commits, {result['rows']} rows; maintenance took {result['maintain']['seconds']} s"]
    lines.append(f"{'':8} {'files':>8} {'MB':>8} {'log files':>10} {'open':>10} {'last hour':>12}")
    for name in ("before", "after"):
        f = result[name]
        shown = (
            f"{f['files']:>8} {f['megabytes']:>8} {f['log_files']:>10} {f['open_ms']:>7} ms {f['last_hour_ms']:>9} ms"
        )
        lines.append(f"{name:8} {shown}")
    return "\n".join(lines)


def write_day(
    root: str, *, commits: int, rows_per_commit: int, devices: int, end: datetime | None = None, log_hours: int = 24
) -> None:
    """Make `readings` with so many commits, the newest of them at `end`; files and log bear the times of their commits."""
    from deltalake import DeltaTable

    create_table(root, READINGS, log_retention_hours=log_hours)
    folder = Path(table_uri(root, READINGS.name))
    begin = (end or datetime.now(UTC)) - timedelta(seconds=commits / COMMITS_PER_SECOND)
    for first in range(0, commits, _BLOCK):
        count = min(_BLOCK, commits - first)
        rows = day_rows(begin, first, count, rows_per_commit, devices)
        for number in range(count):
            at = begin + timedelta(seconds=(first + number) / COMMITS_PER_SECOND)
            part = rows.slice(number * rows_per_commit, rows_per_commit)
            _commit(folder, first + number + 1, at, part)
        if (first + count) % CHECKPOINT_COMMITS == 0:
            DeltaTable(str(folder)).create_checkpoint()
    DeltaTable(str(folder)).create_checkpoint()


def day_rows(begin: datetime, first: int, commits: int, each: int, devices: int) -> "pa.Table":
    """The rows of some commits, in the order of arrival: one reading a message, spread evenly over the commit's time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    number = pa.array(range(first * each, (first + commits) * each), pa.int64())
    step = 1_000_000 / (COMMITS_PER_SECOND * each)
    start = int(begin.timestamp() * 1_000_000)
    micros = pc.add(pc.cast(pc.multiply(pc.cast(number, pa.float64()), step), pa.int64(), safe=False), start)
    when = pc.cast(micros, pa.timestamp("us", tz="UTC"))
    of = [int(n) % devices for n in number.to_pylist()]
    seq = pc.divide(number, devices)
    text = pa.string()

    def null(kind: Any) -> Any:
        return pa.nulls(len(number), kind)

    def constant(value: Any, kind: Any) -> Any:
        return pa.repeat(pa.scalar(value, kind), len(number))

    columns = {
        "device": pa.array([f"device-{n:05d}" for n in of]),
        "metric": constant("temperature", text),
        "value": pc.add(20.0, pc.sin(pc.cast(seq, pa.float64()))),
        "text": null(text),
        "unit": constant("°C", text),
        "event_time": when,
        "device_time": when,
        "time_source": constant("device", text),
        "received_at": when,
        "kafka_time": when,
        "landed_at": when,
        "message_id": pc.binary_join_element_wise(constant("bs:1", text), pc.cast(seq, text), ":"),
        "boot": constant(1, pa.int64()),
        "seq": seq,
        "index": constant(0, pa.int32()),
        "flags": pa.array([[]] * len(number), pa.list_(text)),
        "tags": null(pa.map_(text, text)),
        "mqtt_topic": constant("tidegate/v1/device/readings", text),
        "partition": pa.array([n % 2 for n in of], pa.int32()),
        "offset": number,
        "gateway": constant("gateway", text),
        "gateway_epoch": constant(1, pa.int64()),
        "message_number": number,
        "trace": null(text),
        "payload_hash": number,
    }
    return pa.table(columns)


def _commit(folder: Path, version: int, at: datetime, rows: "pa.Table") -> None:
    """One data file (two at midnight would be one too: the day is that of the commit) and its file of the log."""
    import pyarrow.parquet as pq

    day = f"date={at:%Y-%m-%d}"
    path = f"{day}/part-{version:08d}.snappy.parquet"
    (folder / day).mkdir(exist_ok=True)
    pq.write_table(rows, folder / path)
    bounds: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}}
    for name in READINGS.statistics:
        column = rows[name].to_pylist()
        for key, value in (("minValues", min(column)), ("maxValues", max(column))):
            bounds[key][name] = (
                f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z" if isinstance(value, datetime) else value
            )
    millis, size = int(at.timestamp() * 1000), (folder / path).stat().st_size
    stats = {"numRecords": rows.num_rows, **bounds, "nullCount": {name: 0 for name in READINGS.statistics}}
    add = {
        "path": path,
        "partitionValues": {"date": f"{at:%Y-%m-%d}"},
        "size": size,
        "modificationTime": millis,
        "dataChange": True,
        "stats": json.dumps(stats),
    }
    info = {
        "timestamp": millis,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": '["date"]'},
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "engineInfo": "tidegate bench day",
    }
    log = folder / log_name(version)
    log.write_text(f"{json.dumps({'commitInfo': info})}\n{json.dumps({'add': add})}\n", encoding="utf-8")
    os.utime(log, (at.timestamp(), at.timestamp()))
    os.utime(folder / path, (at.timestamp(), at.timestamp()))

"""A day of landing, written beforehand: as many commits as three a second make, each with a small file of its own.

What a table looks like after that day without maintenance, how long a snapshot and a query of the last hour take, and the
same after maintenance.
"""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakehouse.create import create_table, table_uri
from lakehouse.tables import READINGS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["write_day"]

COMMITS_PER_SECOND: Final = 3.0
_BLOCK: Final = 600
"""Commits whose rows are made in one go."""


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
        rows = _rows(begin, first, count, rows_per_commit, devices)
        for number in range(count):
            at = begin + timedelta(seconds=(first + number) / COMMITS_PER_SECOND)
            part = rows.slice(number * rows_per_commit, rows_per_commit)
            _commit(folder, first + number + 1, at, part)
    DeltaTable(str(folder)).create_checkpoint()


def _rows(begin: datetime, first: int, commits: int, each: int, devices: int) -> "pa.Table":
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
    log = folder / "_delta_log" / f"{version:020d}.json"
    log.write_text(f"{json.dumps({'commitInfo': info})}\n{json.dumps({'add': add})}\n", encoding="utf-8")
    os.utime(log, (at.timestamp(), at.timestamp()))
    os.utime(folder / path, (at.timestamp(), at.timestamp()))

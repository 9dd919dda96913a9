"""`bench layout`: orders of rows in the files of a day, and their effect on the two common queries.

The same rows are written in each layout: in the order of arrival, sorted by device (as maintenance does with a past day), the
same with small row groups, and Z-ordered by Delta. All are partitioned by date. Delta's liquid clustering excludes partitions
and needs a table feature that not every reader has.
"""

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from deploy.bench.environment import hardware, versions
from deploy.bench.temporary import own_folder
from deploy.local.artifacts import fetch_jars, spark_jars
from deploy.local.java import find_java
from lakehouse.create import create_table
from lakehouse.jvm import JvmOptions
from lakehouse.paths import table_uri
from lakehouse.query import run_sql
from lakehouse.session import open_session
from lakehouse.tables import READINGS

__all__ = ["measure_layouts", "render_layouts"]

DAYS: Final = 30
QUERY_RUNS: Final = 3
SMALL_GROUP: Final = "2097152"
ZORDER_FILE: Final = "4194304"

LAYOUTS: Final = ("arrival", "device", "device_small_groups", "zorder")

_COLUMNS: Final = (
    "concat('device-', lpad(cast(id % {devices} as string), 5, '0')) as device",
    "'temperature' as metric",
    "round(20 + 5 * sin(id / {devices} / 500) + rand(7), 2) as value",
    "'°C' as unit",
    "timestamp_micros({start} + id * {step}) as event_time",
    "timestamp_micros({start} + id * {step}) as device_time",
    "'device' as time_source",
    "timestamp_micros({start} + id * {step}) as received_at",
    "timestamp_micros({start} + id * {step}) as kafka_time",
    "timestamp_micros({start} + id * {step}) as landed_at",
    "concat('bs:1:', cast(id div {devices} as string)) as message_id",
    "1L as boot",
    "id div {devices} as seq",
    "0 as index",
    "cast(array() as array<string>) as flags",
    "concat('tidegate/v1/device-', cast(id % {devices} as string), '/readings') as mqtt_topic",
    "cast(id % {devices} % 6 as int) as partition",
    "id as offset",
    "'gateway' as gateway",
    "1L as gateway_epoch",
    "id as message_number",
    "to_date(timestamp_micros({start} + id * {step})) as date",
)

_QUERIES: Final = {
    "device_month": "select count(*) n, avg(value) from readings where device = '{device}'",
    "device_day": "select count(*) n, avg(value) from readings where device = '{device}' and date = '{day}'",
    "all_hour": "select count(*) n, avg(value) from readings where received_at >= '{hour}' and received_at < '{next}'",
}


def measure_layouts(*, rows: int, devices: int, tell: Callable[[str], object] = lambda text: None) -> dict[str, Any]:
    """Write the rows in each layout and ask; the result as it is printed with --json.

    Args:
        rows: evenly over 30 days.
        devices: evenly over the rows.
        tell: gets a sentence for each step.
    """
    machine = hardware()
    fetch_jars("spark", lambda text: None)
    java = find_java()
    first = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS)
    found: dict[str, dict[str, float]] = {}
    with own_folder() as folder:
        jvm = JvmOptions(java.home, tuple(spark_jars()), folder / "logs", heap="3g", flags=tuple(java.gc_options))
        session = open_session(jvm, app_name="tidegate-bench-layout")
        try:
            for layout in LAYOUTS:
                tell(f"Writing {rows} rows in the layout {layout}.")
                began = time.perf_counter()
                _write(session.spark, folder / layout, layout, rows=rows, devices=devices, first=first)
                found[layout] = {"write_seconds": round(time.perf_counter() - began, 1)}
        finally:
            session.close()
        for layout in LAYOUTS:
            tell(f"Querying {layout}.")
            found[layout] |= _ask(str(folder / layout), devices, first)
    cells = [{"layout": layout, **figures} for layout, figures in found.items()]
    return {"rows": rows, "devices": devices, "days": DAYS, "cells": cells, "hardware": machine, "versions": versions()}


def _write(spark: Any, root: Path, layout: str, *, rows: int, devices: int, first: datetime) -> None:
    create_table(str(root), READINGS, log_retention_hours=24)
    start = int(first.timestamp() * 1_000_000)
    values = {"devices": devices, "start": start, "step": DAYS * 86_400_000_000 // rows}
    # A task is a day: written as it is, it is one file in the order of arrival.
    made = spark.range(0, rows, 1, DAYS).selectExpr(*(column.format(**values) for column in _COLUMNS))
    if layout.startswith("device"):
        made = made.sortWithinPartitions("date", "device", "partition", "offset")
    spark.conf.set("parquet.block.size", SMALL_GROUP if layout == "device_small_groups" else str(128 * 1024**2))
    uri = table_uri(str(root), READINGS.name)
    made.write.format("delta").mode("append").save(uri)
    if layout == "zorder":
        spark.conf.set("spark.databricks.delta.optimize.maxFileSize", ZORDER_FILE)
        spark.sql(f"OPTIMIZE delta.`{uri}` ZORDER BY (device, event_time)").collect()


def _ask(root: str, devices: int, first: datetime) -> dict[str, float]:
    from deltalake import DeltaTable

    files = DeltaTable(table_uri(root, READINGS.name)).get_add_actions(flatten=True)
    sizes = files["size_bytes"].to_pylist()
    figures: dict[str, float] = {"files": len(sizes), "megabytes": round(sum(sizes) / 1e6, 1)}
    hour = first + timedelta(days=DAYS - 2, hours=12)
    values = {
        "device": f"device-{devices // 3:05d}",
        "day": hour.date(),
        "hour": hour.isoformat(),
        "next": (hour + timedelta(hours=1)).isoformat(),
    }
    for name, text in _QUERIES.items():
        times = []
        for _ in range(QUERY_RUNS):
            began = time.perf_counter()
            run_sql(root, text.format(**values))
            times.append(time.perf_counter() - began)
        figures[f"{name}_ms"] = round(statistics.median(times) * 1000, 1)
    return figures


def render_layouts(result: dict[str, Any]) -> str:
    """Render the result as a table for people."""
    lines = [f"{result['rows']} rows of {result['devices']} devices over {result['days']} days"]
    lines.append(f"{'layout':20} {'files':>6} {'MB':>8} {'device month':>13} {'device day':>11} {'all, 1 hour':>12}")
    lines += [
        f"{c['layout']:20} {c['files']:>6} {c['megabytes']:>8} {c['device_month_ms']:>10} ms {c['device_day_ms']:>8} ms "
        f"{c['all_hour_ms']:>9} ms"
        for c in result["cells"]
    ]
    return "\n".join(lines)

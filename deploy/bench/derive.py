"""`bench derive`: seconds of a pass over the rollups, for fleets of several sizes in which each device sends once a minute.

A pass writes the open slices again, so it grows with the devices and with the minutes of the hour. The hour is nearly full here.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from deploy.bench.day import COMMITS_PER_SECOND, day_rows
from deploy.bench.environment import hardware, hardware_line, versions
from deploy.bench.temporary import own_folder
from deploy.local.artifacts import fetch_jars, spark_jars
from deploy.local.java import find_java
from ingest.kafka_settings import KafkaSettings
from lakehouse.changes import newest_version, read_changes
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES, ROLLUPS
from lakehouse.jvm import JvmOptions
from lakehouse.lake_settings import LakeSettings
from lakehouse.paths import table_uri
from lakehouse.session import LakeSession, open_session
from lakehouse.tables import READINGS
from monitoring.exporter import CollectorRegistry
from monitoring.metrics.stream import StreamMetrics
from streaming.kafka_source import LandedTopics
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COMMITS", "measure_derive", "measure_passes", "render_derive"]

EVERY_SECONDS: Final = 60
COMMITS: Final = int(EVERY_SECONDS * COMMITS_PER_SECOND)
"""Commits in which each device has one reading."""
FULL_MINUTES: Final = 50
WARM_PASSES: Final = 3
"""Passes before the measured ones: Java compiles meanwhile."""
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)


def measure_derive(
    *, devices: Sequence[int], passes: int, tell: Callable[[str], object] = lambda text: None
) -> dict[str, Any]:
    """Measure each fleet in one Spark session; return the result as --json prints it.

    Args:
        devices: sizes of fleets, each a multiple of `COMMITS`, in ascending order.
        passes: measured passes of each; the result has their medians.
        tell: gets a sentence for each step.
    """
    machine = hardware()
    fetch_jars("spark", lambda text: None)
    java, settings = find_java(), StreamSettings()
    cells = []
    with own_folder() as folder:
        options = JvmOptions(
            java.home, tuple(spark_jars()), folder / "logs", heap=settings.driver_memory, flags=tuple(java.gc_options)
        )
        session = open_session(options, master=settings.master, app_name="tidegate-bench-derive")
        try:
            processes = [psutil.Process(), psutil.Process(session.jvm.process.pid)]
            for count in devices:
                tell(f"Measuring passes for {count:,} devices.")
                root = folder / str(count)
                cells.append(measure_passes(session, root, devices=count, passes=passes, processes=processes))
        finally:
            session.close()
    return {
        "seconds_between_passes": settings.derive_seconds,
        "cells": cells,
        "hardware": machine,
        "versions": versions(),
    }


def measure_passes(
    session: LakeSession, root: Path, *, devices: int, passes: int, processes: Sequence[psutil.Process],
    minutes: int = FULL_MINUTES,
) -> dict[str, float]:  # fmt: skip
    """Fill new tables with minutes of readings, and measure passes that each take in the readings since the last one.

    Returns:
        `devices`, `minutes`; medians of the measured passes: `rows_written`, `pass_seconds`, `cpu_seconds`; from these
        `rows_per_second` and `cpu_us_per_row`; and `load_1m` at the end.
    """
    from streaming.derive.rollups import RollupDerivation

    settings = StreamSettings()
    ensure_tables(str(root), ALL_TABLES.values(), log_retention_hours=24)
    metrics = StreamMetrics(CollectorRegistry(), query="bench", tables=ALL_TABLES, topics=("readings", "dead-letters"))
    lake = LakeSettings(root=str(root))
    writer = WriterContext(session.spark, KafkaSettings(), settings, lake, metrics, LandedTopics())
    at, each, step = minutes * COMMITS, devices // COMMITS, round(settings.derive_seconds * COMMITS_PER_SECOND)
    _append(str(root), day_rows(BEGIN, 0, at, each, devices))

    def now() -> float:
        return (BEGIN + timedelta(seconds=at / COMMITS_PER_SECOND)).timestamp()

    derivation = RollupDerivation(writer, clock=now)
    derivation.run()
    found: list[tuple[float, float, float]] = []
    for _ in range(WARM_PASSES + passes):
        _append(str(root), day_rows(BEGIN, at, step, each, devices))
        at += step
        before = {name: newest_version(str(root), name) for name in ROLLUPS}
        began, cpu = time.perf_counter(), _cpu_seconds(processes)
        derivation.run()
        seconds, spent = time.perf_counter() - began, _cpu_seconds(processes) - cpu
        found.append((float(_rows_written(str(root), before)), seconds, spent))
    rows, seconds, spent = (statistics.median(column) for column in zip(*found[WARM_PASSES:], strict=True))
    return {
        "devices": devices,
        "minutes": minutes,
        "rows_written": rows,
        "pass_seconds": round(seconds, 2),
        "cpu_seconds": round(spent, 2),
        "rows_per_second": round(rows / seconds),
        "cpu_us_per_row": round(spent / rows * 1e6, 2),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def render_derive(result: dict[str, Any]) -> str:
    """Render the result as a table for people."""
    lines = [
        f"Passes over the rollups, one reading a minute of each device; pause {result['seconds_between_passes']:g} s"
    ]
    lines.append(f"{'devices':>9} {'rows written':>13} {'pass':>9} {'CPU':>9} {'rows/s':>9} {'CPU a row':>10}")
    lines += [
        f"{c['devices']:>9,} {c['rows_written']:>13,.0f} {c['pass_seconds']:>7.2f} s {c['cpu_seconds']:>7.2f} s "
        f"{c['rows_per_second']:>9,} {c['cpu_us_per_row']:>7.2f} µs"
        for c in result["cells"]
    ]
    return "\n".join([*lines, hardware_line(result["hardware"])])


def _append(root: str, rows: "pa.Table") -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import write_deltalake

    dated = rows.append_column("date", pc.cast(rows["received_at"], pa.date32()))
    write_deltalake(table_uri(root, READINGS.name), dated, mode="append", schema_mode="merge")


def _rows_written(root: str, before: dict[str, int]) -> int:
    return sum(
        file.rows or 0
        for name, version in before.items()
        for change in read_changes(root, name, after=version)
        for file in change.added
    )


def _cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)

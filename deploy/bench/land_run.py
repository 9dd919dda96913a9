"""Landing process of `bench land`: it lands all records of a topic into new tables, several times in one Spark session.

It reads a plan as one line of JSON and prints one line of JSON per run. The first run is the session's first work without a
warm-up, as after a stop of the stream. Every run has its own tables and checkpoint, and the product's landing.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from deploy.local.artifacts import spark_jars
from deploy.local.java import find_java
from ingest.contract.errors import FatalError
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.kafka_settings import KafkaSettings
from lakehouse.catalog import list_tables
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.jvm import JvmOptions
from lakehouse.session import LakeSession, open_session
from monitoring.exporter import CollectorRegistry
from monitoring.metrics.stream import StreamMetrics
from streaming.dedup_index import DedupIndex
from streaming.kafka_source import LandedTopics
from streaming.landing_progress import LandingProgress
from streaming.start_landing import LAND, start_landing
from streaming.stream_settings import StreamSettings

__all__ = ["CatchUpPlan"]

SAMPLE_SECONDS: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class CatchUpPlan:
    """`runs` landings of everything in Kafka into folders under `folder`; `stream` are settings of the landing."""

    bootstrap_servers: str
    folder: str
    runs: int
    stream: dict[str, Any]


def main() -> None:
    """One plan from standard input."""
    plan = CatchUpPlan(**json.loads(sys.stdin.readline()))
    settings = StreamSettings(**plan.stream)
    java = find_java()
    options = JvmOptions(
        java.home, tuple(spark_jars()), Path(plan.folder), heap=settings.driver_memory, flags=tuple(java.gc_options)
    )
    session = open_session(options, master=settings.master, app_name="tidegate-bench-land", extra=settings.extra)
    try:
        for number in range(plan.runs):
            sys.stdout.write(json.dumps(_run(session, plan, settings, number)) + "\n")
            sys.stdout.flush()
    finally:
        session.close()


def _run(session: LakeSession, plan: CatchUpPlan, settings: StreamSettings, number: int) -> dict[str, Any]:
    root = str(Path(plan.folder).absolute() / f"run-{number}")
    ensure_tables(root, ALL_TABLES.values(), log_retention_hours=24)
    metrics = StreamMetrics(CollectorRegistry(), query=LAND, tables=ALL_TABLES, topics=(READINGS, DEAD_LETTERS))
    seen = DedupIndex(Path(root) / "_seen.parquet")
    seen.load(root, horizon_days=settings.horizon_days)
    progress = LandingProgress(metrics, LAND)
    processes = [psutil.Process(), psutil.Process(session.jvm.process.pid)]
    with _peak_memory(processes) as peak:
        began, cpu = time.perf_counter(), _cpu_seconds(processes)
        land = start_landing(
            session.spark, root, KafkaSettings(bootstrap_servers=plan.bootstrap_servers),
            settings.model_copy(update={"checkpoint": f"{root}-checkpoint"}), seen, progress, lambda offsets: None,
            LandedTopics(), available_now=True,
        )  # fmt: skip
        land.query.awaitTermination()
        seconds = time.perf_counter() - began
        spent = [now - then for now, then in zip(_cpu_seconds(processes), cpu, strict=True)]
        land.landing.close()
    if land.landing.failure is not None or land.query.exception() is not None:
        message = f"the landing failed: {land.landing.failure or land.query.exception()}"
        raise FatalError(message)
    rows = next(table.rows for table in list_tables(root) if table.name == "readings")
    return {
        "rows": rows,
        "seconds": round(seconds, 2),
        "rows_per_second": round(rows / seconds),
        "cpu_us_per_row": round(sum(spent) / rows * 1e6, 2),
        "python_us_per_row": round(spent[0] / rows * 1e6, 2),
        "peak_mb": peak[0] // 1024**2,
        "batches": progress.batches,
        "load_1m": round(os.getloadavg()[0], 2),
    }


def _cpu_seconds(processes: list[psutil.Process]) -> list[float]:
    return [sum(process.cpu_times()[:2]) for process in processes]


@contextmanager
def _peak_memory(processes: list[psutil.Process]) -> Iterator[list[int]]:
    """Most bytes that the processes held together while the block ran, in a list of one."""
    peak, done = [0], threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            peak[0] = max(peak[0], sum(process.memory_info().rss for process in processes))

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield peak
    finally:
        done.set()
        sampler.join()


if __name__ == "__main__":
    main()

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
from streaming.kafka_source import LandedTopics
from streaming.landing_progress import LandingProgress
from streaming.start_landing import LAND, open_check, start_landing
from streaming.stream_settings import StreamSettings

__all__ = ["CatchUpPlan"]

SAMPLE_SECONDS: Final = 0.1
JOIN_SECONDS: Final = 120.0


@dataclass(frozen=True, kw_only=True)
class CatchUpPlan:
    """`runs` landings of everything in Kafka into folders under `folder`; `stream` are settings of the landing.

    `workers` are the process ids of a cluster's workers, each of which must have an executor before the first run.
    """

    bootstrap_servers: str
    folder: str
    runs: int
    stream: dict[str, Any]
    workers: tuple[int, ...] = ()


def main() -> None:
    """One plan from standard input."""
    plan = CatchUpPlan(**json.loads(sys.stdin.readline()))
    settings = StreamSettings(**plan.stream)
    java = find_java()
    options = JvmOptions(
        java.home, tuple(spark_jars()), Path(plan.folder), heap=settings.driver_memory, flags=tuple(java.gc_options)
    )
    session = open_session(
        options,
        master=settings.master,
        app_name="tidegate-bench-land",
        extra=settings.extra,
        secret=settings.auth_secret,
    )
    try:
        _await_executors(session, len(plan.workers))
        for number in range(plan.runs):
            sys.stdout.write(json.dumps(_run(session, plan, settings, number)) + "\n")
            sys.stdout.flush()
    finally:
        session.close()


def _await_executors(session: LakeSession, count: int) -> None:
    deadline = time.monotonic() + JOIN_SECONDS
    # The driver itself is one of those that hold blocks.
    context: Any = session.spark._jsc
    while count and context.sc().getExecutorMemoryStatus().size() <= count:
        if time.monotonic() > deadline:
            message = f"fewer than {count} executors joined within {JOIN_SECONDS:g} s"
            raise FatalError(message)
        time.sleep(SAMPLE_SECONDS)


def _run(session: LakeSession, plan: CatchUpPlan, settings: StreamSettings, number: int) -> dict[str, Any]:
    root = str(Path(plan.folder).absolute() / f"run-{number}")
    ensure_tables(root, ALL_TABLES.values(), log_retention_hours=24)
    metrics = StreamMetrics(CollectorRegistry(), query=LAND, tables=ALL_TABLES, topics=(READINGS, DEAD_LETTERS))
    progress = LandingProgress(metrics, LAND)
    check, _ = open_check(session.spark, root, settings, progress)
    processes = [psutil.Process(), psutil.Process(session.jvm.process.pid)]
    executors = [each for worker in plan.workers for each in psutil.Process(worker).children()]
    with _peak_memory(processes) as peak:
        began, cpu, elsewhere = time.perf_counter(), _cpu_seconds(processes), sum(_cpu_seconds(executors))
        land = start_landing(
            session.spark, root, KafkaSettings(bootstrap_servers=plan.bootstrap_servers),
            settings.model_copy(update={"checkpoint": f"{root}-checkpoint"}), check, progress, lambda offsets: None,
            LandedTopics(), available_now=True,
        )  # fmt: skip
        land.query.awaitTermination()
        seconds = time.perf_counter() - began
        spent = [now - then for now, then in zip(_cpu_seconds(processes), cpu, strict=True)]
        elsewhere = sum(_cpu_seconds(executors)) - elsewhere
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
        "executor_us_per_row": round(elsewhere / rows * 1e6, 2),
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

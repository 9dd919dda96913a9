"""`bench land`: cost of the landing alone, while it catches up with a full topic, or keeps up with one that fills.

It starts its own Kafka and fills it with records in the gateway's form, without broker and gateway. Processor time and memory
are those of the landing's two processes, Python and JVM. Other work on the machine makes the figures worse, so the result
includes the machine's load.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import psutil

from deploy.bench.e2e import COLUMNS, LandingTimes, follow_rows, percentile
from deploy.bench.environment import hardware, hardware_line, versions
from deploy.bench.gateway_testbed import kafka_testbed, run_process, to_toml
from deploy.bench.land_feed import FeedPlan
from deploy.bench.land_run import CatchUpPlan
from deploy.bench.plan_process import run_child
from deploy.bench.temporary import own_folder
from deploy.bench.waiting import await_arrivals
from deploy.local.artifacts import fetch_jars
from deploy.local.ports import choose_port
from deploy.testbed.spark_cluster import open_spark_cluster
from ingest.contract.errors import FatalError
from ingest.kafka_settings import KafkaSettings
from lakehouse.table_follower import TableFollower
from monitoring.scrape import healthz

__all__ = ["measure_catch_up", "measure_live", "render_catch_up", "render_live"]

IDLE_SECONDS: Final = 10.0
GIVE_UP_SECONDS: Final = 60.0


def measure_catch_up(
    *,
    rows: int,
    runs: int = 3,
    partitions: int = 2,
    readings: int = 1,
    workers: int = 0,
    stream: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Land a full topic `runs` times in one session; the result as it is printed with --json.

    Args:
        rows: rows of `readings` in the topic.
        runs: the first is the session's first work and reported separately; the medians of the others are the result.
        partitions: of `telemetry.readings`.
        readings: of one record.
        workers: of a Spark cluster, each with one core; 0 lands with a local Spark.
        stream: further settings of the landing.

    Raises:
        UnavailableError: a part did not start.
        FatalError: the landing failed.
    """
    machine = hardware()
    fetch_jars("spark", lambda text: None)
    with ExitStack() as parts:
        folder, kafka = _stage(parts, partitions)
        plan = FeedPlan(
            bootstrap_servers=kafka.bootstrap_servers, records=max(1, rows // readings), readings=readings,
            boot=int(time.time()), begin_at=time.time(),
        )  # fmt: skip
        _await(_feed(plan))
        settings, cluster = dict(stream or {}), None
        if workers:
            cluster = parts.enter_context(open_spark_cluster(folder / "spark", workers=workers))
            settings |= {**cluster.settings, "auth_secret": cluster.secret}
        found = _catch_up(
            CatchUpPlan(
                bootstrap_servers=kafka.bootstrap_servers,
                folder=str(folder),
                runs=runs,
                stream=settings,
                workers=tuple(worker.process.pid or 0 for worker in cluster.workers) if cluster else (),
            )
        )
    first, warm = found[0], found[1:]
    names = ("rows_per_second", "cpu_us_per_row", "python_us_per_row", "executor_us_per_row")
    return {
        "rows": first["rows"],
        **{name: round(statistics.median(run[name] for run in warm or found), 2) for name in names},
        "peak_mb": max(run["peak_mb"] for run in found),
        "lost": plan.records * readings - min(run["rows"] for run in found),
        "first": first,
        "warm": warm,
        "partitions": partitions,
        "readings_per_record": readings,
        "hardware": machine,
        "versions": versions(),
    }


def measure_live(
    *, rate: float, seconds: float, warmup_seconds: float = 20.0, partitions: int = 2, readings: int = 1,
    stream: Mapping[str, Any] | None = None, log: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run `tidegate stream` on a topic that gets `rate` records a second; times as in `bench e2e`, from due to queryable.

    Before the load, the processor time of the idle stream is taken for 10 s.
    """
    machine = hardware()
    with ExitStack() as parts:
        folder, kafka = _stage(parts, partitions)
        root = folder / "tables"
        process = _stream(parts, folder, kafka, dict(stream or {}), log)
        idle = _cores(process, IDLE_SECONDS)
        plan = FeedPlan(
            bootstrap_servers=kafka.bootstrap_servers, records=round(rate * (warmup_seconds + seconds)), readings=readings,
            rate=rate, boot=int(time.time() * 1000), begin_at=time.time() + 2.0,
        )  # fmt: skip
        landing = LandingTimes(plan.boot)
        feed = _feed(plan)
        with follow_rows(TableFollower(str(root), "readings", columns=COLUMNS), landing):
            time.sleep(max(0.0, plan.begin_at + warmup_seconds - time.time()))
            busy = _cores(process, max(1.0, plan.begin_at + warmup_seconds + seconds - time.time()))
            _await(feed)
            sent = {plan.names(number): plan.due_at(number) for number in range(plan.records)}
            await_arrivals(lambda: len(landing.seen_at), len(sent), silent_seconds=GIVE_UP_SECONDS)
        peak = sum(each.memory_info().rss for each in _tree(process))
    measured = [key for key, at in sent.items() if at >= plan.begin_at + warmup_seconds]
    delays = sorted(landing.seen_at[key] - sent[key] for key in measured if key in landing.seen_at)
    return {
        "rate": rate,
        "seconds": seconds,
        "rows": len(delays) * readings,
        **{name: percentile(delays, share) for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))},
        "lost": len(sent.keys() - landing.seen_at.keys()),
        "commits": landing.commits,
        "cores": round(sum(busy), 3),
        "python_cores": round(busy[0], 3),
        "idle_cores": round(sum(idle), 3),
        "peak_mb": peak // 1024**2,
        "hardware": machine,
        "versions": versions(),
    }


def _stage(parts: ExitStack, partitions: int) -> tuple[Path, KafkaSettings]:
    folder = parts.enter_context(own_folder())
    return folder, parts.enter_context(kafka_testbed(folder, partitions=partitions))


def _stream(
    parts: ExitStack, folder: Path, kafka: KafkaSettings, stream: Mapping[str, Any], log: Path | None
) -> psutil.Process:
    port, _ = choose_port(0)
    config = folder / "stream.toml"
    config.write_text(
        to_toml({
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "partitions": kafka.partitions},
            "lake": {"root": str(folder / "tables")},
            "stream": {"checkpoint": str(folder / "checkpoint"), **stream},
            "monitoring": {"stream_port": port},
        }),
        encoding="utf-8",
    )  # fmt: skip
    command = [sys.executable, "-P", "-m", "deploy.cli", "stream", "--config", str(config), "--log-dir", str(folder)]
    url = f"http://127.0.0.1:{port}/healthz"
    started = parts.enter_context(run_process(command, log or folder / "stream.log", ready=lambda: healthz(url)[0]))
    return psutil.Process(started.pid)


def _tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _cores(process: psutil.Process, seconds: float) -> list[float]:
    """Processor time per second over that time: of the process, and of what it started."""
    tree = _tree(process)
    before, began = [sum(each.cpu_times()[:2]) for each in tree], time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    spent = [sum(each.cpu_times()[:2]) - then for each, then in zip(tree, before, strict=True)]
    return [spent[0] / took, sum(spent[1:]) / took]


def _feed(plan: FeedPlan) -> "subprocess.Popen[str]":
    command = [sys.executable, "-P", "-m", "deploy.bench.land_feed"]
    feed = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    assert feed.stdin is not None  # noqa: S101
    feed.stdin.write(json.dumps(asdict(plan)) + "\n")
    feed.stdin.close()
    return feed


def _await(feed: "subprocess.Popen[str]") -> None:
    if feed.wait() != 0:
        message = "the benchmark's producer failed; see its output above"
        raise FatalError(message)


def _catch_up(plan: CatchUpPlan) -> list[dict[str, Any]]:
    lines = run_child("deploy.bench.land_run", asdict(plan), "the landing of the benchmark failed")
    return [json.loads(line) for line in lines]


def render_catch_up(result: Mapping[str, Any]) -> str:
    """The result in a few lines for people."""
    first = result["first"]
    return "\n".join(
        [
            f"Catching up with {result['rows']} rows, {result['partitions']} partitions, "
            f"median of {len(result['warm'])} warm runs:",
            f"  {result['rows_per_second']:g} rows/s, {result['cpu_us_per_row']} µs of processor time per row "
            f"({result['python_us_per_row']} of it Python)",
            f"  the session's first run: {first['rows_per_second']} rows/s, {first['cpu_us_per_row']} µs per row",
            f"  {result['peak_mb']} MB at most, {result['lost']} lost",
            hardware_line(result["hardware"]),
        ]
    )


def render_live(result: Mapping[str, Any]) -> str:
    """The result in a few lines for people."""
    return "\n".join(
        [
            f"Record due to queryable row at {result['rate']:g} records/s for {result['seconds']:g} s, the stream alone:",
            f"  p50 {result['p50_ms']} ms   p95 {result['p95_ms']} ms   p99 {result['p99_ms']} ms",
            f"  {result['rows']} rows in {result['commits']} commits, {result['lost']} lost",
            f"  {result['cores']} cores busy ({result['python_cores']} of it Python), {result['idle_cores']} idle, "
            f"{result['peak_mb']} MB",
            hardware_line(result["hardware"]),
        ]
    )

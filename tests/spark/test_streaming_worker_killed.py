"""A Spark standalone cluster that lands as a local Spark does, also when executors and a worker die."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from deploy.bench.gateway_testbed import kafka_testbed, run_process, to_toml
from deploy.bench.land_feed import FeedPlan
from deploy.local import artifacts
from deploy.local.ports import choose_port
from deploy.testbed.spark_cluster import open_spark_cluster
from lakehouse.changes import table_files
from lakehouse.query import run_sql
from monitoring.scrape import healthz
from tests.support.on_standalone import KILLS

COUNTED = "SELECT count(*) AS rows, count(DISTINCT (device, metric, message_id)) AS distinct_rows FROM readings"

SAME = "not test_a_copy_that_cannot_be_compared and not test_a_replay_is_counted_once"
"""All but the tests that take the driver's look-ups away."""


@pytest.mark.chaos
def test_workers_that_die_under_load_lose_and_double_nothing(tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    """One dies, then the last one too: a stop then does not wait for executors that never come."""
    artifacts.fetch_jars("all", lambda text: None)
    root, checkpoint, log = tmp_path / "tables", tmp_path / "checkpoint", tmp_path / "stream.log"
    with open_spark_cluster(tmp_path / "spark") as cluster, kafka_testbed(tmp_path, partitions=4) as kafka:
        port, _ = choose_port(0)
        config = tmp_path / "stream.toml"
        config.write_text(
            to_toml({
                "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "partitions": kafka.partitions},
                "lake": {"root": str(root)},
                "stream": {"checkpoint": str(checkpoint), **cluster.settings},
                "monitoring": {"stream_port": port},
            })
        )  # fmt: skip
        command = [
            sys.executable,
            "-P",
            "-m",
            "deploy.cli",
            "stream",
            "--config",
            str(config),
            "--log-dir",
            str(tmp_path),
        ]
        url = f"http://127.0.0.1:{port}/healthz"
        with run_process(command, log, ready=lambda: healthz(url)[0]) as stream:
            first = feed(kafka.bootstrap_servers, records=24_000, rate=800.0, boot=1)
            wait_until(lambda: rows_of(root) > 2000, seconds=120, what="the first rows")
            cluster.await_executors(2)
            assert rows_of(root) < 48_000, "the worker dies while the load runs"
            cluster.workers[0].kill()
            assert first.wait(120) == 0
            wait_until(lambda: rows_of(root) >= 48_000, seconds=240, what="every row after the death")
            assert stream.poll() is None, log.read_text()
            cluster.workers[1].kill()
            assert feed(kafka.bootstrap_servers, records=1_000, rate=1000.0, boot=2).wait(120) == 0
            wait_until(lambda: newest(checkpoint / "offsets") > newest(checkpoint / "commits"), what="a batch in hand")
            stream.terminate()
            assert stream.wait(80) == 0, log.read_text()
        assert "it is cancelled, and read again at the next start" in log.read_text()
        assert not [words for words in ("Traceback", "failed") if words in log.read_text()], log.read_text()
        assert rows_of(root) == 48_000, "no worker was there to land the others"
        cluster.start()
        with run_process(command, log, ready=lambda: True):
            wait_until(lambda: rows_of(root) >= 50_000, seconds=240, what="the rows of the batch that was cancelled")
    (found,) = run_sql(str(root), COUNTED).to_pylist()
    assert found == {"rows": 50_000, "distinct_rows": 50_000}


def feed(bootstrap_servers: str, **plan: Any) -> "subprocess.Popen[str]":
    """A process that sends records of two readings each."""
    whole = FeedPlan(bootstrap_servers=bootstrap_servers, readings=2, begin_at=time.time() + 1.0, **plan)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "deploy.bench.land_feed"], stdin=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(whole)) + "\n")
    process.stdin.close()
    return process


def newest(folder: Path) -> int:
    """Number of the newest batch in a folder of the checkpoint."""
    return max((int(file.name) for file in folder.iterdir() if file.name.isdigit()), default=-1)


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("files", "kills"),
    [(("land", "conflicts", "executors", "ledger_balance", "repair"), 0), (("conflicts", "executors"), 4)],
)
def test_tests_of_the_landing_pass_on_a_cluster_whose_executors_die(files: tuple[str, ...], kills: int) -> None:
    """With kills, an executor dies in each batch with copies, between the look-up and the commits."""
    paths = [str(Path(__file__).with_name(f"test_streaming_{name}.py")) for name in files]
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.support.on_standalone", "-k", SAME, *paths]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], env={**os.environ, **({KILLS: "1"} if kills else {})},
        capture_output=True, text=True, timeout=880, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert done.stdout.count("killed an executor") >= kills


def rows_of(root: Path) -> int:
    """Rows by the table's log: a query each time would take a core from the load."""
    time.sleep(0.5)
    if not (root / "readings").exists():
        return 0
    return sum(file.rows or 0 for file in table_files(str(root), "readings"))

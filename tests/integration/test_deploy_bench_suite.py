"""`bench run` at a real Kafka: figures and resources of each cell, an interrupt that leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.admin import admin_client, partition_counts
from ingest.settings import KafkaSettings
from ingest.topic_setup import create_topic

SCENARIO = """
title = "two sizes"
repeats = 2
warmup_runs = 0
measures = ["produce_per_second", "consume_per_second"]
[workload]
messages = 200
mode = "stream"
[[matrix]]
message_bytes = [10, 100]
[[goals]]
figure = "produce_per_second"
at_least = 1
"""


@pytest.fixture
def bench(tmp_path: Path, kafka_server: Any) -> Callable[..., "subprocess.Popen[str]"]:
    (tmp_path / "cluster.toml").write_text(f'[kafka]\nbootstrap_servers = "{kafka_server.bootstrap_servers}"\n')

    def start(name: str, text: str, *arguments: str) -> "subprocess.Popen[str]":
        (tmp_path / name).write_text(text)
        command = [sys.executable, "-P", "-m", "deploy.cli", "bench", "run", str(tmp_path / name), "--json"]
        return subprocess.Popen(
            [*command, "--target", str(tmp_path / "cluster.toml"), "--yes", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    return start


def test_cells_have_figures_and_resources_and_only_topics_of_the_run_come_and_go(
    bench: Callable[..., "subprocess.Popen[str]"], kafka_server: Any, tmp_path: Path
) -> None:
    kafka = KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers)
    foreign = f"tidegate-bench-of-somebody-{os.getpid()}"
    create_topic(kafka, foreign, partitions=1)
    process = bench("own.toml", SCENARIO, "--report", str(tmp_path / "report"))
    out, words = process.communicate(timeout=300)
    result = json.loads(out)
    assert process.returncode == 0, words
    assert [(cell["message_bytes"], cell["measure"]) for cell in result["cells"]] == [
        (size, measure) for size in (10, 100) for measure in ("produce_per_second", "consume_per_second")
    ]
    for cell in result["cells"]:
        assert cell["value"] > 0
        assert (cell["lost"], cell["errors"]) == (0, 0)
        assert {"client_cpu_cores", "io_wait_ratio", "disk_available_gb"} <= set(cell["spread"])
        assert cell["curves"]["end_to_end"]
    assert "two sizes" in (tmp_path / "report" / "report.html").read_text("utf-8")
    assert _bench_topics(kafka) == {foreign}

    # One cell is measured, the next would take five minutes.
    text = SCENARIO.replace("messages = 200", "messages = 200\nrate = 2000").replace("message_bytes = [10, 100]", "")
    text += "[[matrix]]\nmessages = 600_000\n"
    process = bench("long.toml", text)
    assert process.stderr is not None
    while "messages=600000, run 1 of 2" not in (line := process.stderr.readline()):
        assert line, "it ended early"
    # As Ctrl-C, which a process that a shell started in the background ignores.
    process.send_signal(signal.SIGTERM)
    out, words = process.communicate(timeout=120)
    assert process.returncode == 130, words
    assert "what was measured until now is reported" in words
    result = json.loads(out)
    assert result["interrupted"]
    assert [len(cell["spread"]["lost"]["runs"]) for cell in result["cells"]] == [2, 2]
    assert _bench_topics(kafka) == {foreign}


def _bench_topics(kafka: KafkaSettings) -> set[str]:
    return {name for name in partition_counts(admin_client(kafka), kafka) if name.startswith("tidegate-bench-")}

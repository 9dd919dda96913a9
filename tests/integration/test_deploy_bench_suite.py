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

from deploy.local.ports import choose_port
from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import admin_client, partition_counts
from ingest.topics.setup import create_topic
from monitoring.grafana.dashboard_files import dashboards
from monitoring.grafana.query_check import ask_prometheus, empty_queries
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.prometheus.scrape_config import scrape_config

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
        assert {"client_cpu_cores", "io_wait_ratio", "context_switches_per_second"} <= set(cell["spread"])
        assert not {"broker_cpu_cores", "disk_available_gb"} & set(cell["spread"])
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
    assert "Interrupted: reporting the results so far" in words
    result = json.loads(out)
    assert result["interrupted"]
    assert [len(cell["spread"]["lost"]["runs"]) for cell in result["cells"]] == [2, 2]
    assert _bench_topics(kafka) == {foreign}


LIVE = """
title = "three seconds, again and again"
warmup_runs = 0
peer_runs = 0
[workload]
messages = 3000
rate = 1000
mode = "stream"
"""


def test_its_dashboard_shows_numbers_while_it_runs_and_an_interrupt_removes_its_cluster(
    start_prometheus: Callable[..., Any], wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    port, _ = choose_port(0)
    settings = MonitoringSettings(bench_port=port)
    configuration = scrape_config(settings)
    configuration["scrape_configs"] = [one for one in configuration["scrape_configs"] if "bench" in one["job_name"]]
    ask = ask_prometheus(
        start_prometheus(tmp_path, {key: configuration[key] for key in ("global", "scrape_configs")}).url
    )
    (tmp_path / "live.toml").write_text(LIVE)
    (tmp_path / "clusters").mkdir()
    command = [
        sys.executable,
        "-P",
        "-m",
        "deploy.cli",
        "bench",
        "run",
        str(tmp_path / "live.toml"),
        "--repeats",
        "100",
    ]
    with subprocess.Popen(
        [*command, "--metrics-port", str(port), "--json"], env={**os.environ, "TMPDIR": str(tmp_path / "clusters")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            bench = [each for each in dashboards(settings) if each["uid"] == "tidegate-bench"]
            missing: list[str] = []

            def look() -> bool:
                assert process.poll() is None
                try:
                    found = empty_queries((bench[0],), ask)
                except OSError:
                    return False
                missing[:] = [f"{each.panel}: {each.why}" for each in found]
                return not missing

            wait_until(look, seconds=240, what=f"all panels have numbers, not without {missing}")
            assert ask("tidegate_bench_kafka_bytes_total > 0")
            (speed,) = ask('tidegate_bench_records_per_second{kind="produce"}')
            assert 0 < float(speed["value"][1]) < 1500
            (place,) = ask("tidegate_bench_cell_run")
            assert place["metric"]["target"] == "1 broker, KRaft, plaintext"
        finally:
            process.send_signal(signal.SIGTERM)
        out, words = process.communicate(timeout=120)
    assert process.returncode == 130, words
    (cell,) = json.loads(out)["cells"]
    assert {
        "broker_cpu_cores", "broker_rss_mb", "disk_available_gb", "bytes_in_per_second", "bytes_out_per_second",
        "produce_total_ms_mean", "produce_total_ms_p99", "fetch_total_ms_mean", "errors_per_second", "purgatory_produce",
        "purgatory_fetch", "io_wait_ratio", "context_switches_per_second", "memory_available_gb",
    } <= set(cell["spread"])  # fmt: skip
    assert list((tmp_path / "clusters").iterdir()) == []


def _bench_topics(kafka: KafkaSettings) -> set[str]:
    return {name for name in partition_counts(admin_client(kafka), kafka) if name.startswith("tidegate-bench-")}

"""The stream as a process: killed under load, started twice, stopped by Ctrl-C."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from ingest.admin import ensure_topics
from ingest.contract.reading import encode_record
from ingest.contract.topics import LAND_GROUP, READINGS
from ingest.groups import group_lag
from ingest.settings import KafkaSettings
from lakehouse.query import run_sql

COMMAND = [sys.executable, "-c", "from deploy.cli import main; main()", "stream"]


@pytest.fixture
def kafka(new_kafka: Any) -> KafkaSettings:
    settings = KafkaSettings(bootstrap_servers=new_kafka().bootstrap_servers, partitions=2)
    ensure_topics(settings)
    return settings


@pytest.fixture
def start(kafka: KafkaSettings, tmp_path: Path) -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    """Starts `tidegate stream` in a process group of its own; its words go to `stream.N.log`."""
    config = tmp_path / "config.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{kafka.bootstrap_servers}"\npartitions = 2\n'
        f'[stream]\ncheckpoint = "{tmp_path}/checkpoint"\nwarm_up = false\n[lake]\nroot = "{tmp_path}/tables"\n'
        "[monitoring]\nstream_port = 0\n",
        encoding="utf-8",
    )
    started: list[subprocess.Popen[bytes]] = []

    def run() -> "subprocess.Popen[bytes]":
        log = tmp_path / f"stream.{len(started)}.log"
        arguments = [*COMMAND, "--config", str(config), "--log-dir", str(tmp_path / "logs")]
        with log.open("wb") as out:
            started.append(subprocess.Popen(arguments, stdout=out, stderr=out, start_new_session=True))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def jvm_of(process: "subprocess.Popen[bytes]") -> psutil.Process | None:
    return next((child for child in psutil.Process(process.pid).children() if "java" in child.name()), None)


# Three JVMs start in it, each with the cores of a small machine to itself only in turn.
@pytest.mark.timeout(600)
def test_kill_9_loses_and_doubles_nothing_and_one_writer_is_enough(
    kafka: KafkaSettings, start: Any, record: Any, wait_until: Any, tmp_path: Path
) -> None:
    root = str(tmp_path / "tables")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    sent = iter(range(10**9))

    def send(count: int = 50) -> int:
        for number in (next(sent) for _ in range(count)):
            device = f"d{number % 7}"
            made = record(number, seq=number, device=device) if number % 2 else record(number, device=device)
            producer.produce(READINGS, key=device, value=encode_record(made))
        assert producer.flush(20) == 0
        return count

    def stored() -> int:
        if not DeltaTable.is_deltatable(f"{root}/readings"):
            return 0
        return int(run_sql(root, "select count(*) n from readings").to_pylist()[0]["n"])

    first = start()
    total = send()
    wait_until(stored, seconds=150, what="the first rows")

    second = start()
    assert second.wait(60) == 1
    said = (tmp_path / "stream.1.log").read_text()
    assert f"process {first.pid}" in said
    assert "Traceback" not in said

    jvm = jvm_of(first)
    assert jvm is not None
    for _ in range(4):
        total += send()
    first.kill()
    first.wait()
    third = start()
    wait_until(lambda: not jvm.is_running() or jvm.status() == psutil.STATUS_ZOMBIE, seconds=60, what="the JVM's end")
    total += send()
    wait_until(lambda: stored() >= 2 * total, seconds=150, what="all rows")
    # Without identity too: a replay is recognised by its offsets.
    assert run_sql(root, "select message_number n, count(*) c from readings group by 1 having c != 2").num_rows == 0
    assert stored() == 2 * total

    wait_until(lambda: sum(end - at for at, end in group_lag(kafka, LAND_GROUP)[READINGS].values()) == 0, what="no lag")
    # As Ctrl-C does: to the whole group.
    os.killpg(third.pid, signal.SIGINT)
    assert third.wait(60) == 0
    said = (tmp_path / "stream.2.log").read_text()
    assert "Traceback" not in said
    assert "Exception" not in said
    assert not (tmp_path / "logs" / "spark.out").read_text().count("\tat ")

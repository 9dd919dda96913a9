"""The stream as a process: killed under load, started twice, stopped by Ctrl-C."""

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from typer.testing import CliRunner

from deploy.cli import app
from ingest.contract.reading import encode_record
from ingest.contract.topics import LAND_GROUP, READINGS
from ingest.groups.offset_mirror import group_lag
from ingest.kafka_settings import KafkaSettings
from ingest.topics.setup import ensure_topics
from lakehouse.query import run_sql
from tests.support.processes import name_of, runs
from tests.support.stream_processes import stream_processes

pytestmark = pytest.mark.promise("P1")


@pytest.fixture
def kafka(new_kafka: Any) -> KafkaSettings:
    settings = KafkaSettings(bootstrap_servers=new_kafka().bootstrap_servers, partitions=2)
    ensure_topics(settings)
    return settings


@pytest.fixture
def start(kafka: KafkaSettings, tmp_path: Path) -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    settings = (
        f'[kafka]\nbootstrap_servers = "{kafka.bootstrap_servers}"\npartitions = 2\n'
        f'[stream]\ncheckpoint = "{tmp_path}/checkpoint"\nwarm_up = false\n[lake]\nroot = "{tmp_path}/tables"\n'
        "[monitoring]\nstream_port = 0\n"
    )
    with stream_processes(tmp_path, settings) as starting:
        yield starting


def jvm_of(process: "subprocess.Popen[bytes]") -> psutil.Process | None:
    return next((child for child in psutil.Process(process.pid).children() if "java" in name_of(child)), None)


class Feed(threading.Thread):
    """Sends numbered messages all the time, half of them with an identity; each has two readings."""

    def __init__(self, kafka: KafkaSettings, record: Any) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
        self._record, self._stop_asked = record, threading.Event()
        self.sent = 0

    def run(self) -> None:
        while not self._stop_asked.wait(0.25):
            for number in range(self.sent, self.sent + 20):
                device = f"d{number % 7}"
                seq = {"seq": number} if number % 2 else {}
                made = self._record(number, device=device, **seq)
                self._producer.produce(READINGS, key=device, value=encode_record(made))
            assert self._producer.flush(120) == 0
            self.sent += 20

    def finish(self) -> int:
        """How many messages are in Kafka."""
        self._stop_asked.set()
        self.join(150)
        assert not self.is_alive()
        return self.sent


def kill(process: "subprocess.Popen[bytes]", *, only_jvm: bool, wait_until: Any) -> None:
    """kill -9 of the driver's JVM (the process ends by itself then), or of the process (its JVM does)."""
    jvm = jvm_of(process)
    if only_jvm and jvm is not None:
        jvm.kill()
        assert process.wait(120) == 1
        return
    process.kill()
    process.wait()
    if jvm is not None:
        wait_until(lambda: not runs(jvm), seconds=60, what="the JVM's end")


# A JVM starts for each kill, with the cores of a small machine to itself only in turn.
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(2, marks=pytest.mark.timeout(1500)),
        pytest.param(50, marks=[pytest.mark.chaos, pytest.mark.timeout(7200)]),
    ],
)
def test_kill_9_at_random_moments_loses_and_doubles_nothing_and_one_writer_is_enough(
    kafka: KafkaSettings, start: Any, record: Any, wait_until: Any, tmp_path: Path, kills: int
) -> None:
    root, rng = str(tmp_path / "tables"), random.Random(26)

    def stored() -> int:
        # By the log: counting rows many times a second would take the stream's cores away.
        if not DeltaTable.is_deltatable(f"{root}/readings"):
            return 0
        actions = pa.table(DeltaTable(f"{root}/readings").get_add_actions(flatten=True))
        return sum(actions["num_records"].to_pylist())

    feed = Feed(kafka, record)
    feed.start()
    running = start()
    wait_until(lambda: stored() or running.poll() is not None, seconds=300, what="the first rows")
    assert running.poll() is None, (tmp_path / "stream.0.log").read_text()
    second = start()
    assert second.wait(120) == 1
    said = (tmp_path / "stream.1.log").read_text()
    assert f"Process {running.pid} is writing" in said
    assert "Traceback" not in said

    for number in range(kills):
        before = stored()
        if number % 2 == 0:
            # Amid its landing; else at any moment of its start.
            wait_until(lambda before=before: stored() > before, seconds=300, what="rows since the last kill")
            time.sleep(rng.uniform(0.0, 1.0))
        else:
            time.sleep(rng.uniform(0.0, 12.0))
        # The first one is the driver's JVM amid its landing: the whole process is killed so in tests/e2e, too.
        kill(running, only_jvm=number % 4 in (0, 3), wait_until=wait_until)
        running = start()
    total = feed.finish()
    wait_until(lambda: stored() >= 2 * total, seconds=300, what="all rows")
    # Without identity too: a replay is recognised by its offsets.
    assert run_sql(root, "select message_number n, count(*) c from readings group by 1 having c != 2").num_rows == 0
    assert stored() == 2 * total
    assert run_sql(root, "select count(*) n from dead_letters").to_pylist() == [{"n": 0}]

    wait_until(
        lambda: sum(end - at for at, end in group_lag(kafka, LAND_GROUP)[READINGS].values()) == 0,
        seconds=120,
        what="no lag",
    )
    # As Ctrl-C does: to the whole group.
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(120) == 0
    said = (tmp_path / f"stream.{kills + 1}.log").read_text()
    logs = "".join(log.read_text() for log in tmp_path.glob("stream.*.log"))
    assert "Traceback" not in logs, logs
    assert "Exception" not in said
    assert "\tat " not in (tmp_path / f"logs.{kills + 1}" / "spark.out").read_text()
    assert CliRunner().invoke(app, ["repair", "--config", str(tmp_path / "config.toml")]).exit_code == 0

"""Two streams on the tables of one bucket, both alive: the newer one takes over, and the older one ends without a commit."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem

from ingest.contract.reading import encode_record
from ingest.contract.topics import READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.topics.setup import ensure_topics
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.lake_settings import LakeSettings
from lakehouse.object_store import use_s3
from lakehouse.paths import log_name
from lakehouse.query import run_sql
from lakehouse.writer_epoch import WRITER
from tests.support.bucket import Bucket
from tests.support.processes import name_of
from tests.support.stream_processes import stream_processes

pytestmark = [pytest.mark.promise("P1"), pytest.mark.chaos, pytest.mark.timeout(3600)]

SECRET = "bucket-secret-key"


@pytest.fixture
def kafka(new_kafka: Any) -> KafkaSettings:
    settings = KafkaSettings(bootstrap_servers=new_kafka().bootstrap_servers, partitions=2)
    ensure_topics(settings)
    return settings


@pytest.fixture
def tables(bucket: Bucket, unique_name: str) -> LakeSettings:
    settings = bucket.lake(unique_name)
    use_s3(settings)
    return settings


@pytest.fixture
def start(
    kafka: KafkaSettings, tables: LakeSettings, tmp_path: Path
) -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    settings = (
        f'[kafka]\nbootstrap_servers = "{kafka.bootstrap_servers}"\npartitions = 2\n'
        f'[stream]\ncheckpoint = "{tables.root}/checkpoint"\nwarm_up = false\n'
        f'[lake]\nroot = "{tables.root}"\ns3_endpoint = "{tables.s3_endpoint}"\n'
        f's3_access_key = "bucket-user"\ns3_secret_key = "file:{secret}"\n'
        "[monitoring]\nstream_port = 0\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with stream_processes(tmp_path, settings, environment) as starting:
        yield starting


def stored(root: str) -> int:
    if not DeltaTable.is_deltatable(f"{root}/readings"):
        return 0
    return sum(pa.table(DeltaTable(f"{root}/readings").get_add_actions(flatten=True))["num_records"].to_pylist())


def epochs(root: str, name: str) -> list[int]:
    """The writer epoch of each commit that has one, in the order of the log."""
    uri, found = f"{root}/{name}", list[int]()
    files = PyFileSystem(DeltaStorageHandler(uri))
    for version in range(DeltaTable(uri).version() + 1):
        with files.open_input_stream(log_name(version)) as stream:
            actions = [json.loads(line) for line in stream.readall().decode().splitlines()]
        found += [action["txn"]["version"] for action in actions if action.get("txn", {}).get("appId") == WRITER]
    return found


@pytest.mark.parametrize("frozen", [False, True])
def test_the_newer_stream_takes_over_and_the_older_one_ends_with_a_reason(
    kafka: KafkaSettings,
    tables: LakeSettings,
    start: Callable[[], "subprocess.Popen[bytes]"],
    record: Any,
    wait_until: Any,
    tmp_path: Path,
    *,
    frozen: bool,
) -> None:
    """Frozen: the older one stands still while the newer one takes over and lands, and then wakes with a batch in hand."""
    producer, sent, root = Producer({"bootstrap.servers": kafka.bootstrap_servers}), 0, tables.root

    def send(count: int) -> None:
        nonlocal sent
        for number in range(sent, sent + count):
            producer.produce(
                READINGS, key=f"d{number % 7}", value=encode_record(record(number, device=f"d{number % 7}"))
            )
        assert producer.flush(60) == 0
        sent += count

    def feed_until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 900
        while not condition():
            assert time.monotonic() < deadline, (what, [log.read_text() for log in tmp_path.glob("stream.*.log")])
            send(10)
            time.sleep(1)

    older = start()
    feed_until(lambda: stored(root) > 0 or older.poll() is not None, "the first rows")
    assert older.poll() is None, (tmp_path / "stream.0.log").read_text()
    for process in (psutil.Process(older.pid), *psutil.Process(older.pid).children()):
        assert SECRET not in " ".join(process.cmdline())
        assert "java" not in name_of(process) or SECRET not in str(process.environ())
    if frozen:
        os.killpg(older.pid, signal.SIGSTOP)
    newer, before = start(), stored(root)
    if frozen:
        feed_until(lambda: stored(root) > before, "rows of the newer stream")
        os.killpg(older.pid, signal.SIGCONT)
    feed_until(lambda: older.poll() is not None, "the end of the older stream")
    assert older.returncode == 78
    said = (tmp_path / "stream.0.log").read_text()
    assert "Another stream has taken over the table" in said
    assert "Traceback" not in said
    send(50)
    wait_until(lambda: stored(root) >= 2 * sent or newer.poll() is not None, seconds=900, what="all rows")
    assert newer.poll() is None, (tmp_path / "stream.1.log").read_text()
    twice = "SELECT message_number n, count(*) c FROM readings GROUP BY 1 HAVING c != 2"
    assert run_sql(root, twice).num_rows == 0
    assert stored(root) == 2 * sent
    for name in ALL_TABLES:
        found = epochs(root, name)
        assert found == sorted(found), name
        assert set(found) == {1, 2}, name
    os.killpg(newer.pid, signal.SIGINT)
    assert newer.wait(120) == 0
    logs = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("secret", "config.toml")]
    assert [str(path) for path in logs if SECRET.encode() in path.read_bytes()] == []

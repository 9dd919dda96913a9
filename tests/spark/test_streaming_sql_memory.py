"""A SQL stream that takes more memory than Spark has: readings land without it from the third start on."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from typer.testing import CliRunner

from deploy.cli import app
from ingest.contract.reading import encode_record
from ingest.contract.topics import READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.topics.setup import ensure_topics
from tests.support.stream_processes import stream_processes

GREEDY = "-- sink: table\n-- backfill: earliest\nSELECT device, length(repeat('x', 2000000000)) AS n FROM readings\n"
"""Each reading takes two gigabytes."""


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.promise("P1")
def test_a_stream_that_ends_spark_twice_stays_stopped_and_readings_land(
    new_kafka: Any, record: Any, wait_until: Any, tmp_path: Path
) -> None:
    kafka = KafkaSettings(bootstrap_servers=new_kafka().bootstrap_servers, partitions=2)
    ensure_topics(kafka)
    root, config = tmp_path / "tables", str(tmp_path / "config.toml")
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "greedy.sql").write_text(GREEDY)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def send(numbers: range) -> None:
        for number in numbers:
            producer.produce(READINGS, key="d", value=encode_record(record(number, device="d", seq=number)))
        assert producer.flush(120) == 0

    def stored() -> int:
        if not DeltaTable.is_deltatable(str(root / "readings")):
            return 0
        return sum(
            pa.table(DeltaTable(str(root / "readings")).get_add_actions(flatten=True))["num_records"].to_pylist()
        )

    def streams(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["streams", *arguments, "--config", config])
        assert done.exit_code == 0, done.output
        return done.output

    def greedy() -> dict[str, Any]:
        return next(each for each in json.loads(streams("ls", "--json")) if each["name"] == "greedy")

    settings = (
        f'[kafka]\nbootstrap_servers = "{kafka.bootstrap_servers}"\npartitions = 2\n'
        f'[stream]\ncheckpoint = "{tmp_path}/checkpoint"\nstreams_dir = "{tmp_path}/streams"\nwarm_up = false\n'
        f'[lake]\nroot = "{root}"\n[monitoring]\nstream_port = 0\n'
    )
    with stream_processes(tmp_path, settings) as start:
        first = start()
        send(range(10))
        wait_until(lambda: stored() == 20, seconds=300, what="the first rows")
        streams("apply", "greedy")
        assert first.wait(180) == 1
        assert "Spark's JVM ended unexpectedly" in (tmp_path / "stream.0.log").read_text()
        send(range(10, 20))
        assert start().wait(300) == 1, "nobody knows yet which stream it was"
        third = start()
        send(range(20, 30))
        wait_until(lambda: stored() == 60, seconds=300, what="all rows, without the greedy stream")
        wait_until(
            lambda: "so it stays stopped, and readings land without it" in greedy()["detail"], what="the sentence"
        )
        assert greedy()["state"] == "failed"
        assert third.poll() is None
        (tmp_path / "streams" / "greedy.sql").write_text(GREEDY.replace("2000000000", "2"))
        streams("apply", "greedy")
        wait_until(lambda: DeltaTable.is_deltatable(str(root / "greedy")), seconds=120, what="its table")
        wait_until(
            lambda: len(DeltaTable(str(root / "greedy")).to_pyarrow_table()) == 60,
            seconds=180,
            what="the rows of the changed stream",
        )
        assert third.poll() is None
    logs = "".join(log.read_text() for log in tmp_path.glob("stream.*.log"))
    assert "Traceback" not in logs, logs

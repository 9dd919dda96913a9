"""A load on a real Kafka: everything arrives, figures are whole, nothing stays behind."""

from dataclasses import replace
from typing import Any

import psutil
import pytest

from deploy.bench.kafka_load.peer import run_peer
from deploy.bench.kafka_load.segments import SegmentFiles
from deploy.bench.kafka_load.workload import Workload
from deploy.bench.kafka_load.workload_run import run_workload
from ingest.contract.errors import ConfigError, FatalError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import admin_client, partition_counts

TOPIC = "tidegate-bench-load"


@pytest.fixture
def kafka(kafka_server: Any) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka_server.part.bootstrap_servers)


def topics(kafka: KafkaSettings) -> set[str]:
    return {name for name in partition_counts(admin_client(kafka), kafka) if name.startswith(TOPIC)}


def test_split_and_streaming_loads_arrive_whole(wait_until: Any, kafka: KafkaSettings, kafka_server: Any) -> None:
    pids: list[int] = []
    split = Workload(
        topic=TOPIC, messages=5001, message_bytes=8, batch_records=1, producers=2, partitions=2, consumers=2,
        keys="skewed", warmup_messages=200, sessions=2,
    )  # fmt: skip
    files = SegmentFiles([kafka_server.part.data_dir / "records"], TOPIC, {"broker": kafka_server.pid})
    found = run_workload(split, kafka, on_started=pids.extend, files=files)
    assert (found["produced"], found["consumed"], found["lost"], found["errors"]) == (10_002, 10_002, 0, 0)
    assert found["sessions_run"] == 2
    assert found["produce_broker_cores"] > 0 < found["produce_python_cores"] < found["produce_client_cores"]
    assert found["produce_per_second"] > 0 < found["consume_per_second"]
    assert "end_to_end_p50_ms" not in found, "how long records waited for their reader is no latency"
    assert len(pids) == 4 and not any(psutil.pid_exists(pid) for pid in pids)
    wait_until(lambda: not topics(kafka))

    stream = Workload(topic=TOPIC, messages=1200, rate=800, mode="stream", acks="all", compression="lz4")
    found = run_workload(stream, kafka)
    assert (found["consumed"], found["lost"]) == (1200, 0)
    assert 0 < found["ack_p50_ms"] <= found["ack_p999_ms"] <= found["ack_max_ms"]
    assert 0 < found["end_to_end_p50_ms"] <= found["end_to_end_max_ms"]
    # Open loop: 1,200 messages at 800 a second take one and a half seconds, however quick Kafka is.
    assert found["produce_seconds"] >= 1.49
    for course in (found["over_time"]["ack"], found["over_time"]["end_to_end"]):
        assert course["seconds"][-1] >= 1.4 and all(worst > 0 for worst in course["max"])


def test_kafkas_own_tools_and_a_c_client_give_the_peers_figures(
    wait_until: Any, kafka: KafkaSettings, kafka_server: Any
) -> None:
    workload = Workload(
        topic=TOPIC, messages=3000, message_bytes=32, batch_records=20, warmup_messages=1000, producers=2, partitions=2,
        sessions=2, fetch_min_bytes=512,
    )  # fmt: skip
    found = run_peer(workload, kafka, kafka_server.part.tool)
    assert found["peer_produce_per_second"] > 0 < found["peer_consume_per_second"]
    assert found["peer_ack_p50_ms"] <= found["peer_ack_p99_ms"]
    # The C client's figures are left out where it lost a record. It alone produces while others consume.
    stream = run_peer(replace(workload, mode="stream"), kafka, kafka_server.part.tool)
    assert set(stream) == {"peer_c_produce_per_second", "peer_c_cpu_us_per_message"}
    for one in (found, stream):
        assert one["peer_c_produce_per_second"] > 0 < one["peer_c_cpu_us_per_message"]
    with pytest.raises(UnavailableError, match=r"Kafka's own test failed: .*no-such"):
        run_peer(workload, kafka, lambda name, *_: kafka_server.part.tool(name, "--no-such"))
    wait_until(lambda: not topics(kafka))


def test_failures_are_sentences_and_leave_no_topic(
    wait_until: Any, kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=f"cannot create topic {TOPIC} with 3 copies"):
        run_workload(Workload(topic=TOPIC, messages=10, replication=3), kafka)
    monkeypatch.setattr(
        "deploy.bench.kafka_load.workload_run.client_conf", lambda *_args, **_more: {"no.such.option": "1"}
    )
    with pytest.raises(UnavailableError, match=r'a process of the load ended early: .*"no.such.option"'):
        run_workload(Workload(topic=TOPIC, messages=10), kafka)
    wait_until(lambda: not topics(kafka))


def test_a_topic_that_is_there_already_is_not_touched(kafka: KafkaSettings) -> None:
    workload = Workload(topic=TOPIC, messages=10)

    def second_run(_pids: list[int]) -> None:
        with pytest.raises(FatalError, match=f"topic {TOPIC} already exists"):
            run_workload(workload, kafka)
        assert topics(kafka) == {TOPIC, f"{TOPIC}-warm"}

    assert run_workload(workload, kafka, on_started=second_run)["lost"] == 0

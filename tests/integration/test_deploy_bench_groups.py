"""A consumer group of real processes on a real Kafka: its partitions find readers again, and nothing acknowledged is lost."""

from typing import Any

import pytest

from deploy.bench.kafka_load.group_run import GroupRun, run_group
from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import admin_client, partition_counts

TOPIC = "tidegate-bench-group"


def test_a_group_reads_on_when_a_member_joins_or_dies(kafka_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.bench.kafka_load.group_run._STEADY_SECONDS", 0.5)
    kafka = KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers)
    joined = run_group(
        GroupRun(topic=f"{TOPIC}-join", members=2, event="join", protocol="consumer", partitions=2), kafka
    )
    assert (joined["idle_members"], joined["most_partitions"]) == (1, 1), "more members than partitions"
    died = run_group(GroupRun(topic=f"{TOPIC}-die", members=2, event="die", partitions=2), kafka)
    assert died["partition_pause_ms"] > died["pause_ms"], "only what the dead member had waits for its next reader"
    for found in (joined, died):
        assert (found["lost"], found["out_of_order"], found["failed"], found["unread_partitions"]) == (0, 0, 0, 0)
    with pytest.raises(UnavailableError, match="cannot be killed from here"):
        run_group(GroupRun(topic=TOPIC, members=1, event="leader_killed", partitions=1), kafka)
    assert not [name for name in partition_counts(admin_client(kafka), kafka) if name.startswith(TOPIC)]

"""Topics of a real Kafka: told partition by partition, changed while in use, and never below what a reader has still to read."""

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ingest.contract.errors import ConfigError, FatalError, RetryableError
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, LAND_GROUP, READINGS, stream_topic
from ingest.groups.offset_mirror import OffsetMirror
from ingest.kafka_settings import KafkaSettings
from ingest.topics.config import change_topic, settings_config
from ingest.topics.describe import describe_topics
from ingest.topics.overview import topic_overviews
from ingest.topics.retention import retention_config
from ingest.topics.setup import create_topic, ensure_topics
from tests.support.servers import fill, make_topics

MIB = 1024**2


@pytest.fixture
def settings(kafka_server: Any) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers, partitions=2)


@pytest.fixture
def topic(settings: KafkaSettings, unique_name: str) -> str:
    name = stream_topic(unique_name)
    create_topic(settings, name, partitions=2)
    return name


def config_of(settings: KafkaSettings, topic: str) -> dict[str, str]:
    return dict(describe_topics(settings, [topic])[topic].config)


def test_a_topic_is_told_as_it_is(settings: KafkaSettings, topic: str) -> None:
    fill(settings, topic, 300)
    client = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    (gone,) = client.delete_records([TopicPartition(topic, 0, 5)]).values()
    gone.result(60)
    (found,) = topic_overviews(settings, lambda name: name == topic, with_times=False)
    assert found.records == 295
    assert [(one.partition, one.leader, one.replicas, one.in_sync) for one in found.partitions] == [
        (0, 1, (1,), (1,)), (1, 1, (1,), (1,)),
    ]  # fmt: skip
    assert found.partitions[0].oldest == 5
    assert found.settings is not None
    assert found.settings.retention.seconds == 7 * 24 * 3600
    assert found.problems() == []


def test_retention_is_changed_and_nothing_else(settings: KafkaSettings, topic: str) -> None:
    before = config_of(settings, topic)
    wanted = retention_config(24, 64 * MIB)
    planned = change_topic(settings, topic, wanted, dry_run=True)
    assert config_of(settings, topic) == before, "a dry run changes nothing"
    done = change_topic(settings, topic, wanted)
    assert done == planned
    assert {one.setting: (one.before, one.after) for one in done} == {
        "retention.ms": (before["retention.ms"], "86400000"),
        "retention.bytes": (before["retention.bytes"], str(64 * MIB)),
        "segment.bytes": (before["segment.bytes"], str(8 * MIB)),
    }
    assert config_of(settings, topic) == before | wanted, "back only when Kafka shows it"
    assert change_topic(settings, topic, wanted) == [], "twice is once"
    unlimited = change_topic(settings, topic, retention_config(-1, -1))
    assert [one.after for one in unlimited] == ["-1", "-1"]
    change_topic(settings, topic, settings_config(settings, topic))
    assert config_of(settings, topic) == before, "as the settings say again"


def test_each_setting_of_a_topic_of_others_is_changed(settings: KafkaSettings, unique_name: str) -> None:
    make_topics(settings.bootstrap_servers, NewTopic(unique_name, 1, 1))
    before = config_of(settings, unique_name)
    wanted = {
        "cleanup.policy": "compact, delete", "min.cleanable.dirty.ratio": "0.10", "retention.ms": "60000",
        "unclean.leader.election.enable": "TRUE",
    }  # fmt: skip
    assert change_topic(settings, unique_name, wanted, dry_run=True) and config_of(settings, unique_name) == before
    done = change_topic(settings, unique_name, wanted)
    assert [(one.setting, one.before, one.after) for one in done] == [(key, before[key], wanted[key]) for key in wanted]
    assert config_of(settings, unique_name) == before | {
        "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.1", "retention.ms": "60000",
        "unclean.leader.election.enable": "true",
    }  # fmt: skip
    assert change_topic(settings, unique_name, wanted) == [], "Kafka writes the same in its own form"
    with pytest.raises(ConfigError, match=r"has no setting 'retention.mss'.*Did you mean retention.ms\?"):
        change_topic(settings, unique_name, {"retention.mss": "1"})
    with pytest.raises(ConfigError, match=f"Kafka rejects these settings of topic {unique_name}"):
        change_topic(settings, unique_name, {"retention.ms": "soon"}, readers=[LAND_GROUP])


def test_what_must_not_be_changed_is_refused(settings: KafkaSettings, topic: str, unique_name: str) -> None:
    wanted = retention_config(24, None)
    with pytest.raises(FatalError, match="internal topic of Kafka"):
        change_topic(settings, "__consumer_offsets", wanted)
    with pytest.raises(FatalError, match="is not one of Tidegate's"):
        settings_config(settings, unique_name)
    for key, value in (
        ("cleanup.policy", "compact"),
        ("message.timestamp.type", "CreateTime"),
        ("max.message.bytes", "1"),
    ):
        with pytest.raises(FatalError, match=rf"is Tidegate's, which relies on its {key}.*--as-settings"):
            change_topic(settings, topic, {key: value})
    with pytest.raises(FatalError, match=r"has no topic telemetry\.stream\.none-.*`tidegate topics ls --all`"):
        change_topic(settings, stream_topic(f"none-{unique_name}"), wanted)
    before = config_of(settings, topic)
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match=f"Kafka rejects these settings of topic {topic}"):
            change_topic(settings, topic, {"retention.ms": "-5"}, dry_run=dry_run)
    assert config_of(settings, topic) == before


def test_a_kafka_that_is_not_there_changes_nothing(no_kafka: KafkaSettings, unique_name: str) -> None:
    with pytest.raises(RetryableError, match="failed while listing topics"):
        change_topic(no_kafka, stream_topic(unique_name), retention_config(24, None))


def test_less_is_kept_only_of_what_its_readers_have_read(
    settings: KafkaSettings, topic: str, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(settings, topic, 100)
    mirror = OffsetMirror(settings, unique_name)
    mirror.mirror({topic: {0: 10, 1: 0}})
    assert mirror.drain(30)
    less, more = retention_config(None, 16 * MIB), retention_config(None, -1)
    readers = [f"{unique_name}-reads-something-else", unique_name]
    # What came in within the last minute stays, so nobody loses it.
    assert change_topic(settings, topic, less, readers=readers, dry_run=True)
    monkeypatch.setattr("ingest.topics.retention.CLOSE_MS", -60_000)
    for dry_run in (True, False):
        with pytest.raises(FatalError, match=rf"{unique_name} has not read 90 records of {topic}.*--accept-loss"):
            change_topic(settings, topic, less, readers=readers, dry_run=dry_run)
    assert change_topic(settings, topic, less, dry_run=True), "accepted: no reader is asked"
    assert change_topic(settings, topic, more, readers=readers), "more is kept: nobody loses"
    (found,) = topic_overviews(settings, lambda name: name == topic, with_times=False)
    mirror.mirror({topic: {one.partition: one.end or 0 for one in found.partitions}})
    assert mirror.drain(30)
    mirror.close()
    assert change_topic(settings, topic, less, readers=readers)


def test_a_landing_that_never_read_has_all_of_it_to_read(empty_kafka: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = KafkaSettings(bootstrap_servers=empty_kafka.bootstrap_servers, partitions=2)
    ensure_topics(settings)
    fill(settings, READINGS, 50)
    monkeypatch.setattr("ingest.topics.retention.CLOSE_MS", -60_000)
    with pytest.raises(FatalError, match="has not read 50 records"):
        change_topic(settings, READINGS, retention_config(None, 8 * MIB), readers=[LAND_GROUP])
    assert change_topic(settings, DEAD_LETTERS, retention_config(None, 8 * MIB), readers=[LAND_GROUP]), "it is empty"
    with pytest.raises(ConfigError, match="is compacted"):
        change_topic(settings, GATEWAY_STATE, retention_config(24, None))
    assert change_topic(settings, GATEWAY_STATE, settings_config(settings, GATEWAY_STATE)) == []

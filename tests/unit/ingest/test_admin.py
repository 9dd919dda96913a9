"""Kafka's answers that do not come, without a Kafka."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from ingest.contract.errors import ConfigError, RetryableError
from ingest.contract.topics import READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.topics.copies import Copies, TopicCopies, copies_config, wanted_copies
from ingest.topics.describe import TopicState, describe_topics
from ingest.topics.setup import create_topic, ensure_topics, topic_differences


class SilentClient:
    """An admin client whose questions get no answer."""

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, "Future[None]"]:
        return {topic.topic: Future() for topic in topics}

    def describe_configs(self, _resources: list[Any], **_: Any) -> dict[Any, "Future[Any]"]:
        return {ConfigResource(ResourceType.TOPIC, READINGS): Future()}


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.topics.admin.TIMEOUT_SECONDS", -1)
    for module in ("setup", "describe"):
        monkeypatch.setattr(f"ingest.topics.{module}.admin_client", lambda _settings: SilentClient())
    monkeypatch.setattr("ingest.topics.setup.read_copies", lambda *_: TopicCopies(brokers=1))


def test_topics_that_are_not_made_in_time_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.topics.setup.partition_counts", lambda *_: {})
    made: list[str] = []
    with pytest.raises(RetryableError, match=r"creating topic .*: no answer in time"):
        ensure_topics(KafkaSettings(), on_made=made.append)
    assert made == []


def test_a_topic_that_is_not_described_in_time_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.topics.describe.partition_counts", lambda *_: {READINGS: 1})
    with pytest.raises(RetryableError, match=r"describing topic telemetry\.readings: no answer in time"):
        describe_topics(KafkaSettings(), [READINGS])


def test_more_copies_than_brokers_are_refused_by_their_number_and_both_places_that_set_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of `topics create -r 5` the settings say nothing, so nobody may look for the fault there alone."""

    class OneBroker:
        def create_topics(self, topics: list[Any], **_: Any) -> dict[str, "Future[None]"]:
            futures: dict[str, Future[None]] = {topic.topic: Future() for topic in topics}
            for future in futures.values():
                future.set_exception(KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, "1 broker.")))
            return futures

    monkeypatch.setattr("ingest.topics.setup.partition_counts", lambda *_: {})
    monkeypatch.setattr("ingest.topics.setup.admin_client", lambda _settings: OneBroker())
    settings = KafkaSettings(replication=5)
    wanted = "with 5 copies: 1 broker. Set --replication, or kafka.replication in the settings, to at most the number of brokers"
    for make in (lambda: ensure_topics(settings), lambda: create_topic(settings, "t", partitions=1)):
        with pytest.raises(ConfigError, match=wanted) as fault:
            make()
        assert "kafka.replication = 5" not in str(fault.value)


@pytest.mark.parametrize(
    ("brokers", "wanted"),
    [(1, Copies(1, 1)), (2, Copies(2, 2)), (3, Copies(3, 2)), (7, Copies(3, 2)), (0, Copies(1, 1))],
)
def test_without_a_number_topics_get_three_copies_or_as_many_as_there_are_brokers(brokers: int, wanted: Copies) -> None:
    assert wanted_copies(KafkaSettings(), brokers) == wanted


def test_settings_win_and_all_copies_but_one_must_be_in_sync() -> None:
    assert wanted_copies(KafkaSettings(replication=1), 3) == Copies(1, 1)
    assert wanted_copies(KafkaSettings(replication=5), 9) == Copies(5, 4)
    assert wanted_copies(KafkaSettings(replication=3, min_in_sync=1), 3) == Copies(3, 1)
    assert copies_config(Copies(1, 1)) == {}
    assert copies_config(Copies(2, 2)) == {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    with pytest.raises(ValueError, match=r"Set kafka\.min_in_sync to at most kafka\.replication"):
        KafkaSettings(replication=2, min_in_sync=3)


def test_a_topic_with_one_copy_on_three_brokers_differs_in_copies_and_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """K17: an acknowledged record was on one disk, and nothing said so."""
    state = TopicState(6, {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"})
    monkeypatch.setattr("ingest.topics.setup.describe_topics", lambda *_: {READINGS: state})
    monkeypatch.setattr("ingest.topics.setup.read_copies", lambda *_: TopicCopies(3, {READINGS: 1}))
    (first, second) = topic_differences(KafkaSettings())[READINGS]
    assert "has min.insync.replicas=1, the settings say 2" in first
    assert "`tidegate topics set telemetry.readings --as-settings`" in first
    assert "has 1 copy of each partition, the settings say 3" in second
    assert "kafka-reassign-partitions" in second
    monkeypatch.setattr("ingest.topics.setup.read_copies", lambda *_: TopicCopies(1, {READINGS: 1}))
    assert topic_differences(KafkaSettings()) == {READINGS: []}, "one broker cannot have more"

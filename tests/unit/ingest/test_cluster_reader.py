"""What a look makes of answers that real brokers give only for a moment: errors of one topic, one leader that hangs."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ingest.contract.errors import RetryableError
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_reader import ClusterReader
from ingest.lag.cluster_state import PartitionState

PARTITIONS = [
    PartitionState("a", 0, None, None, 1, (1,), (1,)),
    PartitionState("b", 0, None, None, 1, (1,), (1,)),
    PartitionState("b", 1, None, None, 2, (2,), (2,)),
    PartitionState("b", 2, None, None, -1, (1,), ()),
]

Reader = Callable[..., ClusterReader]


class Brokers:
    """Answers offsets, but an error where the partition has one."""

    def __init__(self, errors: dict[tuple[str, int], int]) -> None:
        self._errors = errors

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        for one in asked:
            if (one.topic, one.partition) in self._errors:
                raise KafkaException(KafkaError(self._errors[one.topic, one.partition]))
        return [TopicPartition(one.topic, one.partition, 9 if one.offset == -1 else 3) for one in asked]

    def poll(self, timeout: float) -> None:
        """Nothing to tell."""

    def close(self) -> None:
        """Nothing to free."""


@pytest.fixture
def reader() -> Reader:
    def make(errors: dict[tuple[str, int], int]) -> ClusterReader:
        made = ClusterReader(KafkaSettings(bootstrap_servers="127.0.0.1:1"))
        made._consumer.close()
        made._consumer = Brokers(errors)
        return made

    return make


def known(reader: ClusterReader) -> dict[tuple[str, int], Any]:
    return {(one.topic, one.partition): (one.oldest, one.end) for one in reader.with_offsets(PARTITIONS, 1.0)}


def test_a_partition_without_leader_is_there_without_offsets(reader: Reader) -> None:
    both = (3, 9)
    assert known(reader({})) == {("a", 0): both, ("b", 0): both, ("b", 1): both, ("b", 2): (None, None)}


def test_an_error_of_one_topic_leaves_the_others(reader: Reader) -> None:
    found = known(reader({("a", 0): KafkaError.NOT_LEADER_FOR_PARTITION}))
    assert found[("a", 0)] == (None, None)
    assert found[("b", 0)] == found[("b", 1)] == (3, 9)


def test_errors_of_all_topics_are_still_an_answer(reader: Reader) -> None:
    errors = {(one.topic, one.partition): KafkaError.TOPIC_AUTHORIZATION_FAILED for one in PARTITIONS}
    assert set(known(reader(errors)).values()) == {(None, None)}


def test_a_leader_that_hangs_leaves_the_other_leaders(reader: Reader) -> None:
    found = known(reader({("a", 0): KafkaError._TIMED_OUT}))
    assert found[("a", 0)] == found[("b", 0)] == (None, None)
    assert found[("b", 1)] == (3, 9)


def test_leaders_that_all_hang_are_no_answer(reader: Reader) -> None:
    with pytest.raises(RetryableError, match="does not return offsets"):
        known(reader({("a", 0): KafkaError._TIMED_OUT, ("b", 1): KafkaError._TRANSPORT}))

"""Committed offsets of one consumer group, and the records at those offsets. Never joins the group, never commits."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ingest.clients import make_client
from ingest.contract.errors import RetryableError
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_reader import monitor_conf
from ingest.login_renewal import LoginRenewal

__all__ = ["GroupReader"]

Where = tuple[str, int]
"""Topic and partition."""
_NONE: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
"""Errors that mean that no such record exists."""


class GroupReader:
    """Reader of one group; a Kafka client has only one group. Not thread-safe.

    Attributes:
        refused: topics whose records this user may not read, with Kafka's error text.
    """

    # Not AdminClient.list_consumer_group_offsets, which could ask for all groups: see ingest/groups/offset_mirror.py.

    def __init__(self, settings: KafkaSettings, group: str, on_error: Callable[[KafkaError], None]) -> None:
        self.refused: dict[str, str] = {}
        self._group, self._login = group, LoginRenewal(settings)
        self._consumer = make_client(Consumer, monitor_conf(settings, group, on_error), settings)
        self._met: set[str] = set()

    def committed(self, partitions: Sequence[Where], timeout_seconds: float) -> dict[Where, int]:
        """Return the next offset to read, for each partition with a commit.

        Raises:
            RetryableError: Kafka does not return the offsets: a new cluster has no coordinator at first, and the user may lack
                the right to see this group. The error shows that the lag is unknown.
        """
        self._login.apply(self._consumer)
        if not partitions:
            return {}
        self._consumer.poll(0)
        try:
            answers = self._consumer.committed([TopicPartition(*where) for where in partitions], timeout_seconds)
        except KafkaException as error:
            raise RetryableError(self._error_text(error.args[0])) from error
        if wrong := next((one.error for one in answers if one.error is not None), None):
            raise RetryableError(self._error_text(wrong))
        return {(one.topic, one.partition): one.offset for one in answers if one.offset >= 0}

    def _error_text(self, error: KafkaError) -> str:
        # The client retries a refused request until its time is up, and then reports only a timeout.
        return (
            f"The monitor cannot read the committed offsets of group {self._group} ({error.str()}): "
            "its user may not describe the group and its topics, or their broker does not answer."
        )

    def append_times(self, positions: Mapping[Where, int], timeout_seconds: float) -> dict[Where, int]:
        """Return when the first record at or after each position was appended, in ms. Late answers are missing."""
        found = self.records(positions, timeout_seconds)
        return {where: message.timestamp()[1] for where, message in found.items() if message is not None}

    def records(self, positions: Mapping[Where, int], timeout_seconds: float) -> dict[Where, Message | None]:
        """Return the first record at or after each position.

        Returns:
            None where Kafka has no such record. Positions without an answer in time are missing.
        """
        self._login.apply(self._consumer)
        if not positions:
            return {}
        left, found = set(positions), dict[Where, Message | None]()
        until = time.monotonic() + timeout_seconds
        try:
            self._meet({topic for topic, _ in positions}, timeout_seconds)
            self._consumer.assign([TopicPartition(topic, number, at) for (topic, number), at in positions.items()])
            while left and (wait := until - time.monotonic()) > 0:
                self._take(wait, left, found)
        except KafkaException:
            pass
        finally:
            self._consumer.unassign()
        return found

    def _meet(self, topics: set[str], timeout_seconds: float) -> None:
        """Ask for topics that are new here. The client itself would ask only a second after the first record is needed."""
        for topic in topics - self._met:
            self._consumer.list_topics(topic, timeout=timeout_seconds)
            self._met.add(topic)

    def _take(self, wait_seconds: float, left: set[Where], found: dict[Where, Message | None]) -> None:
        for message in self._consumer.consume(1, min(wait_seconds, 0.1)):
            topic, number = message.topic(), message.partition()
            if topic is None or number is None or (topic, number) not in left:
                continue
            # An error ends this partition's turn: its end was reached, or retention deleted the wanted record.
            if (error := message.error()) is None:
                found[topic, number] = message
                self.refused.pop(topic, None)
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self.refused[topic] = error.str()
            elif error.code() in _NONE:
                found[topic, number] = None
            left.remove((topic, number))
            self._consumer.incremental_unassign([TopicPartition(topic, number)])

    def close(self) -> None:
        """Free the client."""
        self._consumer.close()

"""What one consumer group has committed, and the records at which it stands; it never joins the group nor commits."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ingest.clients import make_client
from ingest.cluster_reader import monitor_conf
from ingest.contract.errors import RetryableError
from ingest.settings import KafkaSettings

__all__ = ["GroupReader"]

Where = tuple[str, int]
"""Topic and partition."""
_NONE: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
"""Errors that say that there is no such record."""


class GroupReader:
    """One client per group, since a Kafka client has one group. Not thread-safe.

    Attributes:
        refused: topics whose records this user may not read, with Kafka's words.
    """

    # Not AdminClient.list_consumer_group_offsets, which could ask for all groups: see ingest/groups.py.

    def __init__(self, settings: KafkaSettings, group: str, on_error: Callable[[KafkaError], None]) -> None:
        self.refused: dict[str, str] = {}
        self._group = group
        self._consumer = make_client(Consumer, monitor_conf(settings, group, on_error), settings)
        self._met: set[str] = set()

    def committed(self, partitions: Sequence[Where], timeout_seconds: float) -> dict[Where, int]:
        """Next offset to be read, where one was committed.

        Raises:
            RetryableError: Kafka does not tell: a new cluster has no coordinator at first, and a user may not be allowed to see
                this group. Without this nobody would know that its lag is not known.
        """
        if not partitions:
            return {}
        self._consumer.poll(0)
        try:
            answers = self._consumer.committed([TopicPartition(*where) for where in partitions], timeout_seconds)
        except KafkaException as error:
            raise RetryableError(self._untold(error.args[0])) from error
        if wrong := next((one.error for one in answers if one.error is not None), None):
            raise RetryableError(self._untold(wrong))
        return {(one.topic, one.partition): one.offset for one in answers if one.offset >= 0}

    def _untold(self, error: KafkaError) -> str:
        # The client tries again what was refused until its time is up, and then tells no more than that.
        return (
            f"Kafka does not tell the monitor how far the group {self._group} has read ({error.str()}): "
            "the monitor's user may not describe that group and its topics, or their broker does not answer."
        )

    def append_times(self, positions: Mapping[Where, int], timeout_seconds: float) -> dict[Where, int]:
        """When the first record at or after each position was appended, in ms; those that did not come in time are missing."""
        found = self.records(positions, timeout_seconds)
        return {where: message.timestamp()[1] for where, message in found.items() if message is not None}

    def records(self, positions: Mapping[Where, int], timeout_seconds: float) -> dict[Where, Message | None]:
        """The first record at or after each position.

        Returns:
            None where Kafka has no such record; positions whose answer did not come in time are missing.
        """
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
        """Ask for topics that are new here; the client itself would ask a second after the first record is wanted."""
        for topic in topics - self._met:
            self._consumer.list_topics(topic, timeout=timeout_seconds)
            self._met.add(topic)

    def _take(self, wait_seconds: float, left: set[Where], found: dict[Where, Message | None]) -> None:
        for message in self._consumer.consume(1, min(wait_seconds, 0.1)):
            topic, number = message.topic(), message.partition()
            if topic is None or number is None or (topic, number) not in left:
                continue
            # An error ends this partition's turn: its end was reached, or retention took what was asked for.
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

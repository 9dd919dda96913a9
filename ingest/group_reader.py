"""What one consumer group has committed, and the records at which it stands; it never joins the group nor commits."""

import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ingest.clients import make_client
from ingest.cluster_reader import monitor_conf
from ingest.settings import KafkaSettings

__all__ = ["GroupReader"]

Where = tuple[str, int]
"""Topic and partition."""


class GroupReader:
    """One client per group, since a Kafka client has one group. Not thread-safe."""

    # Not AdminClient.list_consumer_group_offsets, which could ask for all groups: see ingest/groups.py.

    def __init__(self, settings: KafkaSettings, group: str, on_error: Callable[[KafkaError], None]) -> None:
        self._consumer = make_client(Consumer, monitor_conf(settings, group, on_error), settings)
        self._met: set[str] = set()

    def committed(self, partitions: Sequence[Where], timeout_seconds: float) -> dict[Where, int] | None:
        """Next offset to be read, where one was committed; None where Kafka does not tell.

        A new cluster has no coordinator at first, and a user may not be allowed to see this group.
        """
        if not partitions:
            return {}
        self._consumer.poll(0)
        try:
            answers = self._consumer.committed([TopicPartition(*where) for where in partitions], timeout_seconds)
        except KafkaException:
            return None
        return {(one.topic, one.partition): one.offset for one in answers if one.error is None and one.offset >= 0}

    def append_times(self, positions: Mapping[Where, int], timeout_seconds: float) -> dict[Where, int]:
        """When the first record at or after each position was appended, in ms; those that did not come in time are missing."""
        if not positions:
            return {}
        left, found = set(positions), dict[Where, int]()
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

    def _take(self, wait_seconds: float, left: set[Where], found: dict[Where, int]) -> None:
        for message in self._consumer.consume(1, min(wait_seconds, 0.1)):
            topic, number = message.topic(), message.partition()
            if topic is None or number is None or (topic, number) not in left:
                continue
            # An error ends this partition's turn: its end was reached, or retention took what was asked for.
            if message.error() is None:
                found[topic, number] = message.timestamp()[1]
            left.remove((topic, number))
            self._consumer.incremental_unassign([TopicPartition(topic, number)])

    def close(self) -> None:
        """Free the client."""
        self._consumer.close()

"""Read topics, offsets and settings of Kafka, each within a time limit, with one client that lives as long as its owner."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from ingest.clients import make_client
from ingest.contract.errors import RetryableError
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_state import PartitionState, TopicRetention, TopicSettings
from ingest.login_renewal import LoginRenewal
from ingest.security import client_conf, consumer_conf

__all__ = ["ClusterReader", "monitor_conf"]

CLIENT_ID: Final = "tidegate-monitor"
_LEADER_SECONDS: Final = 1.2
_EARLIEST: Final = -2
_LATEST: Final = -1
"""Kafka's own special times. librdkafka passes them through, so one request per broker covers all partitions."""

Where = tuple[str, int]
"""Topic and partition."""
Ends = dict[Where, tuple[int, int]]
"""Oldest offset that exists, and the next to be written."""


def monitor_conf(settings: KafkaSettings, group: str, on_error: Callable[[KafkaError], None]) -> dict[str, Any]:
    """Return the options of a consumer that joins no group, fetches single records, and gives up on a hanging broker."""
    return consumer_conf(settings, client_id=CLIENT_ID, group=group) | {
        "error_cb": on_error,
        "log_level": 0,
        "isolation.level": "read_uncommitted",
        "enable.partition.eof": True,
        # Only one record is needed, so fetch at most one batch and do not make the next partition wait.
        "queued.min.messages": 1,
        "fetch.message.max.bytes": 64 * 1024,
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 100,
        # After this a request without an answer ends its connection, so that the client asks another broker.
        "socket.timeout.ms": 5000,
        "socket.connection.setup.timeout.ms": 3000,
        "reconnect.backoff.max.ms": 1000,
    }


class ClusterReader:
    """Reader of cluster metadata. Not thread-safe: only one thread may ask.

    Attributes:
        reason: why Kafka last did not answer, for people.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self.reason, self._servers = "", settings.bootstrap_servers
        self._login = LoginRenewal(settings)
        self._consumer = make_client(Consumer, monitor_conf(settings, CLIENT_ID, self._note), settings)
        quiet: dict[str, Any] = {"error_cb": lambda _error: None, "log_level": 0, "socket.timeout.ms": 5000}
        self._admin = make_client(AdminClient, client_conf(settings, client_id=CLIENT_ID) | quiet, settings)

    def topics(self, wanted: Callable[[str], bool], timeout_seconds: float) -> tuple[int, list[PartitionState]]:
        """Return the number of brokers, and the partitions of the wanted topics without their offsets.

        Raises:
            RetryableError: Kafka does not answer.
        """
        self._login.apply(self._consumer, self._admin)
        self._consumer.poll(0)
        try:
            found = self._consumer.list_topics(timeout=timeout_seconds)
        except KafkaException as error:
            self._consumer.poll(0)
            message = f"Kafka at {self._servers} does not answer: {self.reason or error.args[0].str()}"
            raise RetryableError(message) from error
        self.reason = ""
        partitions = [
            PartitionState(name, number, None, None, one.leader, tuple(sorted(one.replicas)), tuple(sorted(one.isrs)))
            for name, topic in sorted(found.topics.items())
            if wanted(name)
            for number, one in sorted(topic.partitions.items())
        ]
        return len(found.brokers), partitions

    def with_offsets(self, partitions: Sequence[PartitionState], timeout_seconds: float) -> list[PartitionState]:
        """Return the same partitions with both ends where their leader answers; a hanging leader leaves time for the others.

        Raises:
            RetryableError: no leader answers.
        """
        until = time.monotonic() + timeout_seconds
        ends: Ends = {}
        silent = ""
        for leader in sorted({one.leader for one in partitions if one.leader >= 0}):
            asked = [one for one in partitions if one.leader == leader]
            try:
                ends |= self._ends(asked, until)
            except KafkaException as error:
                # Negative codes are the client's own errors, so there was no answer. Others are an answer for one topic.
                if error.args[0].code() < 0:
                    silent = error.args[0].str()
                else:
                    ends |= self._ends_by_topic(asked, until)
        if silent and not ends:
            message = f"Kafka at {self._servers} does not return offsets: {silent}"
            raise RetryableError(message)
        return [_with_ends(one, ends.get((one.topic, one.partition))) for one in partitions]

    def _ends_by_topic(self, partitions: Sequence[PartitionState], until: float) -> Ends:
        """Ask topic by topic, for the moment in which one topic has no leader: the others have one."""
        ends: Ends = {}
        for topic in {one.topic for one in partitions}:
            with suppress(KafkaException):
                ends |= self._ends([one for one in partitions if one.topic == topic], until)
        return ends

    def _ends(self, partitions: Sequence[PartitionState], until: float) -> Ends:
        oldest, newest = (self._at(partitions, when, until) for when in (_EARLIEST, _LATEST))
        return {where: (oldest[where], newest[where]) for where in oldest.keys() & newest.keys()}

    def _at(self, partitions: Sequence[PartitionState], time_ms: int, until: float) -> dict[Where, int]:
        wait = max(0.05, min(_LEADER_SECONDS, until - time.monotonic()))
        asked = [TopicPartition(one.topic, one.partition, time_ms) for one in partitions]
        answers = self._consumer.offsets_for_times(asked, timeout=wait)
        return {(one.topic, one.partition): one.offset for one in answers if one.error is None and one.offset >= 0}

    def topic_settings(self, topics: Sequence[str], timeout_seconds: float) -> dict[str, TopicSettings]:
        """Return the settings of each topic; topics that this user may not describe are left out.

        Raises:
            RetryableError: Kafka does not answer.
        """
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        found: dict[str, TopicSettings] = {}
        if not resources:
            return found
        for resource, future in self._admin.describe_configs(resources, request_timeout=timeout_seconds).items():
            try:
                entries = future.result(timeout_seconds + 0.2)
            except TimeoutError as error:
                message = "Kafka did not return the topics' settings in time"
                raise RetryableError(message) from error
            except KafkaException:
                continue
            config = {key: entry.value for key, entry in entries.items()}
            found[resource.name] = TopicSettings(_retention(config), int(config.get("min.insync.replicas", 1)))
        return found

    def retention(self, topics: Sequence[str], timeout_seconds: float) -> dict[str, TopicRetention]:
        """Return how each topic loses records; raises and leaves out as `topic_settings` does."""
        return {topic: one.retention for topic, one in self.topic_settings(topics, timeout_seconds).items()}

    def newest(self, topic: str, partition: int, timeout_seconds: float) -> tuple[int, int] | None:
        """Return offset and time in ms of the partition's newest record; None where Kafka does not return it."""
        self._login.apply(self._consumer, self._admin)
        asked = {TopicPartition(topic, partition): OffsetSpec.max_timestamp()}
        for future in self._admin.list_offsets(asked, request_timeout=timeout_seconds).values():
            try:
                answer = future.result(timeout_seconds + 0.2)
            except (KafkaException, TimeoutError):
                return None
            return (answer.offset, answer.timestamp) if answer.offset >= 0 and answer.timestamp > 0 else None
        return None

    def close(self) -> None:
        """Free the client."""
        self._consumer.close()

    def _note(self, error: KafkaError) -> None:
        # "All brokers are down" follows each reason and adds nothing.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.reason = error.str()


def _with_ends(one: PartitionState, ends: tuple[int, int] | None) -> PartitionState:
    oldest, end = ends or (None, None)
    return PartitionState(one.topic, one.partition, oldest, end, one.leader, one.replicas, one.in_sync)


def _retention(config: Mapping[str, str]) -> TopicRetention:
    deletes = "delete" in config.get("cleanup.policy", "delete")

    def limit(key: str, unit: float = 1.0) -> float:
        value = float(config.get(key, -1))
        return value / unit if deletes and value >= 0 else math.inf

    return TopicRetention(
        seconds=limit("retention.ms", 1000.0),
        size_bytes=limit("retention.bytes"),
        segment_bytes=float(config.get("segment.bytes", math.inf)),
        by_append_time=config.get("message.timestamp.type") == "LogAppendTime",
        policy=config.get("cleanup.policy", "delete"),
    )

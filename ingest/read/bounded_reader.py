"""Reader of ranges of a topic's partitions for a look: no group, no commits, and limits of records, bytes and seconds."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import ClusterMetadata

from ingest.clients import make_client
from ingest.contract.errors import RetryableError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_reader import CLIENT_ID, monitor_conf
from ingest.topics.offsets import PAUSE_SECONDS, leader_moves
from ingest.topics.rights import missing_right

__all__ = ["BoundedReader", "BrowseBudget"]

_WAIT_SECONDS: Final = 0.1
_BATCH_RECORDS: Final = 500
_EARLIEST: Final = -2
_LATEST: Final = -1
"""Kafka's own special times."""
_NOT_THERE: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
_NO_ANSWER: Final = "does not answer"
_NO_OFFSETS: Final = "does not return the offsets of topic {}"
_NOTHING: Final = "sent no records of topic {}"

Ends = dict[int, tuple[int, int]]
"""Partition -> the oldest existing offset, and the next to be written."""


@dataclass(slots=True)
class BrowseBudget:
    """Remaining cost of one look; it only falls."""

    records: int
    bytes: int
    until: float
    looked: int = 0
    looked_bytes: int = 0

    @property
    def spent(self) -> str | None:
        """Limit that is used up; None while something is left of each."""
        if self.looked >= self.records:
            return "records"
        if self.looked_bytes >= self.bytes:
            return "bytes"
        return "seconds" if self.seconds_left <= 0 else None

    @property
    def seconds_left(self) -> float:
        """Seconds until the look must end."""
        return self.until - time.monotonic()

    def take(self, size_bytes: int) -> None:
        """Count one record that was read."""
        self.looked += 1
        self.looked_bytes += size_bytes


class BoundedReader:
    """Client for one look at one topic. A context manager, which frees the client at its end."""

    def __init__(self, settings: KafkaSettings, topic: str, budget: BrowseBudget) -> None:
        self._topic, self._budget, self._why, self._settings = topic, budget, "", settings
        # The client requires a group name. Nothing subscribes or commits, so Kafka never sees it.
        conf = monitor_conf(settings, CLIENT_ID, self._note) | {
            "queued.min.messages": _BATCH_RECORDS,
            "fetch.message.max.bytes": 1024 * 1024,
            "fetch.max.bytes": 8 * 1024 * 1024,
            "queued.max.messages.kbytes": 8 * 1024,
            "socket.timeout.ms": 3000,
        }
        self._consumer = make_client(Consumer, conf, settings)

    def __enter__(self) -> "BoundedReader":
        return self

    def __exit__(self, *_fault: object) -> None:
        self._consumer.close()

    def partitions(self) -> list[int]:
        """Return the topic's partitions.

        Raises:
            UnavailableError: the topic does not exist, or this user may not see it.
            RetryableError: Kafka does not answer.
        """
        # Ask for all topics first: some brokers create a missing topic when asked for it by name.
        if self._topic not in self._metadata().topics:
            message = f"Kafka at {self._settings.bootstrap_servers} has no topic {self._topic}"
            raise UnavailableError(message)
        return sorted(self._metadata(self._topic).topics[self._topic].partitions)

    def ends(self, partitions: list[int]) -> Ends:
        """Return both ends of the partitions whose leader answers.

        Raises:
            RetryableError: no leader answers.
        """
        oldest, newest = (self.offsets_at(partitions, when) for when in (_EARLIEST, _LATEST))
        found = {one: (oldest[one], newest[one]) for one in sorted(oldest.keys() & newest.keys())}
        if not found:
            raise self._unheard(_NO_OFFSETS)
        return found

    def offsets_at(self, partitions: list[int], time_ms: int) -> dict[int, int]:
        """Return the first offset at or after this time. A partition without one, or without an answer, is missing."""
        asked = [TopicPartition(self._topic, one, time_ms) for one in partitions]
        while True:
            try:
                answers = self._consumer.offsets_for_times(asked, timeout=max(0.05, self._budget.seconds_left))
                break
            except KafkaException as error:
                if not leader_moves(error) or self._budget.seconds_left <= PAUSE_SECONDS:
                    raise self._unheard(_NO_OFFSETS, error) from error
                time.sleep(PAUSE_SECONDS)
                # The client asks whom it knows as leader until it asks for the leaders again.
                self._metadata(self._topic)
        return {one.partition: one.offset for one in answers if one.error is None and one.offset >= 0}

    def read(self, stretches: Mapping[int, tuple[int, int]], take: Callable[[Message], bool]) -> dict[int, int]:
        """Read start <= offset < end of each partition, until the budget is spent.

        Args:
            stretches: start and end by partition.
            take: gets each record, by offset within a partition; false ends its partition.

        Returns:
            How far each partition was read: its end, or the next offset.

        Raises:
            RetryableError: Kafka sent nothing at all.
            MissingRightError: this user may not read it.
        """
        at = {one: start for one, (start, _end) in stretches.items()}
        left = {one: end for one, (start, end) in stretches.items() if start < end}
        heard = not left
        self._consumer.assign([TopicPartition(self._topic, one, at[one]) for one in left])
        try:
            while left and self._budget.spent is None:
                for message in self._consume():
                    heard |= self._hear(message, at, left, take)
        finally:
            self._consumer.unassign()
        if not heard and not self._budget.looked:
            raise self._unheard(_NOTHING)
        return at

    def _consume(self) -> list[Message]:
        """Return the records that have come. It waits only for the first: a wait for a full batch lasts to its end."""
        wait = max(0.0, min(_WAIT_SECONDS, self._budget.seconds_left))
        first = self._consumer.consume(1, wait)
        return first + self._consumer.consume(_BATCH_RECORDS, 0) if first else first

    def _hear(
        self, message: Message, at: dict[int, int], left: dict[int, int], take: Callable[[Message], bool]
    ) -> bool:
        number, offset, error = message.partition(), message.offset(), message.error()
        if error is not None and (number is None or number < 0):
            self._refuse(error)
            return False
        if number not in left or number is None or offset is None:
            return False
        if error is not None:
            self._refuse(error)
            # The end was reached without a record at its last offsets, or retention deleted the wanted records.
            at[number] = left[number]
            self._leave(number, left)
            return True
        if offset >= left[number]:
            at[number] = left[number]
            self._leave(number, left)
            return True
        if self._budget.spent:
            return True
        at[number] = offset + 1
        self._budget.take(len(message.key() or b"") + len(message.value() or b""))
        if not take(message) or at[number] >= left[number]:
            self._leave(number, left)
        return True

    def _leave(self, number: int, left: dict[int, int]) -> None:
        del left[number]
        self._consumer.incremental_unassign([TopicPartition(self._topic, number)])

    def _refuse(self, error: KafkaError) -> None:
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise missing_right(self._settings, f"read topic {self._topic}", "READ")
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise missing_right(self._settings, f"read as group {CLIENT_ID}", "READ", "group")
        if error.code() in _NOT_THERE:
            message = f"Topic {self._topic} no longer exists in Kafka"
            raise UnavailableError(message)

    def _metadata(self, topic: str | None = None) -> ClusterMetadata:
        try:
            wait = max(0.05, self._budget.seconds_left)
            found: ClusterMetadata = (
                self._consumer.list_topics(topic, wait) if topic else self._consumer.list_topics(timeout=wait)
            )
        except KafkaException as error:
            self._consumer.poll(0)
            raise self._unheard(_NO_ANSWER, error) from error
        return found

    def _unheard(self, what: str, error: KafkaException | None = None) -> RetryableError:
        why = self._why or (error.args[0].str() if error is not None else "")
        reason = f" ({why})" if why else ""
        where = f"Kafka at {self._settings.bootstrap_servers}"
        return RetryableError(f"{where} {what.format(self._topic)} in time{reason}: check that it is up")

    def _note(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._why = error.str()

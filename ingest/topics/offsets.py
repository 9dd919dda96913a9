"""Offsets of a topic in Kafka: the oldest, the next, and those of a time."""

import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import TIMEOUT_SECONDS, admin_client, no_answer_error, partition_counts, result_of
from ingest.topics.rights import is_denied, missing_right, topic_not_found

__all__ = ["PAUSE_SECONDS", "begin_offsets", "end_offsets", "leader_moves", "offsets_at"]

PAUSE_SECONDS: Final = 0.1

_LEADER_MOVES: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        # The client knows an older leader than the broker, or the broker an older one than the client.
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        # A new leader does not know yet up to where the records are on all copies.
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)


def begin_offsets(settings: KafkaSettings, topic: str) -> dict[int, int]:
    """Return the oldest existing offset per partition."""
    return _offsets(settings, topic, OffsetSpec.earliest())


def end_offsets(settings: KafkaSettings, topic: str) -> dict[int, int]:
    """Return the next offset to be written per partition."""
    return _offsets(settings, topic, OffsetSpec.latest())


def offsets_at(settings: KafkaSettings, topic: str, time_ms: int) -> dict[int, int]:
    """Return per partition the first offset whose Kafka time is at or after `time_ms`; the end offset if there is none.

    A time before 1970 is before every record; Kafka itself reads -1 as the end and -2 as the beginning.
    """
    found = _offsets(settings, topic, OffsetSpec.for_timestamp(max(0, time_ms)))
    if all(offset >= 0 for offset in found.values()):
        return found
    ends = end_offsets(settings, topic)
    return {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}


def _offsets(settings: KafkaSettings, topic: str, spec: OffsetSpec) -> dict[int, int]:
    client = admin_client(settings)
    existing = partition_counts(client, settings)
    if topic not in existing:
        raise topic_not_found(settings, topic, existing)
    asked = {TopicPartition(topic, partition): spec for partition in range(existing[topic])}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            answers = client.list_offsets(asked, request_timeout=TIMEOUT_SECONDS)
            return {where.partition: result_of(answer).offset for where, answer in answers.items()}
        except (KafkaException, TimeoutError) as error:
            if is_denied(error):
                raise missing_right(settings, f"see the offsets of topic {topic}", "DESCRIBE") from error
            if not leader_moves(error) or time.monotonic() > deadline:
                raise no_answer_error(settings, error, f"asking for offsets of topic {topic}") from error
            time.sleep(PAUSE_SECONDS)
            # The client asks whom it knows as leader until it asks for the leaders again.
            partition_counts(client, settings)


def leader_moves(error: Exception) -> bool:
    """Return whether a partition has no known leader, as just after a topic was created or a broker left or came back."""
    return isinstance(error, KafkaException) and error.args[0].code() in _LEADER_MOVES

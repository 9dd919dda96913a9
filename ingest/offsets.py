"""Offsets of a topic as Kafka has them: its oldest, its next, and those of a time."""

import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ingest.admin import TIMEOUT_SECONDS, admin_client, partition_counts, result_of, unanswered
from ingest.settings import KafkaSettings
from ingest.topic_rights import is_denied, missing_right, no_topic

__all__ = ["begin_offsets", "end_offsets", "offsets_at"]

_NO_LEADER: Final = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART}
)


def begin_offsets(settings: KafkaSettings, topic: str) -> dict[int, int]:
    """Oldest offset that is still there, per partition."""
    return _offsets(settings, topic, OffsetSpec.earliest())


def end_offsets(settings: KafkaSettings, topic: str) -> dict[int, int]:
    """Next offset to be written, per partition."""
    return _offsets(settings, topic, OffsetSpec.latest())


def offsets_at(settings: KafkaSettings, topic: str, time_ms: int) -> dict[int, int]:
    """Per partition the first offset whose Kafka time is at or after `time_ms`; the end offset where there is none.

    A time before 1970 is before every record; Kafka itself takes -1 for the end and -2 for the beginning.
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
        raise no_topic(settings, topic, existing)
    asked = {TopicPartition(topic, partition): spec for partition in range(existing[topic])}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            answers = client.list_offsets(asked, request_timeout=TIMEOUT_SECONDS)
            return {where.partition: result_of(answer).offset for where, answer in answers.items()}
        except (KafkaException, TimeoutError) as error:
            if is_denied(error):
                raise missing_right(settings, f"see the offsets of topic {topic}", "DESCRIBE") from error
            if not _leads_nobody(error) or time.monotonic() > deadline:
                raise unanswered(settings, error, f"asking for offsets of topic {topic}") from error
            time.sleep(0.1)


def _leads_nobody(error: Exception) -> bool:
    """True in the moments after a topic was made, or a broker left, in which a partition has no known leader."""
    return isinstance(error, KafkaException) and error.args[0].code() in _NO_LEADER

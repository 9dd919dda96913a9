"""Reader of a known range of a topic, for audit and tools: no group, no commits, an end and a deadline."""

import time
from collections.abc import Iterator, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ingest.clients import make_client
from ingest.contract.errors import FatalError, RetryableError
from ingest.kafka_settings import KafkaSettings
from ingest.log import LogRecord
from ingest.security import consumer_conf
from ingest.topics.rights import missing_right

__all__ = ["read_range"]

BATCH_RECORDS: Final = 10_000
_WAIT_SECONDS: Final = 0.1
"""Longest wait of `consume` for a full batch. Each read ends with one such wait."""
_GONE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


def read_range(
    settings: KafkaSettings,
    topic: str,
    start: Mapping[int, int],
    until: Mapping[int, int],
    *,
    stall_seconds: float = 30.0,
    batch_records: int = BATCH_RECORDS,
) -> Iterator[list[LogRecord]]:
    """Yield the records with start <= offset < until of each partition, in batches.

    Args:
        settings: the cluster.
        topic: its name.
        start: first offset per partition; `begin_offsets` or `offsets_at`.
        until: offset per partition before which to stop; `end_offsets`.
        stall_seconds: how long Kafka may send nothing before this gives up.
        batch_records: largest batch. Use fewer if records may be large, because a batch is held in memory.

    Yields:
        Records, by offset within a partition, partitions mixed.

    Raises:
        RetryableError: Kafka stopped answering, or retention removed records while they were read.
        MissingRightError: this user may not read the topic.
    """
    left = {p: end for p, end in until.items() if start.get(p, 0) < end}
    conf = consumer_conf(settings, client_id="tidegate-reader", group="tidegate-reader")
    # Ask for the event at a partition's end: its last offsets may hold no record (compaction, transaction markers).
    conf |= {"enable.partition.eof": True, "error_cb": lambda _error: None, "log_level": 2}
    consumer = make_client(Consumer, conf, settings)
    try:
        consumer.assign([TopicPartition(topic, p, start.get(p, 0)) for p in left])
        heard_at = time.monotonic()
        while left:
            waited_for = len(left)
            batch = _within(consumer.consume(batch_records, _WAIT_SECONDS), left, settings, topic)
            if batch:
                yield batch
            if batch or len(left) < waited_for:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > stall_seconds:
                message = (
                    f"Kafka at {settings.bootstrap_servers} sent no records of topic {topic} for {stall_seconds:g} s, "
                    f"but records up to offset {max(left.values())} are missing: check that the broker is up"
                )
                raise RetryableError(message)
    finally:
        consumer.close()


def _within(messages: list[Message], left: dict[int, int], settings: KafkaSettings, topic: str) -> list[LogRecord]:
    """Return the records below their partition's end. Partitions that reached it are removed from `left`."""
    batch: list[LogRecord] = []
    for message in messages:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is not None:
            _check(error, settings, topic, partition)
        end = left.get(-1 if partition is None else partition)
        if end is None or partition is None or offset is None:
            continue
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF and offset >= end:
                del left[partition]
            continue
        if offset < end:
            batch.append(LogRecord(partition, offset, message.timestamp()[1], message.key(), message.value()))
        if offset >= end - 1:
            del left[partition]
    return batch


def _check(error: KafkaError, settings: KafkaSettings, topic: str, partition: int | None) -> None:
    if error.code() == KafkaError._PARTITION_EOF:
        return
    if error.code() in _GONE:
        message = f"Retention removed records of {topic}[{partition}] while they were read: run the command again"
        raise RetryableError(message) from KafkaException(error)
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise missing_right(settings, f"read topic {topic}", "READ") from KafkaException(error)
    if error.code() == KafkaError._UNKNOWN_PARTITION:
        message = f"Topic {topic} at {settings.bootstrap_servers} cannot be read: {error.str()}"
        raise FatalError(message) from KafkaException(error)

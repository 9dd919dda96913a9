"""Send records by hand: each is acknowledged by all replicas, or counted as failed with Kafka's error text."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ingest.clients import make_client
from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf
from ingest.topics.admin import admin_client, partition_counts
from ingest.topics.describe import describe_topics
from ingest.topics.rights import is_denied, missing_right, missing_rights, topic_not_found

__all__ = ["OutgoingRecord", "SendResult", "send_outgoing"]

_FLUSH_SECONDS: Final = 120.0
_FLUSH_STEP_SECONDS: Final = 0.5
_ANY: Final = -1


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to send; a value of None deletes its key in a compacted topic."""

    value: bytes | None
    key: bytes | None = None


@dataclass(slots=True)
class SendResult:
    """Result of sending: acknowledged and failed records, why they failed, and whether Ctrl-C ended it early.

    `denied`: a right was removed meanwhile.
    """

    acknowledged: int = 0
    failed: int = 0
    why: str = ""
    interrupted: bool = False
    denied: bool = False


def send_outgoing(
    settings: KafkaSettings,
    topic: str,
    records: Iterable[OutgoingRecord],
    *,
    partition: int | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> SendResult:
    """Send the records in order and wait for every acknowledgement, also for those before a Ctrl-C or a bad record.

    Args:
        settings: the cluster; its compression is used.
        topic: must exist; a mistyped name never creates one.
        records: read while sending, so a pipe may run for hours.
        partition: for all of them; without it, that of the key's hash as Kafka's own clients choose it.
        headers: of each record.

    Raises:
        FatalError: the topic does not exist.
        UnavailableError: the partition does not exist, or this user may not write to the topic (MissingRightError).
        RetryableError: Kafka does not answer.
    """
    known = partition_counts(admin_client(settings), settings)
    if topic not in known:
        raise topic_not_found(settings, topic, known)
    partitions = known[topic]
    if partition is not None and not 0 <= partition < partitions:
        message = f"Topic {topic} has no partition {partition}: it has {partitions}, counted from 0"
        raise UnavailableError(message)
    if "WRITE" in missing_rights(settings, topic):
        # The client itself would fail with its own error, because it may not even ask for a producer id.
        raise missing_right(settings, f"write to topic {topic}", "WRITE")
    done = SendResult()
    needs_key = _is_compacted(settings, topic)

    def report(error: KafkaError | None, _message: Message) -> None:
        if error is None:
            done.acknowledged += 1
        else:
            done.failed, done.why = done.failed + 1, error.str()
            if is_denied(error):
                done.denied, done.why = True, str(missing_right(settings, f"write to topic {topic}", "WRITE"))

    conf = client_conf(settings, client_id="tidegate-produce") | {
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "compression.type": settings.compression,
        "linger.ms": 5,
        "message.timeout.ms": 60_000,
        "message.max.bytes": max(settings.max_record_bytes, 1_000_000),
        "error_cb": lambda _error: None,
        "log_level": 0,
    }
    producer = make_client(Producer, conf, settings)
    where = _ANY if partition is None else partition
    try:
        for record in records:
            if needs_key and record.key is None:
                done.failed, done.why = done.failed + 1, f"topic {topic} is compacted, so each record needs a key"
                continue
            _one(producer, topic, record, where, list(headers), report, done)
            producer.poll(0)
    except KeyboardInterrupt:
        done.interrupted = True
    finally:
        waiting = _flush(producer)
    if waiting:
        done.failed, done.why = done.failed + waiting, f"no answer within {_FLUSH_SECONDS:g} s"
    return done


def _is_compacted(settings: KafkaSettings, topic: str) -> bool:
    """Return whether the topic is compacted: then Kafka also rejects the neighbours of a keyless record. False if unknown."""
    found = describe_topics(settings, [topic]).get(topic)
    return found is not None and "compact" in found.config.get("cleanup.policy", "")


def _flush(producer: Producer) -> int:
    """Wait for records in flight and return how many have no answer. Waits in short steps: a second Ctrl-C ends it."""
    deadline = time.monotonic() + _FLUSH_SECONDS
    while (waiting := producer.flush(_FLUSH_STEP_SECONDS)) and time.monotonic() < deadline:
        pass
    return int(waiting)


def _one(
    producer: Producer,
    topic: str,
    record: OutgoingRecord,
    partition: int,
    headers: list[tuple[str, bytes | None]],
    report: object,
    done: SendResult,
) -> None:
    while True:
        try:
            producer.produce(topic, record.value, record.key, partition, on_delivery=report, headers=headers)  # type: ignore[arg-type]
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            # Larger than the client sends: Kafka would reject it too.
            done.failed, done.why = done.failed + 1, error.args[0].str()
            return
        else:
            return

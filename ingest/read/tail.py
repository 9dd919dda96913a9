"""Records of one topic from a place on, and new ones as they come: no group, no commit, only one batch in memory."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as Place

from ingest.clients import make_client
from ingest.contract.errors import FatalError, RetryableError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.security import consumer_conf
from ingest.topics.offsets import begin_offsets, end_offsets, offsets_at
from ingest.topics.rights import missing_right

__all__ = ["SilenceDetector", "TailRecord", "TailStart", "judge_error", "tail", "tail_record"]

_WAIT_SECONDS: Final = 0.2
_BATCH: Final = 500
_SILENT_SECONDS: Final = 30.0
_TIME_TYPES: Final = {TIMESTAMP_CREATE_TIME: "create", TIMESTAMP_LOG_APPEND_TIME: "logappend"}


@dataclass(frozen=True, slots=True)
class TailStart:
    """Place to begin at in each partition.

    Attributes:
        kind: `beginning`, `end`, `last` (a number of records before the end), `offset` (an offset before the oldest record
            begins there) or `time`.
        at: a count, an offset or epoch ms.
    """

    kind: Literal["beginning", "end", "last", "offset", "time"]
    at: int = 0


@dataclass(frozen=True, slots=True)
class TailRecord:
    """One record of Kafka.

    Attributes:
        topic, partition, offset: its place.
        at_ms: its time in epoch ms; -1 if it has none.
        time_type: `create` is the producer's clock, `logappend` Kafka's; empty without a time.
        key, value: its bytes; None if there are none.
        headers: names and values in their order.
    """

    topic: str
    partition: int
    offset: int
    at_ms: int
    time_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def tail(
    settings: KafkaSettings,
    topic: str,
    start: TailStart,
    *,
    partition: int | None = None,
    stop: TailStart | None = None,
    follow: bool = True,
    ended: Callable[[], bool] = lambda: False,
) -> Iterator[TailRecord]:
    """Yield the records from `start` on, by offset within a partition, partitions mixed.

    Args:
        settings: the cluster.
        topic: its name.
        start: where to begin.
        partition: only this one.
        stop: the `time` before which to end; with it nothing is followed.
        follow: continue with later records; else it ends at the end offsets of the time of the call.
        ended: asked after each wait for records; True ends it.

    Raises:
        FatalError: the topic does not exist.
        UnavailableError: the partition does not exist, no partition has that offset yet, or this user may not read the
            topic (MissingRightError).
        RetryableError: Kafka does not answer; also while it follows, after half a minute without a broker.
    """
    oldest, ends = begin_offsets(settings, topic), end_offsets(settings, topic)
    if partition is not None and partition not in ends:
        message = f"Topic {topic} has no partition {partition}: it has {len(ends)}, counted from 0"
        raise UnavailableError(message)
    chosen = [one for one in sorted(ends) if partition in (None, one)]
    if start.kind == "offset" and all(start.at > ends[one] for one in chosen):
        where = ", ".join(f"[{one}] at {ends[one]}" for one in chosen[:20])
        message = f"Topic {topic} has no offset {start.at} yet; it ends at {where}: begin earlier, or at `end`"
        raise UnavailableError(message)
    starts = _starts(settings, topic, start, oldest, ends)
    until = None
    if stop is not None or not follow:
        found = ends if stop is None else offsets_at(settings, topic, stop.at)
        until = {one: found[one] for one in chosen}
    for record in _read(settings, topic, {one: starts[one] for one in chosen}, until, ended):
        # A partition that ends before the offset begins at its end, so its next records are older than the wanted offset.
        if start.kind != "offset" or record.offset >= start.at:
            yield record


def tail_record(message: Message) -> TailRecord:
    """Return the record of a client's message."""
    kind, at_ms = message.timestamp()
    named = _TIME_TYPES.get(kind, "")
    return TailRecord(
        message.topic() or "", message.partition() or 0, message.offset() or 0, at_ms if named else -1, named,
        _bytes(message.key()), _bytes(message.value()), _headers(message),
    )  # fmt: skip


def _starts(
    settings: KafkaSettings, topic: str, start: TailStart, oldest: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, int]:
    match start.kind:
        case "beginning":
            return dict(oldest)
        case "end":
            return dict(ends)
        case "last":
            return {one: max(oldest[one], end - start.at) for one, end in ends.items()}
        case "offset":
            return {one: min(max(start.at, oldest[one]), end) for one, end in ends.items()}
        case "time":
            return offsets_at(settings, topic, start.at)


def _read(
    settings: KafkaSettings,
    topic: str,
    starts: Mapping[int, int],
    until: Mapping[int, int] | None,
    ended: Callable[[], bool],
) -> Iterator[TailRecord]:
    left = None if until is None else {one for one, end in until.items() if starts[one] < end}
    if left is not None and not left:
        return
    consumer = make_client(Consumer, _conf(settings), settings)
    try:
        consumer.assign([Place(topic, one, at) for one, at in starts.items() if left is None or one in left])
        silent = SilenceDetector(settings, consumer)
        while not ended() and (left is None or left):
            # Wait only for the first record: a wait for a full batch would delay it.
            found = consumer.consume(1, _WAIT_SECONDS)
            for message in found + (consumer.consume(_BATCH, 0) if found else []):
                record = _take(message, until, left, topic, settings)
                if record is not None:
                    yield record
            silent.judge(heard=bool(found))
    finally:
        consumer.close()


def _conf(settings: KafkaSettings) -> dict[str, Any]:
    return consumer_conf(settings, client_id="tidegate-tail", group="tidegate-tail") | {
        # Ask for the event at a partition's end: its last offsets may hold no record (compaction, transaction markers).
        "enable.partition.eof": True,
        "error_cb": lambda _error: None,
        "log_level": 0,
        "queued.max.messages.kbytes": 8 * 1024,
    }


def _take(
    message: Message, until: Mapping[int, int] | None, left: set[int] | None, topic: str, settings: KafkaSettings
) -> TailRecord | None:
    error, number, offset = message.error(), message.partition(), message.offset()
    if error is not None:
        judge_error(error, topic, settings)
    if number is None or offset is None or number < 0:
        return None
    if until is not None and left is not None:
        past = offset >= until.get(number, 0)
        # An open transaction ends the readable part before the wanted end: nothing more would come.
        at_the_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        if at_the_end or offset >= until.get(number, 0) - 1:
            left.discard(number)
        if past:
            return None
    return None if error is not None else tail_record(message)


def judge_error(error: KafkaError, topic: str, settings: KafkaSettings) -> None:
    """Raise if an error of the client ends the reading; others pass by themselves.

    A client asks for its group's coordinator even if it needs none, so a user without rights on the group can still read.

    Raises:
        MissingRightError: this user may not read the topic.
        FatalError: the topic was deleted.
        RetryableError: retention removed the wanted records.
    """
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise missing_right(settings, f"read topic {topic}", "READ")
    if error.code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:
        message = f"Topic {topic} was deleted while it was read"
        raise FatalError(message)
    if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
        message = f"Retention removed records of topic {topic} while they were read: run the command again"
        raise RetryableError(message)


class SilenceDetector:
    """Distinguish a quiet topic from an unreachable broker: only the second is an error."""

    def __init__(self, settings: KafkaSettings, consumer: Consumer) -> None:
        self._settings, self._consumer = settings, consumer
        self._answered_at = self._asked_at = time.monotonic()

    def judge(self, *, heard: bool) -> None:
        """Judge the silence after each wait.

        Raises:
            RetryableError: no broker answered for half a minute.
        """
        now = time.monotonic()
        if heard:
            self._answered_at = self._asked_at = now
            return
        if now - self._asked_at < _SILENT_SECONDS / 6:
            return
        self._asked_at = now
        try:
            self._consumer.list_topics(timeout=2.0)
            self._answered_at = now
        except KafkaException as error:
            if now - self._answered_at > _SILENT_SECONDS:
                why = error.args[0].str()
                message = f"Kafka at {self._settings.bootstrap_servers} no longer answers: {why}"
                raise RetryableError(message) from error


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    try:
        found = message.headers() or []
    except UnicodeDecodeError:
        # Kafka requires UTF-8 names but does not check them.
        return ()
    listed = found.items() if isinstance(found, dict) else found
    return tuple((name, _bytes(content)) for name, content in listed)

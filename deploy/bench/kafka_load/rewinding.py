"""Reader that goes back from the end of a topic to an offset or a time: the time until it reads again, and what it reads."""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final, Literal

from confluent_kafka import Consumer, KafkaException, TopicPartition

from deploy.bench.kafka_load.keyed import Batch, batches_of, feed_batches, keyed_producer
from deploy.bench.kafka_load.temporary_topic import temporary_topic
from deploy.bench.kafka_load.workload import Workload, due_us
from ingest.contract.errors import ConfigError, UnavailableError
from ingest.groups.rewind import OffsetMove, RewindTarget, plan_rewind, rewind
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf

__all__ = ["Way", "run_rewind", "second_half"]

Way = Literal["seek_offset", "seek_time", "group_offset", "group_time"]
"""A consumer that keeps its own offsets goes back by itself; a group without members is set back, and a member joins it."""

_APART_SECONDS: Final = 0.05
"""Pause between the two halves, since Kafka's times are milliseconds."""
_TAKE: Final = 5000
_SILENT_SECONDS: Final = 30.0


def run_rewind(workload: Workload, kafka: KafkaSettings, way: Way = "seek_offset") -> dict[str, float]:
    """Fill a topic in two halves, read it, go back to the middle, and read to the end.

    Args:
        workload: its topic, and the number, size and highest rate of its records; the second half of them is read again.
        kafka: the cluster.
        way: back to the middle.

    Returns:
        `rewind_first_ms`, from the wish to go back until the first record, with the question for the offsets of a time, or
        the write to the group and the new member's joining; `rewind_all_ms`, until the last; `again`, records read again;
        `lost`, those of the second half that were not; `unexpected`, others, and those that came twice; `planned_again`,
        what the plan of a group's rewind announced.

    Raises:
        ConfigError: there are too few messages for the partitions, or Kafka can't make such a topic.
        FatalError: a right is missing, or the topic is there already.
        RetryableError: Kafka does not answer.
        UnavailableError: the first reading did not get everything, or Kafka refused to take or find an offset.
    """
    messages, partitions = workload.messages, workload.partitions
    if messages < 2 * partitions:
        message = f"rewind {workload.topic}: {messages} messages, wanted two for each of {partitions} partitions"
        raise ConfigError(message)
    with temporary_topic(workload, kafka):
        try:
            return _Course(workload, kafka, way).figures()
        except KafkaException as error:
            message = f"Kafka refused a step of the rewind in topic {workload.topic}: {error.args[0].str()}"
            raise UnavailableError(message) from error


def second_half(workload: Workload) -> range:
    """Numbers of the records that are read again: from the same offset of each partition on."""
    return range(workload.messages // 2 // workload.partitions * workload.partitions, workload.messages)


class _Course:
    def __init__(self, workload: Workload, kafka: KafkaSettings, way: Way) -> None:
        self._workload, self._kafka, self._way = workload, kafka, way
        self._again = second_half(workload)
        self._middle = self._again.start // workload.partitions
        self._conf = client_conf(kafka, client_id="tidegate-bench")

    def figures(self) -> dict[str, float]:
        at_ms = self._fill()
        with closing(self._reader()) as consumer:
            self._read_all(consumer)
            if self._way.startswith("seek"):
                began = time.monotonic()
                self._seek(consumer, at_ms)
                return self._read_again(consumer, began)
            consumer.commit(asynchronous=False)
        began = time.monotonic()
        planned = self._set_back(at_ms)
        with closing(self._reader()) as consumer:
            consumer.subscribe([self._workload.topic])
            return self._read_again(consumer, began) | ({} if planned is None else {"planned_again": planned})

    def _read_all(self, consumer: Consumer) -> None:
        topic, wanted = self._workload.topic, self._workload.messages
        consumer.assign([TopicPartition(topic, number, 0) for number in range(self._workload.partitions)])
        numbers, _ = _read(consumer, wanted)
        if len(set(numbers)) != wanted:
            message = f"the first reading of {topic} got {len(set(numbers)):,} of {wanted:,} records"
            raise UnavailableError(message)

    def _fill(self) -> int:
        """Both halves, round the partitions; returns a time between them in milliseconds since 1970."""
        workload = self._workload
        producer = keyed_producer(self._conf, error_cb=lambda _error: None)
        feed_batches(producer, workload.topic, self._batches(range(self._again.start)), workload.rate)
        time.sleep(_APART_SECONDS)
        at_ms = time.time_ns() // 1_000_000
        time.sleep(_APART_SECONDS)
        feed_batches(producer, workload.topic, self._batches(self._again), workload.rate)
        return at_ms

    def _batches(self, numbers: range) -> list[Batch]:
        workload = self._workload
        places = [number % workload.partitions for number in numbers]
        padding = bytes(workload.message_bytes - 8)
        return batches_of([None] * len(numbers), places, padding, first=numbers.start, rate=workload.rate)

    def _seek(self, consumer: Consumer, at_ms: int) -> None:
        topic, partitions = self._workload.topic, range(self._workload.partitions)
        places = [TopicPartition(topic, number, self._middle) for number in partitions]
        if self._way == "seek_time":
            places = consumer.offsets_for_times([TopicPartition(topic, one, at_ms) for one in partitions], timeout=30)
        for place in places:
            consumer.seek(place)

    def _set_back(self, at_ms: int) -> int | None:
        """Returns how many records the plan says that the group reads again."""
        topic = self._workload.topic
        target = RewindTarget("time", at_ms) if self._way == "group_time" else RewindTarget("offset", self._middle)
        moves = plan_rewind(self._kafka, topic, topic, target)
        rewind(self._kafka, topic, topic, moves)
        return _planned_again(moves)

    def _read_again(self, consumer: Consumer, began: float) -> dict[str, float]:
        numbers, first_at = _read(consumer, len(self._again))
        ended = time.monotonic()
        expected, read = set(self._again), set(numbers)
        figures: dict[str, float] = {
            "again": len(numbers),
            "lost": len(expected - read),
            "unexpected": len(numbers) - len(expected & read),
        }
        if numbers:
            figures["rewind_first_ms"] = round((first_at - began) * 1000, 1)
            figures["rewind_all_ms"] = round((ended - began) * 1000, 1)
        return figures

    def _reader(self) -> Consumer:
        return Consumer(
            {
                **self._conf,
                "group.id": self._workload.topic,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "error_cb": lambda _error: None,
                "log_level": 0,
            }
        )


def _planned_again(moves: Sequence[OffsetMove]) -> int | None:
    """Return the sum over all partitions; None if the group never committed in one of them."""
    known = [move.again for move in moves if move.again is not None]
    return sum(known) if len(known) == len(moves) else None


def _read(consumer: Consumer, count: int) -> tuple[Sequence[int], float]:
    """The numbers of records until there are so many different ones or none come any more; and when the first one came."""
    numbers: list[int] = []
    first_at = silent_since = time.monotonic()
    while len(numbers) < count or len(set(numbers)) < count:
        # The first record is not held back for a full call.
        taken: list[Any] = consumer.consume(_TAKE if numbers else 1, 0.01)
        now = time.monotonic()
        if not taken:
            if now - silent_since > _SILENT_SECONDS:
                break
            continue
        first_at, silent_since = first_at if numbers else now, now
        numbers += [due_us(one.value()) for one in taken if one.error() is None]
    return numbers, first_at

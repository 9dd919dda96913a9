"""A reader that has read a topic to its end and goes back to an offset or a time: how soon it reads again, and what."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, Literal

from confluent_kafka import Consumer, KafkaException, TopicPartition

from deploy.bench.kafka_load.keyed import Batch, batches_of, feed_batches, keyed_producer
from deploy.bench.kafka_load.workload import KEEP_ALL, due_us
from ingest.contract.errors import ConfigError, FatalError, UnavailableError
from ingest.rewind import Move, Target, plan_rewind, rewind
from ingest.security import client_conf
from ingest.settings import KafkaSettings
from ingest.topic_setup import create_topic, delete_topic

__all__ = ["RewindRun", "Way", "run_rewind"]

Way = Literal["seek_offset", "seek_time", "group_offset", "group_time"]
"""A consumer that keeps its own offsets goes back by itself; a group without members is set back, and a member joins it."""

_APART_SECONDS: Final = 0.05
"""Between the two halves: Kafka's times are milliseconds."""
_TAKE: Final = 5000
_SILENT_SECONDS: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class RewindRun:
    """One run.

    Attributes:
        topic: made for the run and removed after it.
        messages: records; the second half of them is read again.
        message_bytes: size of a value.
        rewind: the way back.
        partitions, replication: of the topic.
        rate: records a second at most; 0 is as fast as it goes.

    Raises:
        ConfigError: a value is out of its range.
    """

    topic: str
    messages: int
    message_bytes: int = 100
    rewind: Way = "seek_offset"
    partitions: int = 4
    replication: int = 1
    rate: float = 0.0

    def __post_init__(self) -> None:
        if self.messages < 2 * self.partitions:
            message = (
                f"rewind {self.topic}: {self.messages} messages, wanted two for each of {self.partitions} partitions"
            )
            raise ConfigError(message)

    @property
    def middle(self) -> int:
        """The offset to go back to, of each partition."""
        return self.messages // 2 // self.partitions

    @property
    def expected(self) -> range:
        """Numbers of the records that are read again."""
        return range(self.middle * self.partitions, self.messages)


def run_rewind(run: RewindRun, kafka: KafkaSettings) -> dict[str, float]:
    """Fill a topic in two halves, read it, go back to the middle, and read to the end.

    Returns:
        `rewind_first_ms`, from the wish to go back until the first record, with the question for the offsets of a time, or
        the write to the group and the new member's joining; `rewind_all_ms`, until the last; `again`, records read again;
        `lost`, those of the second half that were not; `unexpected`, others, and those that came twice; `planned_again`,
        what the plan of a group's rewind announced.

    Raises:
        ConfigError: Kafka can't make such a topic.
        FatalError: a right is missing, or the topic is there already.
        RetryableError: Kafka does not answer.
        UnavailableError: the first reading did not get everything, or Kafka refused to take or find an offset.
    """
    settings = kafka.model_copy(update={"replication": run.replication})
    if not create_topic(settings, run.topic, partitions=run.partitions, config=KEEP_ALL):
        message = f"topic {run.topic} is there already: another run uses it, or one was cut off; delete it"
        raise FatalError(message)
    try:
        return _Course(run, kafka).figures()
    except KafkaException as error:
        message = f"Kafka refused a step of the rewind in topic {run.topic}: {error.args[0].str()}"
        raise UnavailableError(message) from error
    finally:
        delete_topic(kafka, run.topic)


class _Course:
    def __init__(self, run: RewindRun, kafka: KafkaSettings) -> None:
        self._run, self._kafka = run, kafka
        self._conf = client_conf(kafka, client_id="tidegate-bench")

    def figures(self) -> dict[str, float]:
        at_ms = self._fill()
        with closing(self._reader()) as consumer:
            self._read_all(consumer)
            if self._run.rewind.startswith("seek"):
                began = time.monotonic()
                self._seek(consumer, at_ms)
                return self._read_again(consumer, began)
            consumer.commit(asynchronous=False)
        began = time.monotonic()
        planned = self._set_back(at_ms)
        with closing(self._reader()) as consumer:
            consumer.subscribe([self._run.topic])
            return self._read_again(consumer, began) | ({} if planned is None else {"planned_again": planned})

    def _read_all(self, consumer: Consumer) -> None:
        topic, wanted = self._run.topic, self._run.messages
        consumer.assign([TopicPartition(topic, number, 0) for number in range(self._run.partitions)])
        numbers, _ = _read(consumer, wanted)
        if len(set(numbers)) != wanted:
            message = f"the first reading of {topic} got {len(set(numbers)):,} of {wanted:,} records"
            raise UnavailableError(message)

    def _fill(self) -> int:
        """Both halves, round the partitions; returns a time between them in milliseconds since 1970."""
        run = self._run
        producer = keyed_producer(self._conf, error_cb=lambda _error: None)
        feed_batches(producer, run.topic, self._batches(range(run.expected.start)), run.rate)
        time.sleep(_APART_SECONDS)
        at_ms = time.time_ns() // 1_000_000
        time.sleep(_APART_SECONDS)
        feed_batches(producer, run.topic, self._batches(run.expected), run.rate)
        return at_ms

    def _batches(self, numbers: range) -> list[Batch]:
        run = self._run
        places = [number % run.partitions for number in numbers]
        padding = bytes(run.message_bytes - 8)
        return batches_of([None] * len(numbers), places, padding, first=numbers.start, rate=run.rate)

    def _seek(self, consumer: Consumer, at_ms: int) -> None:
        places = [TopicPartition(self._run.topic, number, self._run.middle) for number in range(self._run.partitions)]
        if self._run.rewind == "seek_time":
            places = consumer.offsets_for_times(
                [TopicPartition(one.topic, one.partition, at_ms) for one in places], timeout=30
            )
        for place in places:
            consumer.seek(place)

    def _set_back(self, at_ms: int) -> int | None:
        """Returns how many records the plan says that the group reads again."""
        topic, back = self._run.topic, self._run.rewind
        target = Target("time", at_ms) if back == "group_time" else Target("offset", self._run.middle)
        moves = plan_rewind(self._kafka, topic, topic, target)
        rewind(self._kafka, topic, topic, moves)
        return _planned_again(moves)

    def _read_again(self, consumer: Consumer, began: float) -> dict[str, float]:
        numbers, first_at = _read(consumer, len(self._run.expected))
        ended = time.monotonic()
        expected, read = set(self._run.expected), set(numbers)
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
                "group.id": self._run.topic,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "error_cb": lambda _error: None,
                "log_level": 0,
            }
        )


def _planned_again(moves: Sequence[Move]) -> int | None:
    """Of all partitions; not known where the group never committed in one."""
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

"""Steady feed of numbered records to each partition in turn, and the pauses and the order of the received records."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from deploy.bench.kafka_load.workload import stamp_value

__all__ = ["RecordFeed", "SteadyLoad", "count_backwards", "longest_pause_ms"]

_TICK_SECONDS: Final = 0.002
_FLUSH_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class SteadyLoad:
    """Records at a steady rate, until the run is over.

    Attributes:
        topic: made for the run and removed after it.
        partitions, replication: of the topic; an acknowledged record has reached all copies but one.
        rate: records a second over all partitions.
    """

    topic: str
    partitions: int = 4
    replication: int = 1
    rate: float = 400.0

    @property
    def topic_config(self) -> dict[str, str]:
        """Settings of its topic."""
        return {"min.insync.replicas": str(max(1, self.replication - 1))}


class RecordFeed:
    """Produces record number 0, 1, 2, … of a load, number N to partition N modulo their count, until it is stopped.

    A record's value is its number. The producer is idempotent with acks=all, so an order within a partition is kept.

    Attributes:
        acknowledged: numbers that Kafka acknowledged, each with the time in microseconds since 1970.
        failed: records that Kafka rejected.
        produced: records that were handed to the client, so the number of the next one.
    """

    def __init__(self, load: SteadyLoad, conf: dict[str, Any]) -> None:
        self.acknowledged: dict[int, int] = {}
        self.failed = 0
        self.produced = 0
        self._load = load
        self._producer = Producer(
            {
                **conf,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "error_cb": lambda _error: None,
                "log_level": 0,
            }
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start the feed."""
        self._thread.start()

    def stop(self) -> None:
        """Stop producing, and wait for records on their way."""
        self._over.set()
        self._thread.join()
        self._producer.flush(_FLUSH_SECONDS)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._over.is_set():
            due = int((time.monotonic() - began) * self._load.rate) + 1
            while (number := self.produced) < due:
                partition = number % self._load.partitions
                try:
                    self._producer.produce(
                        self._load.topic,
                        stamp_value(number, b""),
                        partition=partition,
                        on_delivery=self._report(number),
                    )
                except BufferError:
                    # Kafka has not answered for long: what is due stays due.
                    break
                self.produced += 1
            self._producer.poll(_TICK_SECONDS)

    def _report(self, number: int) -> Any:
        def report(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.acknowledged[number] = time.time_ns() // 1000
            else:
                self.failed += 1

        return report


def longest_pause_ms(times: Sequence[int], since_us: int) -> float:
    """The longest time between two events of which the later one is after `since_us`, in milliseconds."""
    ordered = sorted(times)
    return round(
        max((later - earlier for earlier, later in pairwise(ordered) if later > since_us), default=0) / 1000, 1
    )


def count_backwards(records: Sequence[tuple[int, int, int]]) -> int:
    """Records that a member read after a later one of their partition, and had not read before: a second reading is none."""
    highest: dict[int, int] = {}
    seen: set[int] = set()
    found = 0
    for partition, number, _ in records:
        found += number < highest.get(partition, -1) and number not in seen
        highest[partition] = max(number, highest.get(partition, -1))
        seen.add(number)
    return found

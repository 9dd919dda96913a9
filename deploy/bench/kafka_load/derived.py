"""Reader of derived topics while they are written, on a thread: each record with the time at which this consumer got it."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from ingest.clients import make_client
from ingest.kafka_settings import KafkaSettings
from ingest.read.tail import tail_record
from ingest.security import consumer_conf
from ingest.topics.offsets import end_offsets

__all__ = ["DerivedReader", "DerivedRecord", "reading_topics"]

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class DerivedRecord:
    """One record; `batch` names the write it came with, as a reader that drops replays looks at it."""

    key: str
    value: dict[str, Any]
    bytes: int
    batch: tuple[str, ...]
    seen_at: float


@dataclass
class DerivedReader:
    """Records read so far, by topic; filled by one thread."""

    records: dict[str, list[DerivedRecord]]

    def count(self) -> int:
        """Return the number of records of all topics."""
        return sum(map(len, self.records.values()))

    def add(self, message: Message, seen_at: float) -> None:
        """Note one record."""
        record = tail_record(message)
        key, value = record.key or b"", record.value or b""
        headers = {name: (text or b"").decode() for name, text in record.headers}
        batch = tuple(headers.get(name, "") for name in ("stream", "incarnation", "batch", "row"))
        self.records[record.topic].append(
            DerivedRecord(key.decode(), json.loads(value), len(key) + len(value), batch, seen_at)
        )


@contextmanager
def reading_topics(kafka: KafkaSettings, topics: Sequence[str]) -> Iterator[DerivedReader]:
    """Read these topics from their ends on, while the block runs.

    Raises:
        RetryableError: Kafka does not answer.
    """
    conf = consumer_conf(kafka, client_id="tidegate-bench", group="tidegate-bench")
    # A broker that is away is what some runs are about: the client tries again until the block is left.
    conf |= {"fetch.wait.max.ms": 20, "error_cb": lambda _error: None, "log_level": 0}
    starts = [TopicPartition(topic, part, end) for topic in topics for part, end in end_offsets(kafka, topic).items()]
    consumer = make_client(Consumer, conf, kafka)
    reader = DerivedReader({topic: [] for topic in topics})
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            message = consumer.poll(_POLL_SECONDS)
            if message is not None and message.error() is None:
                reader.add(message, time.time())

    thread = threading.Thread(target=read, name="derived", daemon=True)
    try:
        consumer.assign(starts)
        thread.start()
        yield reader
    finally:
        done.set()
        if thread.is_alive():
            thread.join()
        consumer.close()

"""One consumer process of a load: a line of JSON in, `ready`, a line to begin, a line of JSON out.

The line after that names the end of each partition; the consumer ends when it has read that far.
"""

import json
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from deploy.bench.kafka_load.latency import Latencies
from deploy.bench.kafka_load.workload import STAMP_BYTES, due_us

__all__ = ["main"]

_TAKE: Final = 5000
_SAMPLES: Final = 10
"""Of one call's records about so many are timed, each for its share of them."""
_SILENT_SECONDS: Final = 60.0


@dataclass
class Read:
    """What a consumer read from the word to begin to its last record; times in seconds since 1970."""

    messages: int = 0
    bytes: int = 0
    began: float = 0.0
    first: float = 0.0
    ended: float = 0.0
    cpu_seconds: float = 0.0
    errors: int = 0
    latencies: str = ""


class _Load:
    def __init__(self, topic: str, partitions: list[int], conf: dict[str, Any], fetch_bytes: int) -> None:
        self._topic, self._partitions = topic, partitions
        self._latencies = Latencies()
        self.read = Read()
        self._ends: dict[int, int] | None = None
        self._consumer = Consumer(
            {
                **conf,
                "group.id": topic,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": fetch_bytes,
                "fetch.max.bytes": 64 * 1024 * 1024,
                # Else the client waits a second after each 100,000 records that it holds.
                "queued.min.messages": 1_000_000,
                "queued.max.messages.kbytes": 256 * 1024,
                "fetch.queue.backoff.ms": 10,
                "fetch.wait.max.ms": 20,
                "error_cb": self._error,
                "log_level": 0,
            }
        )

    def warm(self, topic: str) -> None:
        """Read another topic to its end, and learn where this load's partitions are."""
        partitions = sorted(self._consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        ends = {}
        for number in partitions:
            _, ends[number] = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
        if sum(ends.values()):
            self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            self._follow(ends)
            self._consumer.unassign()
        for number in self._partitions:
            self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=30)
        self.read, self._latencies = Read(), Latencies()

    def run(self, begin_at: float) -> Read:
        """Read this consumer's partitions from their beginning to the end that comes on stdin."""
        threading.Thread(target=self._take_ends, daemon=True).start()
        time.sleep(max(0.0, begin_at - time.time()))
        cpu, self.read.began = time.process_time(), time.time()
        self._consumer.assign([TopicPartition(self._topic, number, 0) for number in self._partitions])
        self._follow(None)
        self.read.cpu_seconds = time.process_time() - cpu
        self.read.latencies = self._latencies.encode()
        self._consumer.close()
        return self.read

    def _take_ends(self) -> None:
        text = sys.stdin.readline()
        ends = {int(number): end for number, end in json.loads(text).items()} if text else {}
        self._ends = {number: ends.get(number, 0) for number in self._partitions}

    def _follow(self, ends: dict[int, int] | None) -> None:
        read, silent_since = self.read, time.monotonic()
        while True:
            wanted = ends if ends is not None else self._ends
            if wanted is not None and read.messages >= sum(wanted.values()):
                return
            # Few at a time near the end and at a low rate: a call waits until it has all that it was asked for.
            found = self._consumer.consume(_TAKE, 0.005)
            if not found:
                if wanted is not None and time.monotonic() - silent_since > _SILENT_SECONDS:
                    return
                continue
            silent_since = time.monotonic()
            self._count(found)

    def _count(self, found: list[Message]) -> None:
        read, now = self.read, time.time()
        if failure := found[0].error() or found[-1].error():
            if failure.fatal():
                raise KafkaException(failure)
            self._error(failure)
            found = [message for message in found if message.error() is None]
            if not found:
                return
        if not read.messages:
            read.first = now
        read.messages += len(found)
        read.bytes += len(found) * len(found[-1].value() or b"")
        read.ended = now
        step = max(1, len(found) // _SAMPLES)
        for at in range(0, len(found), step):
            value = found[at].value() or b""
            if len(value) >= STAMP_BYTES:
                # A call after a stall has thousands of records: by its few samples alone the stall would hardly count.
                self._latencies.record(int(now * 1_000_000) - due_us(value), min(step, len(found) - at))

    def _error(self, error: KafkaError) -> None:
        if error.code() not in {KafkaError._ALL_BROKERS_DOWN, KafkaError._PARTITION_EOF}:
            self.read.errors += 1


def main() -> None:
    """One consumer from the command line."""
    plan = json.loads(sys.stdin.readline())
    load = _Load(plan["topic"], plan["partitions"], plan["conf"], plan["fetch_bytes"])
    load.warm(plan["warm_topic"])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    read = load.run(float(sys.stdin.readline()))
    sys.stdout.write(json.dumps(vars(read)) + "\n")


if __name__ == "__main__":
    main()

"""Consumer process of a load: a line of JSON in, `ready` out; then two lines in and its work out for each session.

The first line is the time to begin, the second one the end of each partition; a session ends when these are read. A consumer
has no group: its clock begins just before it takes its partitions, and ends when Python has its last record. Before that,
connections are open and leaders known, but no record was fetched.
"""

import json
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from deploy.bench.kafka_load.client_work import ClientWork, measure_client
from deploy.bench.kafka_load.latency import Latencies
from deploy.bench.kafka_load.worker import serve_sessions, take_plan
from deploy.bench.kafka_load.workload import STAMP_BYTES, due_us

__all__ = ["main"]

_TAKE: Final = 5000
_TAKE_SECONDS: Final = 0.003
_SAMPLES: Final = 10
"""About this many records of one call are timed, each for its share of them."""
_SILENT_SECONDS: Final = 60.0


class _Load:
    def __init__(
        self, topic: str, partitions: list[int], conf: dict[str, Any], fetch_bytes: int, fetch_min_bytes: int
    ) -> None:
        self._topic, self._partitions = topic, partitions
        self.work, self._latencies = ClientWork(), Latencies()
        self._starts = dict.fromkeys(partitions, 0)
        self._consumer = Consumer(
            {
                **conf,
                "group.id": topic,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": fetch_bytes,
                "fetch.min.bytes": fetch_min_bytes,
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
            self._follow(lambda: sum(ends.values()))
            self._consumer.unassign()
        for number in self._partitions:
            self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=30)

    def run(self, begin_at: float, next_line: Callable[[], str | None]) -> ClientWork:
        """Read this consumer's partitions from where the last session ended to the ends of the next line."""
        ends: dict[int, int] = {}

        def wanted() -> int | None:
            if not ends:
                if (line := next_line()) is None:
                    return None
                ends.update((int(number), end) for number, end in json.loads(line).items())
            return sum(ends.get(number, 0) - start for number, start in self._starts.items())

        with measure_client(begin_at) as (self.work, self._latencies):
            self._consumer.assign([TopicPartition(self._topic, *where) for where in self._starts.items()])
            self._follow(wanted)
        self._consumer.unassign()
        self._starts = {number: ends.get(number, 0) for number in self._starts}
        return self.work

    def _follow(self, wanted: Callable[[], int | None]) -> None:
        work, silent_since, count = self.work, time.monotonic(), None
        while True:
            count = wanted() if count is None else count
            if count is not None and work.messages >= count:
                return
            # A call waits until it has all that it was asked for: near the end no more than there is, at a low rate not long.
            take = _TAKE if count is None else min(_TAKE, count - work.messages)
            found = self._consumer.consume(take, _TAKE_SECONDS)
            if not found:
                if count is not None and time.monotonic() - silent_since > _SILENT_SECONDS:
                    return
                continue
            silent_since = time.monotonic()
            self._count(found)

    def _count(self, found: list[Message]) -> None:
        work, now = self.work, time.time()
        if failure := found[0].error() or found[-1].error():
            if failure.fatal():
                raise KafkaException(failure)
            self._error(failure)
            found = [message for message in found if message.error() is None]
            if not found:
                return
        work.messages += len(found)
        work.bytes += len(found) * len(found[-1].value() or b"")
        work.ended = now
        step = max(1, len(found) // _SAMPLES)
        for at in range(0, len(found), step):
            value = found[at].value() or b""
            if len(value) >= STAMP_BYTES:
                # A call after a stall has thousands of records: by its few samples alone the stall would hardly count.
                due = due_us(value)
                self._latencies.record(int(now * 1_000_000) - due, min(step, len(found) - at), due_us=due)

    def _error(self, error: KafkaError) -> None:
        if error.code() not in {KafkaError._ALL_BROKERS_DOWN, KafkaError._PARTITION_EOF}:
            self.work.errors += 1


def main() -> None:
    """One consumer from the command line."""
    plan = take_plan()
    load = _Load(plan["topic"], plan["partitions"], plan["conf"], plan["fetch_bytes"], plan["fetch_min_bytes"])
    load.warm(plan["warm_topic"])
    serve_sessions(lambda begin_at, lines: load.run(float(begin_at), lines.take_if_there))


if __name__ == "__main__":
    main()

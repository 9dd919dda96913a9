"""Producer process of a load: a line of JSON in, `ready` out; then a line to begin in and its work out for each session."""

import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from deploy.bench.kafka_load.client_work import ClientWork, measure_client
from deploy.bench.kafka_load.latency import Latencies
from deploy.bench.kafka_load.worker import serve_sessions, take_plan
from deploy.bench.kafka_load.workload import Workload, message_keys, producer_options, stamp_value

__all__ = ["BLOCK", "DRAIN_SECONDS", "WAIT_SECONDS", "block_size", "main"]

BLOCK: Final = 2000
"""Records of one call at full speed."""
_TIMED_OF_BLOCK: Final = 100
"""One record in this many of a call is timed, and the last."""
_TICK_SECONDS: Final = 0.001
DRAIN_SECONDS: Final = 0.0005
"""Pause between two looks for acknowledgements: waking for each answer costs Python more than the answers themselves."""
_SAMPLES_PER_SECOND: Final = 2000
WAIT_SECONDS: Final = 120.0
_BY_KEY: Final = -1
"""Value in place of a partition: the client chooses one by the record's key."""


class _Load:
    def __init__(self, workload: Workload, conf: dict[str, Any], messages: int, number: int) -> None:
        self._workload, self._messages, self._number = workload, messages, number
        self.work, self._latencies = ClientWork(), Latencies()
        self._fill_seconds = 0.0
        self._producer = Producer({**conf, **producer_options(workload), "error_cb": self._error, "log_level": 0})
        self._padding = bytes(33 + (index * 7 + number) % 94 for index in range(workload.message_bytes - 8))

    def warm(self, topic: str, messages: int, retained: int) -> None:
        """Produce to another topic, so that connections, code paths and page cache are in use; then what is retained."""
        for name in (topic, self._workload.topic):
            self._producer.list_topics(name, timeout=30)
        self._produce(topic, messages, time.time())
        began = time.monotonic()
        self._produce(self._workload.topic, retained, time.time())
        self._fill_seconds = time.monotonic() - began

    def run(self, begin_at: float) -> ClientWork:
        """Produce this producer's part of one session."""
        with measure_client(begin_at) as (self.work, self._latencies):
            self._produce(self._workload.topic, self._messages, begin_at)
            self.work.ended = time.time()
        self.work.messages, self.work.fill_seconds = self._messages, self._fill_seconds
        self.work.errors += len(self._producer)
        return self.work

    def _produce(self, topic: str, messages: int, begin_at: float) -> None:
        """Produce, and wait until Kafka has all; also a warm-up keeps to the rate: on somebody's cluster it is a cap."""
        if self._workload.rate:
            self._paced(topic, messages, begin_at)
        else:
            self._blocks(topic, messages)
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.poll(0)
            time.sleep(DRAIN_SECONDS)

    def _blocks(self, topic: str, messages: int) -> None:
        """Send as fast as possible: one call for many records, some of which are timed.

        Without keys a block goes to one partition, the next block to the next: so a request is full, and no partition is
        chosen for each record.
        """
        workload = self._workload
        keys = message_keys(workload, BLOCK, seed=self._number)
        size, left, number = block_size(workload, messages), messages, self._number
        while left:
            due = time.time_ns() // 1000
            block = _block(stamp_value(due, self._padding), keys[: min(size, left)])
            timed = self._timed(due)
            for at in (*range(_TIMED_OF_BLOCK - 1, len(block) - 1, _TIMED_OF_BLOCK), len(block) - 1):
                block[at] = {**block[at], "callback": timed}
            left -= len(block)
            self._push(topic, block, _BY_KEY if keys[0] else number % workload.partitions)
            number += 1

    def _push(self, topic: str, block: list[dict[str, Any]], partition: int) -> None:
        """All of a block in its order, also where the client's queue is full for a while."""
        while block:
            try:
                taken = self._producer.produce_batch(topic, block, partition=partition)
            except BufferError:
                taken = 0
            self._producer.poll(0 if taken == len(block) else 0.002)
            block = block[taken:]
            for one in block:
                one.pop("_error", None)

    def _paced(self, topic: str, messages: int, begin_at: float) -> None:
        """Open loop: each record has a time at which it is due, and carries it, however late it leaves."""
        rate = self._workload.rate / self._workload.producers
        every = max(1, round(rate / _SAMPLES_PER_SECOND))
        keys = message_keys(self._workload, BLOCK, seed=self._number)
        sent = 0
        while sent < messages:
            now = time.time()
            due_count = min(messages, int((now - begin_at) * rate) + 1)
            for number in range(sent, due_count):
                due = int((begin_at + number / rate) * 1_000_000)
                callback = self._timed(due) if number % every == 0 else None
                self._one(topic, stamp_value(due, self._padding), keys[number % BLOCK], callback)
            if due_count > sent:
                self.work.late_ms = max(self.work.late_ms, (now - begin_at - sent / rate) * 1000)
                sent = due_count
            self._producer.poll(_TICK_SECONDS)

    def _one(self, topic: str, value: bytes, key: bytes | None, callback: Any) -> None:
        while True:
            try:
                return self._producer.produce(topic, value, key, on_delivery=callback)
            except BufferError:
                self._producer.poll(0.01)

    def _timed(self, due: int) -> Any:
        def report(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self.work.errors += 1
            else:
                self._latencies.record(time.time_ns() // 1000 - due, due_us=due)

        return report

    def _error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.work.errors += 1


def block_size(workload: Workload, messages: int) -> int:
    """Records of one block: so many that requests are full, so few that each partition gets its part."""
    return min(BLOCK, max(workload.batch_records, -(-messages // workload.partitions)))


def _block(value: bytes, keys: Sequence[bytes | None]) -> list[dict[str, Any]]:
    """Records of one value; those of the same key are one object, so that none is made for each record."""
    if not keys[0]:
        return [{"value": value}] * len(keys)
    by_key = {key: {"value": value, "key": key} for key in set(keys)}
    return [by_key[key] for key in keys]


def main() -> None:
    """One producer from the command line."""
    plan = take_plan()
    load = _Load(Workload(**plan["workload"]), plan["conf"], plan["messages"], plan["number"])
    load.warm(plan["warm_topic"], plan["warmup_messages"], plan["retained"])
    serve_sessions(lambda begin_at, _lines: load.run(float(begin_at)))


if __name__ == "__main__":
    main()

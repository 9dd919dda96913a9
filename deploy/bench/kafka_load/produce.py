"""One producer process of a load: a line of JSON in, `ready`, a line to begin, a line of JSON out."""

import json
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from deploy.bench.kafka_load.latency import Latencies
from deploy.bench.kafka_load.workload import Workload, message_keys, producer_options, stamped

__all__ = ["main"]

_BLOCK: Final = 2000
"""Records of one call at full speed."""
_TIMED_OF_BLOCK: Final = 100
"""Of one call's records each such is timed, and the last."""
_TICK_SECONDS: Final = 0.001
_SAMPLES_PER_SECOND: Final = 2000
_WAIT_SECONDS: Final = 120.0


@dataclass
class Sent:
    """What a producer did between the word to begin and the last acknowledgement; times in seconds since 1970."""

    messages: int = 0
    began: float = 0.0
    ended: float = 0.0
    cpu_seconds: float = 0.0
    failed: int = 0
    errors: int = 0
    waiting: int = 0
    late_ms: float = 0.0
    fill_seconds: float = 0.0
    latencies: str = ""


class _Load:
    def __init__(self, workload: Workload, conf: dict[str, Any], messages: int, number: int) -> None:
        self._workload, self._messages, self._number = workload, messages, number
        self._latencies = Latencies()
        self.sent = Sent()
        self._producer = Producer({**conf, **producer_options(workload), "error_cb": self._error, "log_level": 0})
        self._padding = bytes(33 + (index * 7 + number) % 94 for index in range(workload.message_bytes - 8))

    def warm(self, topic: str, messages: int, retained: int) -> None:
        """Produce to another topic, so that connections, code paths and page cache are in use; then what is retained."""
        for name in (topic, self._workload.topic):
            self._producer.list_topics(name, timeout=30)
        self._before(topic, messages)
        began = time.monotonic()
        self._before(self._workload.topic, retained)
        self.sent, self._latencies = Sent(fill_seconds=time.monotonic() - began), Latencies()

    def _before(self, topic: str, messages: int) -> None:
        if self._workload.rate:
            # Also a warm-up keeps to the rate: on somebody's cluster it is a cap.
            self._paced(time.time(), topic, messages)
        else:
            self._blocks(topic, messages)
        self._finish()

    def run(self, begin_at: float) -> Sent:
        """Produce this producer's part."""
        time.sleep(max(0.0, begin_at - time.time()))
        cpu, self.sent.began = time.process_time(), time.time()
        if self._workload.rate:
            self._paced(begin_at, self._workload.topic, self._messages)
        else:
            self._blocks(self._workload.topic, self._messages)
        self._finish()
        self.sent.ended = time.time()
        self.sent.cpu_seconds = time.process_time() - cpu
        self.sent.messages, self.sent.waiting = self._messages, len(self._producer)
        self.sent.latencies = self._latencies.encode()
        return self.sent

    def _blocks(self, topic: str, messages: int) -> None:
        """As fast as it goes: one call for many records, some of which are timed."""
        keys = message_keys(self._workload, _BLOCK, seed=self._number)
        left = messages
        while left:
            due = time.time_ns() // 1000
            value = stamped(due, self._padding)
            block = [
                {"value": value} if key is None else {"value": value, "key": key} for key in keys[: min(_BLOCK, left)]
            ]
            for one in (*block[_TIMED_OF_BLOCK - 1 : -1 : _TIMED_OF_BLOCK], block[-1]):
                one["callback"] = self._timed(due)
            left -= len(block)
            self._push(topic, block)

    def _push(self, topic: str, block: list[dict[str, Any]]) -> None:
        """All of a block in its order, also where the client's queue is full for a while."""
        while block:
            try:
                taken = self._producer.produce_batch(topic, block)
            except BufferError:
                taken = 0
            self._producer.poll(0 if taken == len(block) else 0.002)
            block = [{key: one[key] for key in one if key != "_error"} for one in block[taken:]]

    def _paced(self, begin_at: float, topic: str, messages: int) -> None:
        """Open loop: each record has a time at which it is due, and carries it, however late it leaves."""
        rate = self._workload.rate / self._workload.producers
        every = max(1, round(rate / _SAMPLES_PER_SECOND))
        keys = message_keys(self._workload, _BLOCK, seed=self._number)
        sent = 0
        while sent < messages:
            now = time.time()
            due_count = min(messages, int((now - begin_at) * rate) + 1)
            for number in range(sent, due_count):
                due = int((begin_at + number / rate) * 1_000_000)
                callback = self._timed(due) if number % every == 0 else None
                self._one(topic, stamped(due, self._padding), keys[number % _BLOCK], callback)
            if due_count > sent:
                self.sent.late_ms = max(self.sent.late_ms, (now - begin_at - sent / rate) * 1000)
                sent = due_count
            self._producer.poll(_TICK_SECONDS)

    def _one(self, topic: str, value: bytes, key: bytes | None, callback: Any) -> None:
        while True:
            try:
                return self._producer.produce(topic, value, key, on_delivery=callback)
            except BufferError:
                self._producer.poll(0.01)

    def _finish(self) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.poll(0.001)

    def _timed(self, due: int) -> Any:
        def report(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self.sent.failed += 1
            else:
                self._latencies.record(time.time_ns() // 1000 - due)

        return report

    def _error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.sent.errors += 1


def _end_with_the_starter() -> None:
    """The pipe closes when the process that started this one is gone, also by kill -9: nobody wants the load then."""
    while os.read(0, 1):
        pass
    os._exit(1)


def main() -> None:
    """One producer from the command line."""
    plan = json.loads(sys.stdin.readline())
    properties = tuple((str(key), str(value)) for key, value in plan["workload"].pop("properties"))
    workload = Workload(**plan["workload"], properties=properties)
    load = _Load(workload, plan["conf"], plan["messages"], plan["number"])
    load.warm(plan["warm_topic"], plan["warmup_messages"], plan["retained"])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    begin_at = float(sys.stdin.readline())
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    sent = load.run(begin_at)
    sys.stdout.write(json.dumps(vars(sent)) + "\n")


if __name__ == "__main__":
    main()

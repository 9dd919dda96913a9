"""One publisher process of a load: a line of JSON in, `ready`, a line to begin, a line of JSON out."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from deploy.bench.kafka_load.latency import Latencies
from deploy.bench.kafka_load.worker import StarterLines
from deploy.bench.mqtt_load.link import Link
from deploy.bench.mqtt_load.packets import Acknowledged, PacketForm

__all__ = ["main"]

_SAMPLES: Final = 10
"""Of the PUBACKs that come at once so many are timed, each for its share of them."""
_SILENT_SECONDS: Final = 30.0
_MIDS: Final = 65_535


@dataclass
class Sent:
    """What a publisher did between the word to begin and the last PUBACK; times in seconds since 1970."""

    messages: int = 0
    acknowledged: int = 0
    began: float = 0.0
    ended: float = 0.0
    cpu_seconds: float = 0.0
    late_ms: float = 0.0
    latencies: str = ""


class _Publisher:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._messages, self._window = plan["messages"], plan["window"]
        self._rate: float = plan["rate"]
        self._first_number = plan["first_number"]
        self._link = Link(plan["address"], plan["topic"])
        self._form, self._warm_form = (
            PacketForm(topic, plan["message_bytes"]) for topic in (plan["topic"], plan["warm_topic"])
        )
        self._latencies = Latencies()
        self.sent = Sent()

    def warm(self, messages: int) -> None:
        """Publish to a topic that nobody reads, at the same rate."""
        self._publish(self._warm_form, messages, time.time())
        self.sent = Sent()

    def run(self, begin_at: float) -> Sent:
        """Publish this publisher's part."""
        time.sleep(max(0.0, begin_at - time.time()))
        self._latencies = Latencies(int(begin_at * 1_000_000))
        cpu, self.sent.began = time.process_time(), time.time()
        self._publish(self._form, self._messages, begin_at)
        self.sent.ended = time.time()
        self.sent.cpu_seconds = time.process_time() - cpu
        self.sent.latencies = self._latencies.encode()
        self._link.close()
        return self.sent

    def _publish(self, form: PacketForm, messages: int, begin_at: float) -> None:
        sent, acknowledged, answers, first = self.sent, 0, Acknowledged(), self._first_number
        due_of = [0] * (_MIDS + 1)
        silent_since = time.monotonic()
        while acknowledged < messages:
            now = time.time()
            upto = min(messages, acknowledged + self._window)
            if self._rate:
                due_count = int((now - begin_at) * self._rate) + 1
                upto = min(upto, due_count)
            if upto > sent.messages:
                numbers = range(sent.messages, upto)
                due = self._due_us(numbers, begin_at, now)
                mids = [number % _MIDS + 1 for number in numbers]
                for mid, due_us in zip(mids, due, strict=True):
                    due_of[mid] = due_us
                if self._rate:
                    sent.late_ms = max(sent.late_ms, now * 1000 - due[0] / 1000)
                self._link.send(form.build(due, range(sent.messages + first, upto + first), mids))
                sent.messages = upto
            data = self._link.receive(self._wait(sent.messages, messages, begin_at))
            if data:
                silent_since = time.monotonic()
                found = answers.mids(data)
                acknowledged += len(found)
                self._time([due_of[mid] for mid in found])
            elif time.monotonic() - silent_since > _SILENT_SECONDS:
                break
        sent.acknowledged = acknowledged

    def _due_us(self, numbers: range, begin_at: float, now: float) -> list[int]:
        if not self._rate:
            return [int(now * 1_000_000)] * len(numbers)
        return [int((begin_at + number / self._rate) * 1_000_000) for number in numbers]

    def _wait(self, sent: int, messages: int, begin_at: float) -> float:
        """Until the next message is due, where one is to come by itself."""
        if not self._rate or sent >= messages:
            return 1.0
        return min(1.0, max(0.0, begin_at + sent / self._rate - time.time()))

    def _time(self, due: Sequence[int]) -> None:
        now_us = time.time_ns() // 1000
        step = max(1, len(due) // _SAMPLES)
        for at in range(0, len(due), step):
            self._latencies.record(now_us - due[at], min(step, len(due) - at), due_us=due[at])


def main() -> None:
    """One publisher from the command line."""
    plan = json.loads(sys.stdin.readline())
    publisher = _Publisher(plan)
    publisher.warm(plan["warmup_messages"])
    lines = StarterLines()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sent = publisher.run(float(lines.take()))
    sys.stdout.write(json.dumps(vars(sent)) + "\n")


if __name__ == "__main__":
    main()

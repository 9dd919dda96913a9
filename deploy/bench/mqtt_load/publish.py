"""Publisher process of a load: a line of JSON in, `ready` out, a line to begin in, its work out."""

import time
from typing import Any, Final

from deploy.bench.kafka_load.client_work import ClientWork, measure_client
from deploy.bench.kafka_load.latency import Latencies
from deploy.bench.kafka_load.worker import serve_sessions, take_plan
from deploy.bench.mqtt_load.connection import LoadConnection
from deploy.bench.mqtt_load.packets import PacketForm, PubackReader

__all__ = ["main"]

_SILENT_SECONDS: Final = 30.0
_MIDS: Final = 65_535


class _Publisher:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._messages, self._window = plan["messages"], plan["window"]
        self._rate: float = plan["rate"]
        self._first_number = plan["first_number"]
        self._link = LoadConnection(plan["address"], plan["topic"])
        self._form, self._warm_form = (
            PacketForm(topic, plan["message_bytes"]) for topic in (plan["topic"], plan["warm_topic"])
        )
        self.work, self._latencies = ClientWork(), Latencies()

    def warm(self, messages: int) -> None:
        """Publish to a topic without a reader, at the same rate."""
        self._publish(self._warm_form, messages, time.time())

    def run(self, begin_at: float) -> ClientWork:
        """Publish this publisher's part."""
        with measure_client(begin_at) as (self.work, self._latencies):
            self.work.messages = self._publish(self._form, self._messages, begin_at)
            self.work.ended = time.time()
        self._link.close()
        return self.work

    def _publish(self, form: PacketForm, messages: int, begin_at: float) -> int:
        """Publish until all messages have a PUBACK or no more come; return how many have one."""
        sent, acknowledged, answers, first = 0, 0, PubackReader(), self._first_number
        due_of = [0] * (_MIDS + 1)
        silent_since = time.monotonic()
        while acknowledged < messages:
            now = time.time()
            upto = min(messages, acknowledged + self._window)
            if self._rate:
                due_count = int((now - begin_at) * self._rate) + 1
                upto = min(upto, due_count)
            if upto > sent:
                numbers = range(sent, upto)
                due = self._due_us(numbers, begin_at, now)
                mids = [number % _MIDS + 1 for number in numbers]
                for mid, due_us in zip(mids, due, strict=True):
                    due_of[mid] = due_us
                if self._rate:
                    self.work.late_ms = max(self.work.late_ms, now * 1000 - due[0] / 1000)
                self._link.send(form.build(due, range(sent + first, upto + first), mids))
                sent = upto
            data = self._link.receive(self._wait(sent, messages, begin_at))
            if data:
                silent_since = time.monotonic()
                found = answers.mids(data)
                acknowledged += len(found)
                self._latencies.record_all([due_of[mid] for mid in found], time.time_ns() // 1000)
            elif time.monotonic() - silent_since > _SILENT_SECONDS:
                break
        return acknowledged

    def _due_us(self, numbers: range, begin_at: float, now: float) -> list[int]:
        if not self._rate:
            return [int(now * 1_000_000)] * len(numbers)
        return [int((begin_at + number / self._rate) * 1_000_000) for number in numbers]

    def _wait(self, sent: int, messages: int, begin_at: float) -> float:
        """Wait until the next message is due, if messages come one by one."""
        if not self._rate or sent >= messages:
            return 1.0
        return min(1.0, max(0.0, begin_at + sent / self._rate - time.time()))


def main() -> None:
    """One publisher from the command line."""
    plan = take_plan()
    publisher = _Publisher(plan)
    publisher.warm(plan["warmup_messages"])
    serve_sessions(lambda begin_at, _lines: publisher.run(float(begin_at)))


if __name__ == "__main__":
    main()

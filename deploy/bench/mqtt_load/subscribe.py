"""Subscriber process of a load: a line of JSON in, `ready` out, a line to begin in, its work out.

Another line says how many messages were acknowledged; the subscriber ends when it has that many.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from deploy.bench.kafka_load.client_work import ClientWork, measure_client
from deploy.bench.kafka_load.latency import Latencies
from deploy.bench.kafka_load.worker import serve_sessions, take_plan
from deploy.bench.mqtt_load.connection import LoadConnection
from deploy.bench.mqtt_load.packets import PacketForm, PacketSplitter, subscribe_packet

__all__ = ["main"]

_SILENT_SECONDS: Final = 15.0
"""A broker that has nothing more to send after so long has lost what did not come."""


class _Subscriber:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._form = PacketForm(plan["topic"], plan["message_bytes"])
        self._seen = bytearray(plan["messages"])
        self._link = LoadConnection(plan["address"], plan["client_id"])
        self._link.subscribe(subscribe_packet(plan["topics"]))

    def run(self, begin_at: float, next_line: Callable[[], str | None]) -> ClientWork:
        """Read until as many are there as the publishers had acknowledged, which the next line says."""
        wanted: int | None = None
        rest = PacketSplitter(self._form.packet_bytes)
        with measure_client(begin_at) as (work, latencies):
            silent_since = time.monotonic()
            while wanted is None or work.messages < wanted:
                if wanted is None and (line := next_line()) is not None:
                    wanted = int(line)
                    continue
                data = self._link.receive(0.1)
                if not data:
                    if wanted is not None and time.monotonic() - silent_since > _SILENT_SECONDS:
                        break
                    continue
                silent_since = time.monotonic()
                due, numbers, answers = self._form.read(rest.whole(data))
                self._link.send(answers)
                self._count(work, due, numbers, latencies)
        self._link.close()
        return work

    def _count(self, work: ClientWork, due: Sequence[int], numbers: Sequence[int], latencies: Latencies) -> None:
        if not len(due):
            return
        work.ended = time.time()
        seen, again = self._seen, 0
        for number in numbers:
            again += seen[number]
            seen[number] = 1
        work.messages += len(numbers) - again
        work.again += again
        latencies.record_all(due, int(work.ended * 1_000_000))


def main() -> None:
    """The subscriber from the command line."""
    subscriber = _Subscriber(take_plan())
    serve_sessions(lambda begin_at, lines: subscriber.run(float(begin_at), lines.take_if_there))


if __name__ == "__main__":
    main()

"""The subscriber process of a load: a line of JSON in, `ready`, a line to begin, a line of JSON out.

The line after that to begin says how many messages were acknowledged; the subscriber ends when it has as many.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from deploy.bench.kafka_load.latency import Latencies
from deploy.bench.kafka_load.worker import StarterLines
from deploy.bench.mqtt_load.link import Link
from deploy.bench.mqtt_load.packets import PacketForm, Rest, subscribe_packet

__all__ = ["main"]

_SAMPLES: Final = 10
_SILENT_SECONDS: Final = 15.0
"""A broker that has nothing more to send after so long has lost what did not come."""


@dataclass
class Received:
    """What came, times in seconds since 1970; `messages` are different ones."""

    messages: int = 0
    again: int = 0
    began: float = 0.0
    ended: float = 0.0
    cpu_seconds: float = 0.0
    latencies: str = ""


class _Subscriber:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._form = PacketForm(plan["topic"], plan["message_bytes"])
        self._seen = bytearray(plan["messages"])
        self._link = Link(plan["address"], plan["client_id"])
        self._link.subscribe(subscribe_packet(plan["topics"]))

    def run(self, begin_at: float, lines: StarterLines) -> Received:
        """Read until as many are there as the publishers had acknowledged, which the next line says."""
        wanted: int | None = None
        latencies, found, rest = Latencies(int(begin_at * 1_000_000)), Received(), Rest(self._form.packet_bytes)
        cpu, found.began, silent_since = time.process_time(), time.time(), time.monotonic()
        while wanted is None or found.messages < wanted:
            if wanted is None and (line := lines.take_if_there()) is not None:
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
            self._count(found, due, numbers, latencies)
        found.cpu_seconds = time.process_time() - cpu
        found.latencies = latencies.encode()
        self._link.close()
        return found

    def _count(self, found: Received, due: Sequence[int], numbers: Sequence[int], latencies: Latencies) -> None:
        if not len(due):
            return
        found.ended = time.time()
        seen, again = self._seen, 0
        for number in numbers:
            again += seen[number]
            seen[number] = 1
        found.messages += len(numbers) - again
        found.again += again
        now_us, step = int(found.ended * 1_000_000), max(1, len(due) // _SAMPLES)
        for at in range(0, len(due), step):
            latencies.record(now_us - due[at], min(step, len(due) - at), due_us=due[at])


def main() -> None:
    """The subscriber from the command line."""
    subscriber = _Subscriber(json.loads(sys.stdin.readline()))
    lines = StarterLines()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    received = subscriber.run(float(lines.take()), lines)
    sys.stdout.write(json.dumps(vars(received)) + "\n")


if __name__ == "__main__":
    main()

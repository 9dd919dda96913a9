"""Load of numbered messages at a rate, and a memory of which were sent and which have their PUBACK."""

import json
import threading
import time
from collections.abc import Iterable
from typing import Final

from deploy.chaos.verdict import MessageKey
from gateway.devtools.publisher import Publisher
from gateway.gateway_settings import MqttSettings

__all__ = ["NumberedLoad"]

TOPIC: Final = "tidegate/v1/{device}/readings"
_STEP_SECONDS: Final = 0.01


class NumberedLoad:
    """One publisher for a fleet. A device's numbers ascend, and all of it goes over one connection, so in order.

    Attributes:
        sent: payload per message, in the order handed over.
        acknowledged: messages with a PUBACK.
        acknowledged_at: when it came, in epoch seconds.
    """

    def __init__(
        self, mqtt: MqttSettings, *, name: str, devices: int = 20, boot: int = 1, window: int = 500, topic: str = TOPIC
    ) -> None:
        self.sent: dict[MessageKey, bytes] = {}
        self.acknowledged: set[MessageKey] = set()
        self.acknowledged_at: dict[MessageKey, float] = {}
        self._devices = [f"{name}-{number:03d}" for number in range(devices)]
        self._seq = dict.fromkeys(self._devices, 0)
        self._boot, self._turn, self._topic = boot, 0, topic
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._publisher = Publisher(
            mqtt, client_id=f"{name}-load", window=window, acknowledged=self._note, stop=self._stop
        )
        self._publisher.connect()

    def send(self, count: int) -> None:
        """The next `count` messages, as fast as PUBACKs come; a background load ends first, for the numbers ascend."""
        self.pause()
        for _ in range(count):
            self._send_one()

    def start(self, rate: float) -> None:
        """Send `rate` messages a second in the background until `finish`."""
        self._thread = threading.Thread(target=self._pace, args=(rate,), name="load", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Stop sending; what is under way stays so."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._stop.clear()

    def finish(self, *, seconds: float = 30.0) -> bool:
        """Stop sending and wait for the last PUBACKs; False where some did not come in time."""
        self.pause()
        return self._publisher.drain(timeout_seconds=seconds)

    def close(self) -> None:
        """Disconnect the publisher."""
        self.pause()
        self._publisher.close()

    def missing(self, there: Iterable[MessageKey]) -> set[MessageKey]:
        """Return the acknowledged messages that are missing."""
        return set(self.acknowledged).difference(there)

    def _note(self, tag: object) -> None:
        if isinstance(tag, MessageKey):
            self.acknowledged.add(tag)
            self.acknowledged_at[tag] = time.time()

    def _pace(self, rate: float) -> None:
        """Send what is due, several at once: waking for each message costs more than the message."""
        began, count = time.monotonic(), 0
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * rate)
            # After a stall the load catches up at twice the rate, not all at once.
            for _ in range(min(due - count, int(2 * rate * _STEP_SECONDS) + 1)):
                if not self._send_one():
                    return
                count += 1
            self._stop.wait(_STEP_SECONDS)

    def _send_one(self) -> bool:
        device = self._devices[self._turn]
        self._turn = (self._turn + 1) % len(self._devices)
        self._seq[device] += 1
        key = MessageKey(device, self._boot, self._seq[device])
        values = {"temperature": {"value": 20 + key.seq % 100 / 10, "unit": "°C"}, "humidity": 40 + key.seq % 50}
        body = {"ts": time.time_ns() // 1_000_000, "boot": key.boot, "seq": key.seq, "values": values}
        payload = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
        self.sent[key] = payload
        if self._publisher.publish(self._topic.format(device=device), payload, tag=key):
            return True
        del self.sent[key]
        self._seq[device] -= 1
        return False

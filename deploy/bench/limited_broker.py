"""Broker for one subscriber with a fixed limit of messages in flight, which makes the messages itself.

Brokers that do not know the subscriber's Receive Maximum, or have their own limit, stop at 10, 20 or 32 messages. mosquitto
2.0.11 does not respect its own `max_inflight_messages` while it has a queue, so it cannot measure such limits.

It runs as its own process and speaks MQTT 3.1.1. It reads the limit as a line and prints its port. For each plan (a line of
JSON) it prints `ready`, waits for another line, sends the messages, and prints the result as JSON.
"""

import json
import select
import socket
import sys
import time
from dataclasses import asdict
from typing import TextIO

from deploy.bench.load_publisher import GIVE_UP_SECONDS, LoadPlan, LoadResult, native_payload, publish_packet

__all__ = ["LimitedBroker"]

_CONNECT, _PUBACK, _SUBSCRIBE, _PINGREQ = 1, 4, 8, 12
_TICK_SECONDS = 0.001


class LimitedBroker:
    """Listens on a free port of loopback; the newest client is the subscriber.

    Attributes:
        port: where it listens.
        subscribed: whether a client is there that has subscribed.
        most_in_flight: the most messages that were on the way at once.
    """

    def __init__(self, inflight: int) -> None:
        self._inflight = inflight
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._client: socket.socket | None = None
        self._buffer = b""
        self.subscribed = False
        self.acknowledged = self.most_in_flight = 0

    def turn(self, timeout_seconds: float, *inputs: TextIO) -> bool:
        """Take what the client sends; returns whether one of the `inputs` can be read."""
        sockets = [self._listener] if self._client is None else [self._listener, self._client]
        waited: list[socket.socket | TextIO] = [*sockets, *inputs]
        readable = select.select(waited, [], [], timeout_seconds)[0]
        if self._listener in readable:
            self._client, _ = self._listener.accept()
            self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._buffer, self.subscribed = b"", False
        elif self._client is not None and self._client in readable:
            self._receive(self._client)
        return any(found in inputs for found in readable)

    def run(self, packets: list[bytes], rate: float) -> LoadResult:
        """Send all of them, no more than the limit on the way, and wait for the last PUBACK."""
        self.acknowledged = self.most_in_flight = sent = 0
        began_cpu, began = time.process_time(), time.monotonic()
        sent_at, deadline = began, began + len(packets) / (rate or 500) + GIVE_UP_SECONDS
        while self.acknowledged < len(packets) and time.monotonic() < deadline:
            due = int((time.monotonic() - began) * rate) if rate else len(packets)
            upto = min(due, len(packets), self.acknowledged + self._inflight)
            if upto > sent and self._client is not None:
                self._client.sendall(b"".join(packets[sent:upto]))
                sent, sent_at = upto, time.monotonic()
                self.most_in_flight = max(self.most_in_flight, sent - self.acknowledged)
            self.turn(_TICK_SECONDS if rate else 0.05)
        seconds = time.monotonic() - began
        return LoadResult(sent, self.acknowledged, seconds, sent_at - began, time.process_time() - began_cpu)

    def close(self) -> None:
        """End the connection and the listener."""
        if self._client is not None:
            self._client.close()
        self._listener.close()

    def _receive(self, client: socket.socket) -> None:
        data = client.recv(65536)
        if not data:
            client.close()
            self._client, self.subscribed = None, False
            return
        data = self._buffer + data
        at = 0
        while len(data) >= at + 2:
            size, head = _remaining_length(data, at + 1)
            if not head or len(data) < head + size:
                break
            self._answer(client, data[at] >> 4, data[head : head + size])
            at = head + size
        self._buffer = data[at:]

    def _answer(self, client: socket.socket, kind: int, body: bytes) -> None:
        if kind == _PUBACK:
            self.acknowledged += 1
        elif kind == _CONNECT:
            client.sendall(b"\x20\2\0\0")
        elif kind == _SUBSCRIBE:
            client.sendall(b"\x90\3" + body[:2] + b"\1")
            self.subscribed = True
        elif kind == _PINGREQ:
            client.sendall(b"\xd0\0")


def _remaining_length(data: bytes, at: int) -> tuple[int, int]:
    """Return the remaining length at `at`, and the place where it ends; 0 if it is not complete yet."""
    size = 0
    for place, byte in enumerate(data[at : at + 4]):
        size |= (byte & 127) << 7 * place
        if byte < 128:
            return size, at + place + 1
    return 0, 0


def _packets(plan: LoadPlan) -> list[bytes]:
    payload = native_payload(plan.boot, int(time.time() * 1000))
    return [publish_packet(*payload(*plan.names(number)), mid=number % 65535 + 1) for number in range(plan.messages)]


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    """One line for the limit, then two for each plan; ends with the input."""
    broker = LimitedBroker(int(sys.stdin.readline()))
    _say(broker.port)
    while True:
        while not broker.turn(1.0, sys.stdin):
            pass
        line = sys.stdin.readline()
        if not line:
            break
        plan = LoadPlan(**json.loads(line))
        packets = _packets(plan)
        _say("ready")
        while not broker.turn(1.0, sys.stdin):
            pass
        sys.stdin.readline()
        _say(json.dumps(asdict(broker.run(packets, plan.rate))))
    broker.close()


if __name__ == "__main__":
    main()

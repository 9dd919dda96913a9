"""Publish the script of a simulated fleet at a rate, and log what was tried and what was acknowledged."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from gateway.devtools.publisher import Publisher
from gateway.devtools.simulator import FleetMessage, FleetScript
from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import UnavailableError

__all__ = ["FleetTotals", "PublishJournal", "run_fleet"]


class PublishJournal:
    """Log of what was tried and what was acknowledged, line by line: `A` or `P`, device, boot, seq, epoch ms."""

    def __init__(self, file: Path) -> None:
        self._out: IO[str] = file.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()

    def write(self, kind: str, message: FleetMessage) -> None:
        """Write one line; `kind` A = handed to the connection, P = PUBACK came."""
        line = f"{kind} {message.device} {message.boot} {message.seq} {time.time_ns() // 1_000_000}\n"
        with self._lock:
            self._out.write(line)

    def close(self) -> None:
        """Flush and close."""
        self._out.close()


@dataclass(slots=True)
class FleetTotals:
    """Totals of a fleet."""

    sent: int = 0
    acknowledged: int = 0
    faults: dict[str, int] = field(default_factory=dict)


def run_fleet(
    settings: MqttSettings,
    script: FleetScript,
    *,
    rate: float,
    stop: threading.Event,
    seconds: float | None = None,
    connections: int = 2,
    journal: PublishJournal | None = None,
    client_prefix: str = "tidegate-fleet",
    on_sent: Callable[[FleetMessage], None] | None = None,
    drain_seconds: float = 5.0,
) -> FleetTotals:
    """Publish the script at `rate` messages per second until `stop` or `seconds`, then wait for the PUBACKs.

    Each device uses one connection, so its messages arrive in the script's order.
    """

    def acknowledged(tag: object) -> None:
        if journal is not None and isinstance(tag, FleetMessage):
            journal.write("P", tag)

    publishers = [
        Publisher(settings, client_id=f"{client_prefix}-{number}", acknowledged=acknowledged, stop=stop)
        for number in range(connections)
    ]
    _connect(publishers, stop)
    totals = FleetTotals()
    try:
        for message in _paced(script, rate, stop, seconds):
            if journal is not None:
                journal.write("A", message)
            if not _publisher_of(message.device, publishers).publish(message.topic, message.payload, tag=message):
                break
            totals.sent += 1
            if message.fault:
                totals.faults[message.fault] = totals.faults.get(message.fault, 0) + 1
            if on_sent is not None:
                on_sent(message)
    finally:
        for publisher in publishers:
            publisher.drain(timeout_seconds=drain_seconds)
            publisher.close()
        totals.acknowledged = sum(publisher.acknowledged_count for publisher in publishers)
    return totals


def _connect(publishers: list[Publisher], stop: threading.Event) -> None:
    """Connect each; wait for a broker that is still starting."""
    for publisher in publishers:
        while not stop.is_set():
            try:
                publisher.connect(timeout_seconds=10.0)
                break
            except UnavailableError:
                if stop.wait(1.0):
                    raise


def _publisher_of(device: str, publishers: list[Publisher]) -> Publisher:
    return publishers[sum(device.encode()) % len(publishers)]


def _paced(script: FleetScript, rate: float, stop: threading.Event, seconds: float | None) -> Iterator[FleetMessage]:
    """Yield messages when they are due. After a stall, missed messages are made up for only up to one second's worth."""
    began = time.monotonic()
    due = began
    while not stop.is_set() and (seconds is None or due - began < seconds):
        now = time.monotonic()
        if due > now:
            # A wake-up for every message costs more than the message: sleep at least 2 ms.
            stop.wait(max(due - now, 0.002))
            continue
        due = max(due, now - 1.0) + 1 / rate
        yield script.next_message(time.time_ns() // 1_000_000)

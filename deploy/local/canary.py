"""The canary: a reading published over MQTT every few seconds and read back from Delta, beside the writer.

It is the only part that sees the whole way, so `up` says "ready" when the canary has seen its first reading.
"""

import json
import logging
import threading
import time
from collections import OrderedDict
from typing import Final

from gateway.publisher import Publisher
from ingest.contract.errors import UnavailableError
from lakehouse.follow import Commit, TableFollower
from monitoring.metrics.canary import CanaryMetrics

__all__ = ["DEVICE", "Canary", "run_canary"]

DEVICE: Final = "tidegate-canary"
TOPIC: Final = f"tidegate/v1/{DEVICE}/readings"
POLL_SECONDS: Final = 0.05
KEPT: Final = 1000

logger = logging.getLogger("tidegate.deploy.canary")


class Canary:
    """What was published and what came back. One thread publishes, another one reads."""

    def __init__(self, metrics: CanaryMetrics, *, boot: int, late_seconds: float) -> None:
        self._metrics = metrics
        self._boot = boot
        self._late_seconds = late_seconds
        self._sent: OrderedDict[int, float] = OrderedDict()
        self._lock = threading.Lock()
        self._seq = 0
        self._started_at = time.monotonic()
        self._seen_at: float | None = None
        self._latency_seconds = 0.0

    def next_payload(self) -> bytes:
        """The next reading, noted as sent now."""
        with self._lock:
            self._seq += 1
            now = time.time()
            self._sent[self._seq] = now
            while len(self._sent) > KEPT:
                self._sent.popitem(last=False)
        self._metrics.published.inc()
        reading = {"ts": round(now * 1000), "boot": self._boot, "seq": self._seq, "values": {"heartbeat": self._seq}}
        return json.dumps(reading).encode()

    def observe(self, commit: Commit) -> None:
        """Match the rows of a commit with what was sent."""
        if commit.rows.num_rows == 0:
            return
        for boot, seq in zip(*(commit.rows.column(name).to_pylist() for name in ("boot", "seq")), strict=True):
            with self._lock:
                sent_at = self._sent.pop(seq, None) if boot == self._boot else None
            if sent_at is None:
                continue
            if self._seen_at is None:
                logger.info("first canary reading read back after %.2f s", commit.seen_at - sent_at)
            self._latency_seconds = commit.seen_at - sent_at
            self._seen_at = time.monotonic()
            self._metrics.seen.inc()
            self._metrics.last_seen.set(commit.seen_at)
            self._metrics.end_to_end.observe(self._latency_seconds)

    def healthy(self) -> tuple[bool, str]:
        """Whether a reading came back lately, in words."""
        if self._seen_at is None:
            return False, f"no reading read back yet ({time.monotonic() - self._started_at:.0f} s)"
        age = time.monotonic() - self._seen_at
        if age > self._late_seconds:
            return False, f"no reading read back for {age:.0f} s"
        return True, f"a reading was read back after {self._latency_seconds:.2f} s"


def run_canary(
    publisher: Publisher, follower: TableFollower, canary: Canary, *, every_seconds: float, stop: threading.Event
) -> None:
    """Publish and read back until stopped."""
    thread = threading.Thread(
        target=_publish, args=(publisher, canary, every_seconds, stop), name="canary", daemon=True
    )
    thread.start()
    while not stop.wait(POLL_SECONDS):
        try:
            for commit in follower.poll():
                canary.observe(commit)
        except Exception:
            # The table may be made, moved or cleaned while we look; /healthz tells when it does not mend.
            logger.exception("the table could not be read")
            stop.wait(1.0)
    thread.join(5.0)


def _publish(publisher: Publisher, canary: Canary, every_seconds: float, stop: threading.Event) -> None:
    connected = False
    while not stop.is_set():
        try:
            if not connected:
                publisher.connect(timeout_seconds=5.0)
                connected = True
            publisher.publish(TOPIC, canary.next_payload())
        except UnavailableError as error:
            logger.warning("%s", error)
        stop.wait(every_seconds)

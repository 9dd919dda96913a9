"""The canary: it publishes a reading over MQTT every few seconds, reads it back from Delta, and measures each hop.

Only the canary sees the whole way of a reading, so `up` says "ready" when the canary has seen its first one. A reading counts
as published when it is due, even if it cannot be sent: a lost reading is then missing from the seen ones.
"""

import json
import logging
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from gateway.devtools.publisher import Publisher
from ingest.contract.errors import UnavailableError
from lakehouse.table_follower import FollowedCommit, TableFollower
from monitoring.metrics.canary import HOPS, CanaryMetrics

__all__ = ["COLUMNS", "DEVICE", "Canary", "HopClocks", "HopTimes", "run_canary"]

DEVICE: Final = "tidegate-canary"
TOPIC: Final = f"tidegate/v1/{DEVICE}/readings"
COLUMNS: Final = ("boot", "seq", "received_at", "kafka_time", "landed_at")
"""Columns that the canary reads back."""
POLL_SECONDS: Final = 0.05
KEPT: Final = 1000
MOST_WAITING: Final = 100
"""Most readings that wait for an absent broker. Further ones that are due count as published, but are not sent."""
KAFKA_RESOLUTION_SECONDS: Final = 0.001
REMEMBERED: Final = 100

logger = logging.getLogger("tidegate.deploy.canary")


@dataclass(frozen=True, slots=True)
class HopClocks:
    """Times at which a reading passed each point, in epoch seconds, by the clocks of up to three machines.

    The clocks are the gateway's (receive), Kafka's, and the clock of the stream and of this process.
    - Kafka's times are rounded down to milliseconds, so half a millisecond is added: each of the two hops next to Kafka is right
      to half a millisecond, and their sum is exact.
    - The time of a commit is that of its log file, which the kernel takes from its tick: up to 10 ms early, never late. On an
      object store it is the store's clock, often in whole seconds.
    """

    published_at: float
    received_at: float
    kafka_at: float
    landed_at: float
    committed_at: float
    seen_at: float

    @classmethod
    def of_row(
        cls, row: Mapping[str, datetime], *, published_at: float, committed_at: float, seen_at: float
    ) -> "HopClocks":
        """Return the clocks of a row of `readings`, with the times that only the canary knows."""
        received, kafka, landed = (row[name].timestamp() for name in ("received_at", "kafka_time", "landed_at"))
        return cls(published_at, received, kafka, landed, committed_at, seen_at)

    def hops(self) -> dict[str, float]:
        """Return the seconds per hop, in the order of HOPS. Skewed clocks give negative hops. The sum is publish to queryable."""
        points = (
            self.published_at,
            self.received_at,
            self.kafka_at + KAFKA_RESOLUTION_SECONDS / 2,
            self.landed_at,
            self.committed_at,
            self.seen_at,
        )
        return {hop: after - before for hop, before, after in zip(HOPS, points, points[1:], strict=False)}


class HopTimes:
    """Observed times of the hops, and the clock skew of the last hundred readings.

    A negative hop counts as 0: it is impossible and shows that two clocks differ. Its size is reported as the skew.
    """

    def __init__(self, metrics: CanaryMetrics) -> None:
        self._metrics = metrics
        self._skews: dict[str, deque[float]] = {hop: deque(maxlen=REMEMBERED) for hop in HOPS}

    def observe(self, clocks: HopClocks) -> None:
        """Observe all hops of one reading."""
        for hop, seconds in clocks.hops().items():
            self._metrics.hops.labels(hop).observe(max(0.0, seconds))
            # A difference below the resolution of Kafka's clock is not a skew.
            self._skews[hop].append(seconds if seconds < -KAFKA_RESOLUTION_SECONDS else 0.0)
            self._metrics.clock_skew.labels(hop).set(min(self._skews[hop]))


class Canary:
    """Counts of readings that were published and that came back. One thread publishes, another one reads."""

    def __init__(self, metrics: CanaryMetrics, *, boot: int, late_seconds: float) -> None:
        self._metrics = metrics
        self._hops = HopTimes(metrics)
        self._boot = boot
        self._late_seconds = late_seconds
        self._sent: OrderedDict[int, float] = OrderedDict()
        self._lock = threading.Lock()
        self._seq = 0
        self._started_at = time.monotonic()
        self._seen_at: float | None = None
        self._latency_seconds = 0.0
        self._newest_back = 0
        metrics.oldest_wait.set_function(self.oldest_wait_seconds)

    def next_payload(self) -> bytes:
        """Return the payload of the next reading, and note it as sent now."""
        with self._lock:
            self._seq += 1
            now = time.time()
            self._sent[self._seq] = now
            while len(self._sent) > KEPT:
                self._sent.popitem(last=False)
        self._metrics.published.inc()
        reading = {"ts": round(now * 1000), "boot": self._boot, "seq": self._seq, "values": {"heartbeat": self._seq}}
        return json.dumps(reading).encode()

    def missed(self, count: int) -> None:
        """Count readings that were due while the last one could not be sent."""
        self._metrics.published.inc(count)

    def oldest_wait_seconds(self) -> float:
        """Return how long the oldest reading has waited. A reading that a later one overtook is lost and no longer waits."""
        with self._lock:
            waiting = (at for seq, at in self._sent.items() if seq > self._newest_back)
            return max(0.0, time.time() - next(waiting, float("inf")))

    def acknowledged(self, _tag: object) -> None:
        """Count a reading that the broker accepted."""
        self._metrics.acknowledged.inc()

    def observe(self, commit: FollowedCommit) -> None:
        """Match the rows of a commit with the sent readings."""
        for row in commit.rows.to_pylist():
            with self._lock:
                sent_at = self._sent.pop(row["seq"], None) if row["boot"] == self._boot else None
                self._newest_back = max(self._newest_back, 0 if sent_at is None else row["seq"])
            if sent_at is None:
                continue
            if self._seen_at is None:
                logger.info("first canary reading read back after %.2f s", commit.seen_at - sent_at)
            self._latency_seconds = commit.seen_at - sent_at
            self._seen_at = time.monotonic()
            self._metrics.seen.inc()
            self._metrics.last_seen.set(commit.seen_at)
            self._metrics.end_to_end.observe(self._latency_seconds)
            times = {"published_at": sent_at, "committed_at": commit.committed_at, "seen_at": commit.seen_at}
            self._hops.observe(HopClocks.of_row(row, **times))

    def healthy(self) -> tuple[bool, str]:
        """Return whether a reading came back recently, and a sentence about it."""
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
            # The table may be created, moved or cleaned during the look; /healthz reports it if it stays unreadable.
            logger.exception("cannot read the table")
            stop.wait(1.0)
    thread.join(5.0)


def _publish(publisher: Publisher, canary: Canary, every_seconds: float, stop: threading.Event) -> None:
    connected, due_at = False, time.monotonic()
    while not stop.is_set():
        payload = canary.next_payload()
        try:
            if not connected:
                publisher.connect(timeout_seconds=5.0)
                connected = True
            if publisher.waiting_count < MOST_WAITING:
                publisher.publish(TOPIC, payload, traceparent=new_traceparent())
        except UnavailableError as error:
            logger.warning("%s", error)
        late_seconds = time.monotonic() - due_at
        missed = int(late_seconds // every_seconds)
        canary.missed(missed)
        due_at += (missed + 1) * every_seconds
        stop.wait(max(0.0, due_at - time.monotonic()))


def new_traceparent() -> str:
    """Return a new W3C trace context. Each reading has its own, so that `tidegate trace` can follow it."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"

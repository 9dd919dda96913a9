"""Time of a canary reading on each hop, by the clocks that it met, and the difference between those clocks.

Three clocks of possibly three machines are compared: the gateway's (receive), Kafka's, and that of the stream and of this
process. What is read of them:
- Kafka's clock has whole milliseconds and is rounded down, so its middle is taken: each of the two hops next to it is
  right to half a millisecond, and their sum is exact.
- A commit is dated by its log file's time, which the kernel takes from its tick: up to 10 ms early, never late. On an object
  store it is the store's clock, often in whole seconds.
- A hop that comes out negative, which no hop is, counts as 0; how negative it was is the skew, reported next to it.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from monitoring.metrics.canary import HOPS, CanaryMetrics

__all__ = ["HopClocks", "HopTimes"]

KAFKA_RESOLUTION_SECONDS: Final = 0.001
REMEMBERED: Final = 100


@dataclass(frozen=True, slots=True)
class HopClocks:
    """Times at which a reading passed each point, in epoch seconds; `kafka_at` in whole milliseconds, rounded down."""

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
        """Seconds per hop, in the order of HOPS; negative where two clocks disagree. They sum to publish -> queryable."""
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
    """Observes the hops of each reading, and states the skew of the last hundred."""

    def __init__(self, metrics: CanaryMetrics) -> None:
        self._metrics = metrics
        self._skews: dict[str, deque[float]] = {hop: deque(maxlen=REMEMBERED) for hop in HOPS}

    def observe(self, clocks: HopClocks) -> None:
        """One reading, all hops."""
        for hop, seconds in clocks.hops().items():
            self._metrics.hops.labels(hop).observe(max(0.0, seconds))
            # Less than Kafka's clock can resolve is not a disagreement.
            self._skews[hop].append(seconds if seconds < -KAFKA_RESOLUTION_SECONDS else 0.0)
            self._metrics.clock_skew.labels(hop).set(min(self._skews[hop]))

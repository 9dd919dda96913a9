"""Kafka's clock as seen from here: how old a record is must not depend on whose clock is wrong.

No request of Kafka's protocol tells the broker's time. But a record that came in between two of our looks carries a time
of that clock which lies between the two, so each such record bounds the difference; bounds of many looks narrow it down.
"""

import math
import time
from collections.abc import Callable

__all__ = ["KafkaClock"]


class KafkaClock:
    """The difference of two clocks, as small as what was seen allows: 0 where both may be right."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._low, self._high = -math.inf, math.inf

    def observe(self, appended_ms: int, *, after: float, before: float) -> None:
        """A record was appended at `appended_ms` of Kafka's clock, between two moments of ours.

        What contradicts all earlier bounds means that a clock was set, so it counts alone.
        """
        low, high = appended_ms / 1000 - before, (appended_ms + 1) / 1000 - after
        if low <= self._high and high >= self._low:
            low, high = max(low, self._low), min(high, self._high)
        self._low, self._high = low, high

    @property
    def skew_seconds(self) -> float:
        """How far Kafka's clock is ahead of ours, at the least."""
        return min(max(0.0, self._low), self._high)

    def now(self) -> float:
        """Epoch seconds by Kafka's clock."""
        return self._wall() + self.skew_seconds

"""Kafka's clock, estimated from here: the age of a record must not depend on which clock is wrong.

No request of Kafka's protocol returns the broker's time. But a record that was appended between two of our looks carries
a time of that clock between the two. So each such record bounds the difference, and the bounds of many looks narrow it.
"""

import math
import time
from collections.abc import Callable

__all__ = ["KafkaClock"]


class KafkaClock:
    """Difference of two clocks, as small as the observations allow: 0 if both may be right."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._low, self._high = -math.inf, math.inf

    def observe(self, appended_ms: int, *, after: float, before: float) -> None:
        """Note a record that was appended at `appended_ms` of Kafka's clock, between two moments of ours.

        If it contradicts all earlier bounds, a clock was set, and only this observation counts.
        """
        low, high = appended_ms / 1000 - before, (appended_ms + 1) / 1000 - after
        if low <= self._high and high >= self._low:
            low, high = max(low, self._low), min(high, self._high)
        self._low, self._high = low, high

    @property
    def skew_seconds(self) -> float:
        """Lower bound of how far Kafka's clock is ahead of ours, in seconds."""
        return min(max(0.0, self._low), self._high)

    def now(self) -> float:
        """Return epoch seconds by Kafka's clock."""
        return self._wall() + self.skew_seconds

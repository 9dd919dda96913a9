"""Time until retention deletes a record that a group has not read: by age, and by size if the log is full."""

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from ingest.lag.cluster_state import TopicRetention

__all__ = ["DataLossForecast"]

STEP_SECONDS: Final = 10.0
WINDOW_STEPS: Final = 30
"""The pace is measured over the last five minutes."""
CHECK_SECONDS: Final = 300.0
"""Interval at which Kafka looks for records to delete (`log.retention.check.interval.ms`)."""

Key = tuple[str, int]
"""Topic, partition."""


@dataclass(slots=True)
class _Log:
    """One partition's ends over time, and where its end was when its oldest record last changed."""

    oldest: int
    end_at_drop: int
    ends: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=WINDOW_STEPS + 1))


class DataLossForecast:
    """Both ends of partitions over time. A full log drops at its tail what arrives at its head, so that is the pace.

    The tail itself moves by whole segments, hours apart, so its own pace says nothing.
    """

    def __init__(self) -> None:
        self._logs: dict[Key, _Log] = {}

    def keep(self, keys: Collection[Key]) -> None:
        """Forget all other partitions."""
        self._logs = {key: log for key, log in self._logs.items() if key in keys}

    def observe(self, key: Key, *, oldest: int, end: int, now: float) -> None:
        """Note the partition's ends at a moment of a clock that never goes back."""
        log = self._logs.get(key)
        if log is None or (log.ends and end < log.ends[-1][1]):
            log = self._logs[key] = _Log(oldest, end)
        if oldest != log.oldest:
            log.oldest, log.end_at_drop = oldest, end
        if not log.ends or now - log.ends[-1][0] >= STEP_SECONDS:
            log.ends.append((now, end))

    def seconds_left(
        self, key: Key, *, position: int, age_seconds: float, end: int, retention: TopicRetention, now: float
    ) -> float:
        """Return the seconds until the record at `position`, of this age, may be deleted; never negative."""
        by_age = retention.seconds - age_seconds
        return max(0.0, min(by_age, self._by_size(key, position, end, retention, now)))

    def _by_size(self, key: Key, position: int, end: int, retention: TopicRetention, now: float) -> float:
        log = self._logs.get(key)
        if log is None or not log.ends or log.oldest == 0 or math.isinf(retention.size_bytes):
            return math.inf
        since, begin = log.ends[0]
        if now - since < STEP_SECONDS or end <= begin:
            return math.inf
        pace = (end - begin) / (now - since)
        # Two segments arrived and Kafka has checked since, but dropped nothing: the limit was raised, so the log is not full.
        segment = (end - log.oldest) * min(1.0, retention.segment_bytes / retention.size_bytes)
        if end - log.end_at_drop > 2 * segment + 2 * CHECK_SECONDS * pace:
            return math.inf
        return max(0, position - log.oldest) / pace

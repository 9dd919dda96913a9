"""Facts about Kafka that the monitor keeps between looks: topic settings, clock difference, time until data loss.

Retention deletes a record that a group has not read: by age, and by size if the log is full.
"""

import math
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from ingest.contract.errors import RetryableError
from ingest.lag.cluster_reader import ClusterReader
from ingest.lag.cluster_state import PartitionState, TopicRetention
from ingest.lag.kafka_clock import KafkaClock

__all__ = ["ClusterFacts", "DataLossForecast"]

ASK_AGAIN_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 1.0

Where = tuple[str, int]
"""Topic and partition."""

STEP_SECONDS: Final = 10.0
WINDOW_STEPS: Final = 30
"""The pace is measured over the last five minutes."""
CHECK_SECONDS: Final = 300.0
"""Interval at which Kafka looks for records to delete (`log.retention.check.interval.ms`)."""


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
        self._logs: dict[Where, _Log] = {}

    def keep(self, keys: Collection[Where]) -> None:
        """Forget all other partitions."""
        self._logs = {key: log for key, log in self._logs.items() if key in keys}

    def observe(self, key: Where, *, oldest: int, end: int, now: float) -> None:
        """Note the partition's ends at a moment of a clock that never goes back."""
        log = self._logs.get(key)
        if log is None or (log.ends and end < log.ends[-1][1]):
            log = self._logs[key] = _Log(oldest, end)
        if oldest != log.oldest:
            log.oldest, log.end_at_drop = oldest, end
        if not log.ends or now - log.ends[-1][0] >= STEP_SECONDS:
            log.ends.append((now, end))

    def seconds_left(
        self, key: Where, *, position: int, age_seconds: float, end: int, retention: TopicRetention, now: float
    ) -> float:
        """Return the seconds until the record at `position`, of this age, may be deleted; never negative."""
        by_age = retention.seconds - age_seconds
        return max(0.0, min(by_age, self._by_size(key, position, end, retention, now)))

    def _by_size(self, key: Where, position: int, end: int, retention: TopicRetention, now: float) -> float:
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


class ClusterFacts:
    """Facts that each look updates. It asks Kafka by itself for those that rarely change.

    Attributes:
        clock: Kafka's clock.
        loss: time until retention deletes a record.
        retention: per topic, where this user may see it.
        min_in_sync: how many replicas must be in sync for Kafka to accept a record; per topic, as above.
    """

    def __init__(self) -> None:
        self.clock = KafkaClock()
        self.loss = DataLossForecast()
        self.retention: dict[str, TopicRetention] = {}
        self.min_in_sync: dict[str, int] = {}
        self._settings_due = self._clock_due = 0.0
        self._topics: frozenset[str] = frozenset()
        self._ends: dict[Where, int] = {}
        self._asked_at = 0.0

    def learn(self, reader: ClusterReader, partitions: Sequence[PartitionState], *, asked_at: float) -> None:
        """Take the result of a look whose offsets were asked for at `asked_at` (epoch seconds of our clock) or later."""
        now = time.monotonic()
        known = [one for one in partitions if one.oldest is not None and one.end is not None]
        for one in known:
            self.loss.observe((one.topic, one.partition), oldest=one.oldest or 0, end=one.end or 0, now=now)
        ends = {(one.topic, one.partition): one.end or 0 for one in known}
        self.loss.keep(ends.keys())
        self._ask_settings(reader, frozenset(one.topic for one in partitions), now)
        self._ask_clock(reader, ends, now)
        self._ends, self._asked_at = ends, asked_at

    def _ask_settings(self, reader: ClusterReader, topics: frozenset[str], now: float) -> None:
        if now < self._settings_due and topics == self._topics:
            return
        self._topics, self._settings_due = topics, now + RETRY_SECONDS
        try:
            told = reader.topic_settings(sorted(topics), PATIENCE_SECONDS)
        except RetryableError:
            return
        self.retention = {topic: one.retention for topic, one in told.items()}
        self.min_in_sync = {topic: one.min_in_sync for topic, one in told.items()}
        self._settings_due = now + ASK_AGAIN_SECONDS

    def _ask_clock(self, reader: ClusterReader, ends: dict[Where, int], now: float) -> None:
        """Observe Kafka's clock: a newest record that is new since the last look was appended after that look and before now."""
        if now < self._clock_due:
            return
        for where, end in ends.items():
            retention = self.retention.get(where[0])
            if retention is None or not retention.by_append_time or end <= self._ends.get(where, end):
                continue
            self._clock_due = now + ASK_AGAIN_SECONDS
            newest = reader.newest(*where, PATIENCE_SECONDS)
            if newest is not None and newest[0] >= self._ends[where]:
                self.clock.observe(newest[1], after=self._asked_at, before=time.time())
            return

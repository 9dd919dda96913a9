"""Facts about Kafka that the monitor keeps between looks: topic settings, clock difference, growth of logs."""

import time
from collections.abc import Sequence
from typing import Final

from ingest.contract.errors import RetryableError
from ingest.lag.cluster_reader import ClusterReader
from ingest.lag.cluster_state import PartitionState, TopicRetention
from ingest.lag.data_loss import DataLossForecast
from ingest.lag.kafka_clock import KafkaClock

__all__ = ["ClusterFacts"]

ASK_AGAIN_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 1.0

Where = tuple[str, int]
"""Topic and partition."""


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

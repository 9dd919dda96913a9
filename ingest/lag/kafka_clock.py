"""Kafka's clock, estimated from here, and the comparison of this process's clock with it.

The age of a record must not depend on which clock is wrong. No request of Kafka's protocol returns the broker's time. But a
record that was appended between two of our looks carries a time of that clock between the two. So each such record bounds the
difference, and the bounds of many looks narrow it.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from ingest.contract.errors import RetryableError, TidegateError
from ingest.contract.topics import OUTCOMES
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_reader import ClusterReader

__all__ = ["ClockWatch", "KafkaClock", "NewestRecord", "watch_clock"]

logger = logging.getLogger("tidegate.ingest.clock")

LOOK_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 3.0
OFF_SECONDS: Final = 60.0
"""A larger difference is logged. The alert TidegateClockOff has the same bound."""

NewestRecord = Callable[[int], tuple[int, int] | None]
"""Offset and time in ms of a partition's newest record; None where Kafka does not return it."""


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


class _Gauge(Protocol):
    def set(self, value: float) -> object: ...


class ClockWatch:
    """Clock comparison by the topic of the outcomes, to which a gateway writes as long as messages come.

    Args:
        newest: asks Kafka.
        gauge: gets how far Kafka's clock is ahead of ours, in seconds; negative where ours is ahead.
        partitions: of the topic.
        wall: our clock.
    """

    def __init__(
        self, newest: NewestRecord, gauge: _Gauge, *, partitions: int = 1, wall: Callable[[], float] = time.time
    ) -> None:
        self._newest, self._gauge, self._partitions, self._wall = newest, gauge, partitions, wall
        self._clock = KafkaClock(wall)
        self._seen: dict[int, tuple[int, float]] = {}
        self._is_off = False

    def look(self) -> float:
        """Look once and return the difference as far as it is known."""
        for partition in range(self._partitions):
            asked_at, found = self._wall(), self._newest(partition)
            if found is None:
                continue
            before = self._seen.get(partition)
            self._seen[partition] = found[0], asked_at
            # A record that is new since the last look was appended after it.
            if before is not None and found[0] > before[0]:
                self._clock.observe(found[1], after=before[1], before=self._wall())
        skew = self._clock.skew_seconds
        self._gauge.set(skew)
        self._tell(skew)
        return skew

    def _tell(self, skew: float) -> None:
        is_off = abs(skew) > OFF_SECONDS
        if is_off and not self._is_off:
            logger.error(
                "The clock of this machine is %.0f s %s Kafka's. Device times are compared with it, so good messages may "
                "become dead letters (ts_too_far_future). Set the clock (chronyc tracking, timedatectl).",
                abs(skew),
                "behind" if skew > 0 else "ahead of",
            )
        self._is_off = is_off


def watch_clock(kafka: KafkaSettings, gauge: _Gauge, stop: threading.Event) -> threading.Thread:
    """Watch in the background until `stop`. Kafka may be unreachable at times."""
    thread = threading.Thread(target=_watch, args=(kafka, gauge, stop), name="kafka clock", daemon=True)
    thread.start()
    return thread


def _watch(kafka: KafkaSettings, gauge: _Gauge, stop: threading.Event) -> None:
    with suppress(TidegateError):  # settings that cannot work end the gateway itself
        reader = ClusterReader(kafka)
        partitions = 0
        watch: ClockWatch | None = None
        while not stop.wait(LOOK_SECONDS):
            with suppress(RetryableError):
                if not partitions:
                    partitions = len(reader.topics(lambda name: name == OUTCOMES, PATIENCE_SECONDS)[1])
                if partitions and watch is None:
                    watch = ClockWatch(
                        lambda partition: reader.newest(OUTCOMES, partition, PATIENCE_SECONDS),
                        gauge,
                        partitions=partitions,
                    )
                if watch is not None:
                    watch.look()
        reader.close()

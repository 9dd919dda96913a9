"""Findings about clocks: this machine's against Kafka's, by the times of its records, and against the broker's if it has one."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from deploy.local.preflight import PreflightCheck
from ingest.contract.topics import OUTCOMES
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_reader import ClusterReader
from ingest.lag.kafka_clock import KafkaClock

__all__ = ["check_broker_clock", "check_kafka_clock"]

FAIL_SECONDS: Final = 60.0
"""As the alert TidegateClockOff."""
WARN_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 3.0
PAUSE_SECONDS: Final = 0.25
WAIT_SECONDS: Final = 2.5
_FIX: Final = "Set the clocks of both machines by the same time servers (`chronyc tracking`, `timedatectl`)."

Newest = Callable[[], tuple[int, int] | None]
"""Offset and time in epoch ms of the newest record of `telemetry.outcomes`; None if there is none."""


def check_kafka_clock(
    kafka: KafkaSettings,
    *,
    newest: Newest | None = None,
    wall: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[PreflightCheck]:
    """Yield the difference from Kafka's clock. It waits up to 2.5 s for a record that Kafka appends meanwhile.

    Kafka's protocol does not report the time. Without such a record only a clock that is ahead shows.

    Raises:
        RetryableError: Kafka does not answer.
    """
    reader = ClusterReader(kafka) if newest is None else None
    try:
        ask = newest or (lambda: reader.newest(OUTCOMES, 0, PATIENCE_SECONDS) if reader else None)
        yield from _compare(ask, wall, sleep)
    finally:
        if reader is not None:
            reader.close()


def _compare(newest: Newest, wall: Callable[[], float], sleep: Callable[[float], None]) -> Iterator[PreflightCheck]:
    asked_at = wall()
    first = newest()
    if first is None:
        yield PreflightCheck("clock", "ok", "not compared with Kafka's clock: there is no record of a gateway yet")
        return
    clock = KafkaClock(wall)
    ahead = first[1] / 1000 - wall()
    for _ in range(int(WAIT_SECONDS / PAUSE_SECONDS)):
        sleep(PAUSE_SECONDS)
        found = newest()
        if found is not None and found[0] > first[0]:
            clock.observe(found[1], after=asked_at, before=wall())
            yield _judge("Kafka", clock.skew_seconds)
            return
    if ahead > WARN_SECONDS:
        yield _judge("Kafka", ahead)
    else:
        text = "Kafka's clock is not ahead; no new record came, so a clock that is behind does not show"
        yield PreflightCheck("clock", "ok", text)


def check_broker_clock(clock: tuple[str, float] | None) -> Iterator[PreflightCheck]:
    """Yield the difference from the broker's clock, if the broker publishes one with its zone (EMQX does)."""
    if clock is None:
        return
    try:
        broker_time = datetime.fromisoformat(clock[0])
    except ValueError:
        return
    if broker_time.tzinfo is not None:
        yield _judge("the broker", broker_time.timestamp() - clock[1], slack_seconds=60.0)


def _judge(whose: str, ahead_seconds: float, *, slack_seconds: float = 0.0) -> PreflightCheck:
    """Judge a difference; `slack_seconds` is the age that the observation may have."""
    off = abs(ahead_seconds) - (slack_seconds if ahead_seconds < 0 else 0.0)
    if off <= WARN_SECONDS:
        return PreflightCheck("clock", "ok", f"this machine's clock agrees with {whose}'s")
    text = f"this machine's clock is {off:.0f} s {'behind' if ahead_seconds > 0 else 'ahead of'} {whose}'s"
    return PreflightCheck("clock", "fail" if off > FAIL_SECONDS else "warn", text, _FIX)

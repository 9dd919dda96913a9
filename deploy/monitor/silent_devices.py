"""SQL over `devices` that judges which devices are silent, by the rule of monitoring/silence.py."""

import time
from typing import Final

from deploy.monitor.healthy_flow import HealthyFlowSpans
from monitoring.silence import LEAST_LIFE, LEAST_SILENCE, MOST_SILENCE, SHORT_LIFE_SILENCE

__all__ = ["judged_devices"]

_JUDGED: Final = """
WITH heard AS (
    SELECT device, epoch(first_seen) AS first, epoch(last_seen) AS seen, interval_learned_s AS interval_s, clock_skew_ms,
        max(epoch(last_seen)) OVER () AS newest
    FROM devices
), timed AS (
    SELECT *, CASE WHEN {flowing} THEN greatest(newest, {now!r}) ELSE newest END - seen AS silent_seconds FROM heard
), judged AS (
    SELECT *, CASE WHEN silent_seconds >= {most} THEN NULL WHEN has_habit THEN {quiet} > {silence}
        WHEN silent_seconds > {short} THEN {quiet} > {short} END AS is_silent
    FROM (SELECT *, coalesce(seen - first >= {life} AND interval_s > 0, false) AS has_habit FROM timed)
)"""


def judged_devices(flow: HealthyFlowSpans) -> str:
    """Return the start of a query that can select from `judged`: device, seen, silent_seconds, interval_s, is_silent.

    `is_silent` is NULL for devices that are not judged: seen too long ago, or only for a short time so far.
    """
    return _JUDGED.format(
        flowing="true" if flow.flowing else "false",
        now=time.time(),
        most=MOST_SILENCE.format(interval="interval_s"),
        quiet=flow.seconds_since("seen"),
        life=LEAST_LIFE.format(interval="interval_s"),
        silence=LEAST_SILENCE.format(interval="interval_s"),
        short=SHORT_LIFE_SILENCE.format(interval="interval_s"),
    )

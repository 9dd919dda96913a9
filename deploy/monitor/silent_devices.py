"""Silent devices: SQL over the table `devices` with the rule of monitoring/silence.py.

Silence counts only in spans in which messages reached the tables, not during an outage of the pipeline.
"""

import time
from typing import Final

from monitoring.silence import LEAST_LIFE, LEAST_SILENCE, MOST_SILENCE, SHORT_LIFE_SILENCE

__all__ = ["HealthyFlowSpans", "judged_devices"]

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

MOST_GAP_SECONDS: Final = 60.0
"""After a longer gap between looks (a machine that slept) the time in between is unknown."""
MOST_SPANS: Final = 50
"""Most spans; the two oldest are then joined. The spans must cover five days to judge a device that sends once a day."""

Span = tuple[float, float]
"""(from, until) in epoch seconds."""


class HealthyFlowSpans:
    """Spans in which the whole path worked, as this monitor saw it. One thread calls `note`, another one reads."""

    def __init__(self) -> None:
        self.spans: tuple[Span, ...] = ()
        self.flowing = False
        """True if the path worked at the last look."""

    def note(self, now: float, flowing: bool) -> None:
        """Add the result of one look."""
        spans = tuple(span for span in self.spans if span[1] <= now)  # after a clock was set back, drop later spans
        if flowing:
            goes_on = self.flowing and spans and now - spans[-1][1] <= MOST_GAP_SECONDS
            spans = (*spans[:-1], (spans[-1][0], now)) if goes_on else (*spans, (now, now))
        self.spans, self.flowing = _joined(spans) if len(spans) > MOST_SPANS else spans, flowing

    def seconds_since(self, moment: str) -> str:
        """Return SQL for the seconds since `moment` (epoch seconds) in which the path worked."""
        parts = (f"greatest(0.0, {until!r} - greatest({since!r}, {moment}))" for since, until in self.spans)
        return " + ".join(parts) or "0.0"


def _joined(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Join the two oldest spans to one of their total length. It ends early, so that messages within them count as younger."""
    (since, until), (again, end), *others = spans
    return ((since, until + end - again), *others)


def judged_devices(flow: HealthyFlowSpans) -> str:
    """Return the start of a query that can select from `judged`: device, seen, silent_seconds, interval_s, is_silent.

    `is_silent` is NULL for a device that cannot be judged: last seen too long ago, or known for too short a time.
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

"""Spans in which messages reached the tables: only in these, not in an outage of the pipeline, does a device's silence count."""

from typing import Final

__all__ = ["HealthyFlowSpans"]

MOST_GAP_SECONDS: Final = 60.0
"""After a longer gap between looks (a machine that slept) the time in between is unknown."""
MOST_SPANS: Final = 50
"""Above this number the oldest spans are joined; five days are needed to judge a device that sends once a day."""

Span = tuple[float, float]
"""(from, until) in epoch seconds."""


class HealthyFlowSpans:
    """Spans in which the whole path worked, as seen by this monitor.

    One thread calls `note`, another one reads.
    """

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
    """Join the two oldest spans to one of their total length that ends early, so that messages within them count as younger."""
    (since, until), (again, end), *others = spans
    return ((since, until + end - again), *others)

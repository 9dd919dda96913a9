"""When what devices send came through to the tables: only then is silence theirs; an outage of ours is not."""

from typing import Final

__all__ = ["FlowTime"]

DAY_SECONDS: Final = 86_400.0
MOST_GAP_SECONDS: Final = 60.0
"""Nobody looked for longer (a machine that slept): nothing is known of that time."""
MOST_SPANS: Final = 50

Span = tuple[float, float]
"""From and until, in epoch seconds."""


class FlowTime:
    """The spans of the last day in which all of the way was well, as far as this monitor saw it.

    One thread notes, another one reads.
    """

    def __init__(self) -> None:
        self.spans: tuple[Span, ...] = ()
        self.flowing = False
        """Whether it was well at the last look."""

    def note(self, now: float, flowing: bool) -> None:
        """One look at the way."""
        spans = tuple(span for span in self.spans if now - DAY_SECONDS < span[1] <= now)  # a clock set back: begin anew
        if flowing:
            goes_on = self.flowing and spans and now - spans[-1][1] <= MOST_GAP_SECONDS
            spans = (*spans[:-1], (spans[-1][0], now)) if goes_on else (*spans, (now, now))
        self.spans, self.flowing = spans[-MOST_SPANS:], flowing

    def seconds_since(self, moment: str) -> str:
        """SQL: for how much of the time since `moment` (epoch seconds) it flowed."""
        parts = (f"greatest(0.0, {until!r} - greatest({since!r}, {moment}))" for since, until in self.spans)
        return " + ".join(parts) or "0.0"

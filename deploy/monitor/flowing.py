"""When what devices send came through to the tables: only then is silence theirs; an outage of ours is not."""

from typing import Final

__all__ = ["FlowTime"]

MOST_GAP_SECONDS: Final = 60.0
"""Nobody looked for longer (a machine that slept): nothing is known of that time."""
MOST_SPANS: Final = 50
"""More are joined, the oldest first: a device that sends once a day is silent after five days of them."""

Span = tuple[float, float]
"""From and until, in epoch seconds."""


class FlowTime:
    """The spans in which all of the way was well, as far as this monitor saw it.

    One thread notes, another one reads.
    """

    def __init__(self) -> None:
        self.spans: tuple[Span, ...] = ()
        self.flowing = False
        """Whether it was well at the last look."""

    def note(self, now: float, flowing: bool) -> None:
        """One look at the way."""
        spans = tuple(span for span in self.spans if span[1] <= now)  # a clock set back: begin anew
        if flowing:
            goes_on = self.flowing and spans and now - spans[-1][1] <= MOST_GAP_SECONDS
            spans = (*spans[:-1], (spans[-1][0], now)) if goes_on else (*spans, (now, now))
        self.spans, self.flowing = _joined(spans) if len(spans) > MOST_SPANS else spans, flowing

    def seconds_since(self, moment: str) -> str:
        """SQL: for how much of the time since `moment` (epoch seconds) it flowed."""
        parts = (f"greatest(0.0, {until!r} - greatest({since!r}, {moment}))" for since, until in self.spans)
        return " + ".join(parts) or "0.0"


def _joined(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """The two oldest as one that is as long as both, and ends early: a word within them is counted as if it were younger."""
    (since, until), (again, end), *others = spans
    return ((since, until + end - again), *others)

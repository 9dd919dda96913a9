"""Indicators of the two objectives, defined once for alerts, snapshot and dashboards.

Validity excludes the canary's messages: all of them are good, and in a small fleet they would hide rejections.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prometheus_client.utils import floatToGoString

__all__ = ["ARRIVED", "INSTALLATION", "EventCount", "Indicator", "freshness", "subtract_job", "validity"]

ARRIVED: Final = "tidegate_canary_acknowledged_total"
"""Canary messages that the broker accepted: only these can be among the messages that the gateway received."""
INSTALLATION: Final = "cluster"
"""Label that distinguishes installations in one Prometheus; series without it belong to one installation."""


@dataclass(frozen=True)
class EventCount:
    """Events of a counter: one of its buckets if `le` is given, summed over the labels in `over`."""

    metric: str
    le: str = ""
    over: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Label matcher of the series, in PromQL."""
        return f'le="{self.le}"' if self.le else ""


@dataclass(frozen=True)
class Indicator:
    """Events and how many of them were bad, counted either by the bad or by the good ones.

    Attributes:
        subtracted: events to subtract from `events`.
    """

    events: EventCount
    good: EventCount | None = None
    bad: EventCount | None = None
    subtracted: EventCount | None = None

    def all_promql(self, count: Callable[[EventCount], str]) -> str:
        """Return the number of events; `count` gives the expression of one counter."""
        events = count(self.events)
        return events if self.subtracted is None else subtract_job(events, count(self.subtracted))

    def bad_promql(self, count: Callable[[EventCount], str]) -> str:
        """Return the number of bad events."""
        if self.bad is not None:
            return count(self.bad)
        return f"clamp_min({count(self.events)} - {count(self.good or self.events)}, 0)"

    def ratio(self, count: Callable[[EventCount], float | None]) -> float | None:
        """Return the share of good events, from figures; None if nothing was counted."""
        events = count(self.events)
        if events is None:
            return None
        meant = events - (count(self.subtracted) or 0.0 if self.subtracted else 0.0)
        good = meant - (count(self.bad) or 0.0) if self.bad else count(self.good or self.events)
        return None if good is None or meant <= 0 else min(1.0, max(0.0, good / meant))


def subtract_job(events: str, subtracted: str) -> str:
    """Return PromQL for events minus those of another job of the same installation; without that job, for all events."""
    less = f"{events} - on({INSTALLATION}) group_left() sum by ({INSTALLATION}) ({subtracted})"
    return f"clamp_min(({less}) or {events}, 0)"


def freshness(seconds: float) -> Indicator:
    """Return the indicator of canary readings that were queryable in time, among those due."""
    bound = floatToGoString(seconds)  # type: ignore[no-untyped-call]
    return Indicator(
        events=EventCount("tidegate_canary_published_total"),
        good=EventCount("tidegate_end_to_end_latency_seconds_bucket", le=bound, over=("le",)),
    )


def validity() -> Indicator:
    """Return the indicator of the fleet's messages that were not rejected, among those received."""
    return Indicator(
        events=EventCount("tidegate_gateway_messages_received_total", over=("qos",)),
        bad=EventCount("tidegate_gateway_messages_rejected_total", over=("reason",)),
        subtracted=EventCount(ARRIVED),
    )

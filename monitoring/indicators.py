"""What the two objectives count, told once: alerts, snapshot and dashboards read it in their own words.

The canary's messages are no part of validity: all of them are good, and beside a small fleet they would hide what it is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prometheus_client.utils import floatToGoString

__all__ = ["ARRIVED", "INSTALLATION", "Count", "Indicator", "freshness", "validity", "without"]

ARRIVED: Final = "tidegate_canary_acknowledged_total"
"""The canary's messages that the broker took: only these can be among what the gateway received."""
INSTALLATION: Final = "cluster"
"""The label that tells installations in one Prometheus apart; series without it are all of one."""


@dataclass(frozen=True)
class Count:
    """Events of a counter: one bucket of it where `le` is given, all values of the labels in `over` together."""

    metric: str
    le: str = ""
    over: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Which of its series, in PromQL."""
        return f'le="{self.le}"' if self.le else ""


@dataclass(frozen=True)
class Indicator:
    """Events, and which of them were bad: either these are counted, or the good ones.

    Attributes:
        beside: counted in `events` though nobody means them.
    """

    events: Count
    good: Count | None = None
    bad: Count | None = None
    beside: Count | None = None

    def all_promql(self, count: Callable[[Count], str]) -> str:
        """How many events; `count` says how one counter is asked."""
        events = count(self.events)
        return events if self.beside is None else without(events, count(self.beside))

    def bad_promql(self, count: Callable[[Count], str]) -> str:
        """How many of them were bad."""
        if self.bad is not None:
            return count(self.bad)
        return f"clamp_min({count(self.events)} - {count(self.good or self.events)}, 0)"

    def ratio(self, count: Callable[[Count], float | None]) -> float | None:
        """The share of good events from figures; None where nothing was counted."""
        events = count(self.events)
        if events is None:
            return None
        meant = events - (count(self.beside) or 0.0 if self.beside else 0.0)
        good = meant - (count(self.bad) or 0.0) if self.bad else count(self.good or self.events)
        return None if good is None or meant <= 0 else min(1.0, max(0.0, good / meant))


def without(events: str, beside: str) -> str:
    """PromQL: events less those of another job of the same installation; without that job nothing is taken off."""
    less = f"{events} - on({INSTALLATION}) group_left() sum by ({INSTALLATION}) ({beside})"
    return f"clamp_min(({less}) or {events}, 0)"


def freshness(seconds: float) -> Indicator:
    """Canary readings queryable in time, of those due."""
    bound = floatToGoString(seconds)  # type: ignore[no-untyped-call]
    return Indicator(
        events=Count("tidegate_canary_published_total"),
        good=Count("tidegate_end_to_end_latency_seconds_bucket", le=bound, over=("le",)),
    )


def validity() -> Indicator:
    """Messages of the fleet that were not refused, of those received."""
    return Indicator(
        events=Count("tidegate_gateway_messages_received_total", over=("qos",)),
        bad=Count("tidegate_gateway_messages_rejected_total", over=("reason",)),
        beside=Count(ARRIVED),
    )

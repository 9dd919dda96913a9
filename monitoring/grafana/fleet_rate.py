"""Rates of the fleet: counts without the canary's messages, which every counter includes."""

from monitoring.grafana.promql import rate
from monitoring.indicators import ARRIVED

__all__ = ["fleet_rate"]


def fleet_rate(metric: str, where: str = "", *, canary: str = ARRIVED) -> str:
    """Return the events per second without the canary's; `canary` counts the canary's events at the same place."""
    return f"clamp_min({rate(metric, where=where)} - ({rate(canary)} or vector(0)), 0)"

"""Counts of what the devices sent: the canary's messages, which every counter sees too, are taken off."""

from monitoring.grafana.promql import rate
from monitoring.indicators import ARRIVED

__all__ = ["fleet_rate"]


def fleet_rate(metric: str, where: str = "", *, canary: str = ARRIVED) -> str:
    """Events per second without the canary's, of which `canary` counts those that got so far."""
    return f"clamp_min({rate(metric, where=where)} - ({rate(canary)} or vector(0)), 0)"

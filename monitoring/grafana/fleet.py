"""Counts of what the devices sent: the canary's messages, which every counter sees too, are taken off."""

from monitoring.grafana.promql import rate

__all__ = ["fleet_rate"]


def fleet_rate(metric: str, where: str = "", *, canary: str = "tidegate_canary_published_total") -> str:
    """Events per second without the canary's; without a canary nothing is taken off.

    `canary` counts those that were due. While the broker is away they do not come, so the difference stops at 0.
    """
    return f"clamp_min({rate(metric, where=where)} - ({rate(canary)} or vector(0)), 0)"

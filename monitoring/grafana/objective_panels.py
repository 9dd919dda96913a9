"""Panels of the objectives freshness and validity, and of the burn of their budgets."""

from dataclasses import dataclass
from typing import Final

from monitoring.alerts.objectives import PAIRS
from monitoring.grafana.panel import Panel, PanelQuery, gauge, timeseries
from monitoring.grafana.promql import growth
from monitoring.indicators import EventCount, freshness, validity
from monitoring.monitoring_settings import MonitoringSettings

__all__ = ["BUDGET_WINDOW", "DashboardObjective", "objective_panels", "objectives"]

BUDGET_WINDOW: Final = "30d"
BURN_WINDOWS: Final = tuple((pair.long, pair.factor) for pair in PAIRS)
"""Long windows of the alerts, and the burn rate at which each fires."""


@dataclass(frozen=True, slots=True)
class DashboardObjective:
    """One objective: this share of all events is good."""

    name: str
    share: float
    promise: str
    bad: str
    """Counts the bad events within `WINDOW`."""
    all: str

    def bad_ratio(self, window: str) -> str:
        """Return the share of bad events within the window."""
        return f"({self.bad} / ({self.all} > 0))".replace("WINDOW", window)


def objectives(settings: MonitoringSettings) -> tuple[DashboardObjective, DashboardObjective]:
    """Return freshness, measured by the canary (so an outage counts without any committed row), and validity, by the gateway."""
    seconds = settings.freshness_seconds
    fresh, valid = freshness(seconds), validity()
    return (
        DashboardObjective(
            "Freshness",
            settings.freshness_objective,
            f"{settings.freshness_objective:.4g} of the canary's readings are queryable within {seconds:g} s of being sent",
            fresh.bad_promql(_growth),
            fresh.all_promql(_growth),
        ),
        DashboardObjective(
            "Validity",
            settings.validity_objective,
            f"{settings.validity_objective:.4g} of the messages received from devices are not rejected",
            valid.bad_promql(_growth),
            valid.all_promql(_growth),
        ),
    )


def _growth(count: EventCount) -> str:
    return growth(count.metric, where=count.where, window="WINDOW")


def objective_panels(objective: DashboardObjective) -> list[Panel]:
    """Return the panels of compliance, budget left, and burn rate."""
    allowed = f"{1 - objective.share:.6g}"
    bad = objective.bad_ratio(BUDGET_WINDOW)
    return [
        gauge(
            f"{objective.name} compliance",
            f"Share of good events in the time range shown. The objective: {objective.promise}.",
            "percentunit",
            PanelQuery(f"1 - {objective.bad_ratio('$__range')}"),
            steps=[(None, "red"), (objective.share, "orange"), ((1 + objective.share) / 2, "green")],
            height=6,
        ),
        gauge(
            f"{objective.name} budget left",
            f"Share of the error budget of {BUDGET_WINDOW} that is left. Below 0 the objective is missed.",
            "percentunit",
            PanelQuery(f"1 - {bad} / {allowed}"),
            steps=[(None, "red"), (0.1, "orange"), (0.25, "green")],
            height=6,
        ),
        timeseries(
            f"{objective.name} burn rate",
            "How many times faster than allowed the budget burns: at 1 it lasts exactly its window. "
            + "The alert fires if this is above "
            + ", or ".join(f"{pace:g} over {window}" for window, pace in BURN_WINDOWS)
            + ", and also above it over the short window.",
            "short",
            *(PanelQuery(f"{objective.bad_ratio(window)} / {allowed}", f"over {window}") for window, _ in BURN_WINDOWS),
            width=16,
            height=6,
            steps=[(None, "green"), (1, "yellow"), (6, "orange"), (14.4, "red")],
            points=60,
        ),
    ]

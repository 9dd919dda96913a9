"""Exclusions from Grafana's dashboard-linter: the rules that panels break on purpose, with the reason.

They are exported next to the dashboards as `.lint`, which that linter reads. The tests allow these exclusions and no others.
"""

from dataclasses import dataclass
from typing import Any, Final

__all__ = ["EXCLUSIONS", "Exclusion", "lint_file"]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """One rule that does not apply to one panel; `rule` is the linter's own name, or one of this project (`fixed-window`)."""

    rule: str
    dashboard: str
    panel: str
    reason: str


_OVERVIEW: Final = "Tidegate / Overview"
_PIPELINE: Final = "Tidegate / Pipeline"
_SHOWN: Final = "It counts over the whole time range shown."
_BURN: Final = "A burn rate has the window of its alert, whatever time range is shown."
_BUDGET: Final = "A budget has its own window, whatever time range is shown."
_ALERTS: Final = "ALERTS has the labels of the rule's result, and most rules remove job and instance."

EXCLUSIONS: Final = (
    Exclusion("target-job-rule", _OVERVIEW, "Alerts", _ALERTS),
    Exclusion("target-instance-rule", _OVERVIEW, "Alerts", _ALERTS),
    *(Exclusion("fixed-window", _OVERVIEW, f"{name} burn rate", _BURN) for name in ("Freshness", "Validity")),
    *(Exclusion("fixed-window", _OVERVIEW, f"{name} budget left", _BUDGET) for name in ("Freshness", "Validity")),
    *(Exclusion("fixed-window", _OVERVIEW, f"{name} compliance", _SHOWN) for name in ("Freshness", "Validity")),
    Exclusion("fixed-window", _PIPELINE, "Audit duration", _SHOWN),
)


def lint_file() -> dict[str, Any]:
    """Return the exclusions for Grafana's linter: its own rules only."""
    rules: dict[str, Any] = {}
    for each in EXCLUSIONS:
        if each.rule.endswith("-rule"):
            entries = rules.setdefault(each.rule, {"entries": []})["entries"]
            entries.append({"reason": each.reason, "dashboard": each.dashboard, "panel": each.panel})
    return {"exclusions": rules}

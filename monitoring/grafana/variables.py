"""Choices at the top of a dashboard: data source, job, instance, and further filters of a dashboard."""

from typing import Any, Final

from monitoring.grafana.panel import DATASOURCE
from monitoring.indicators import INSTALLATION

__all__ = ["ANYTHING", "EVERYTHING", "datasource", "label_variable", "selection"]

EVERYTHING: Final = ".+"
"""Meaning of "All" in a query: the label exists, with any value."""
ANYTHING: Final = ".*"
"""The same for a label that may be missing: a single installation needs no name."""


def selection(metric: str) -> list[dict[str, Any]]:
    """Return data source, job, instance and installation, found where `metric` is served."""
    name, _, where = metric.rstrip("}").partition("{")
    chosen = f'{name}{{{where}{", " if where else ""}job=~"$job"}}'
    installation = label_variable(INSTALLATION, metric) | {"allValue": ANYTHING}
    return [datasource(), label_variable("job", metric), label_variable("instance", chosen), installation]


def datasource() -> dict[str, Any]:
    """Return the choice of the Prometheus: the viewer chooses it, so an import does not ask for it."""
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
        "options": [],
        "current": {},
    }


def label_variable(label: str, series: str, *, title: str | None = None) -> dict[str, Any]:
    """Return a choice of several or all values of a label among the series, queried again when the time range changes."""
    query = f"label_values({series}, {label})"
    return {
        "type": "query",
        "name": label,
        "label": title or label.capitalize(),
        "datasource": dict(DATASOURCE),
        "definition": query,
        "query": query,
        "hide": 0,
        "includeAll": True,
        "allValue": EVERYTHING,
        "multi": True,
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "skipUrlSync": False,
        "options": [],
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }

"""Panels: a dictionary per panel, sized in Grafana's grid of 24 columns; the dashboard places them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["DATASOURCE", "Panel", "Query", "field", "gauge", "panel", "stat", "timeseries"]

Panel = dict[str, Any]
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
"""The one that the viewer chose; no dashboard names a data source of its own."""

_NEWEST: Final = frozenset({"stat", "gauge", "table"})
"""Kinds that show one moment ask for one moment: a budget of 30 days is not computed for each point of a line."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query and how its series are called, `{{label}}` by label."""

    expr: str
    legend: str = ""


def timeseries(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 8,
    height: int = 8,
    stacked: bool = False,
    steps: Sequence[tuple[float | None, str]] = (),
    maximum: float | None = None,
    logarithmic: bool = False,
    points: int | None = None,
) -> Panel:
    """Lines over time; `steps` are drawn as lines across, `points` bounds how many moments are asked for."""
    custom: dict[str, Any] = {
        "drawStyle": "line",
        "fillOpacity": 30 if stacked else 8,
        "lineWidth": 1,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
        "thresholdsStyle": {"mode": "line" if steps else "off"},
    }
    if logarithmic:
        custom["scaleDistribution"] = {"type": "log", "log": 10}
    options = {
        "legend": {"calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    minimum = None if logarithmic else 0
    fields = field(unit, steps, custom=custom, color={"mode": "palette-classic"}, minimum=minimum, maximum=maximum)
    made = panel("timeseries", title, description, queries, fields, options, width, height)
    return made if points is None else {**made, "maxDataPoints": points}


def stat(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 4,
    height: int = 4,
    steps: Sequence[tuple[float | None, str]] = (),
    words: Mapping[str, tuple[str, str]] | None = None,
) -> Panel:
    """The newest value, large; `words` says (text, colour) instead of a value."""
    options = {
        "colorMode": "background" if steps or words else "none",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value_and_name" if len(queries) > 1 or (queries and queries[0].legend) else "auto",
    }
    return panel("stat", title, description, queries, field(unit, steps, words=words), options, width, height)


def gauge(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 4,
    height: int = 4,
    steps: Sequence[tuple[float | None, str]],
) -> Panel:
    """A share between 0 and 1 with its bounds."""
    options = {
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showThresholdLabels": False,
        "showThresholdMarkers": True,
    }
    return panel("gauge", title, description, queries, field(unit, steps, minimum=0, maximum=1), options, width, height)


def panel(
    kind: str,
    title: str,
    description: str,
    queries: Sequence[Query],
    fields: dict[str, Any],
    options: dict[str, Any],
    width: int,
    height: int,
) -> Panel:
    """Any panel that shows what its queries give."""
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": dict(DATASOURCE),
        "gridPos": {"h": height, "w": width, "x": 0, "y": 0},
        "fieldConfig": {"defaults": fields, "overrides": []},
        "options": options,
        "targets": [_target(chr(ord("A") + place), query, kind in _NEWEST) for place, query in enumerate(queries)],
    }


def _target(name: str, query: Query, newest: bool) -> dict[str, Any]:
    return {
        "datasource": dict(DATASOURCE),
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "refId": name,
        "range": not newest,
        "instant": newest,
    }


def field(
    unit: str,
    steps: Sequence[tuple[float | None, str]],
    *,
    custom: dict[str, Any] | None = None,
    color: dict[str, Any] | None = None,
    words: Mapping[str, tuple[str, str]] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
) -> dict[str, Any]:
    """How a panel's values look: unit, bounds, colours, words instead of numbers."""
    made: dict[str, Any] = {
        "unit": unit,
        "color": color or {"mode": "thresholds"},
        "mappings": [],
        "thresholds": {
            "mode": "absolute",
            "steps": [{"value": value, "color": name} for value, name in steps] or [{"value": None, "color": "text"}],
        },
    }
    if words:
        shown = {
            value: {"text": text, "color": name, "index": place}
            for place, (value, (text, name)) in enumerate(words.items())
        }
        made["mappings"] = [{"type": "value", "options": shown}]
    if custom:
        made["custom"] = custom
    bounds = {"min": minimum, "max": maximum}
    return made | {name: value for name, value in bounds.items() if value is not None}

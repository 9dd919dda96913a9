"""Panels: a dictionary per panel, sized in Grafana's grid of 24 columns; the dashboard places them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["DATASOURCE", "Panel", "PanelQuery", "field", "gauge", "panel", "stat", "timeseries"]

Panel = dict[str, Any]
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
"""The data source that the viewer chose. No dashboard names a data source of its own."""

_NEWEST: Final = frozenset({"stat", "gauge", "table"})
"""Kinds that show one moment and query only that moment: a budget of 30 days is not calculated for each point of a line."""


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """One PromQL query and the names of its series, with `{{label}}` for a label."""

    expr: str
    legend: str = ""


def timeseries(
    title: str,
    description: str,
    unit: str,
    *queries: PanelQuery,
    width: int = 8,
    height: int = 8,
    stacked: bool = False,
    steps: Sequence[tuple[float | None, str]] = (),
    maximum: float | None = None,
    logarithmic: bool = False,
    points: int | None = None,
) -> Panel:
    """Return a panel of lines over time. `steps` are drawn as horizontal lines; `points` limits the number of moments queried."""
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
    *queries: PanelQuery,
    width: int = 4,
    height: int = 4,
    steps: Sequence[tuple[float | None, str]] = (),
    words: Mapping[str, tuple[str, str]] | None = None,
) -> Panel:
    """Return a panel of the newest value in large type; `words` maps values to (text, colour)."""
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
    *queries: PanelQuery,
    width: int = 4,
    height: int = 4,
    steps: Sequence[tuple[float | None, str]],
) -> Panel:
    """Return a panel of a share between 0 and 1 with its bounds."""
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
    queries: Sequence[PanelQuery],
    fields: dict[str, Any],
    options: dict[str, Any],
    width: int,
    height: int,
) -> Panel:
    """Return any panel that shows the results of its queries."""
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


def _target(name: str, query: PanelQuery, newest: bool) -> dict[str, Any]:
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
    """Return the look of a panel's values: unit, bounds, colours, words instead of numbers."""
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

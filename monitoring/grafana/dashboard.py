"""A dashboard of the classic kind (schema 39): rows of panels placed from left to right, top to bottom."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from monitoring.grafana.panel import Panel

__all__ = ["COLUMNS", "TAG", "Row", "dashboard"]

COLUMNS: Final = 24
TAG: Final = "tidegate"
SCHEMA: Final = 39
"""The newest classic schema. Grafana 13 reads it and changes nothing."""


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and its panels. They wrap when the columns are used up, and each line is widened to the full width."""

    title: str
    panels: Sequence[Panel] = field(default_factory=tuple)


def dashboard(
    uid: str, title: str, description: str, variables: Sequence[Mapping[str, Any]], rows: Sequence[Row], *, span: str
) -> dict[str, Any]:
    """Return the whole dashboard. The same input gives the same text, so a diff shows only real changes."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": [TAG],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": False,
        "timezone": "browser",
        "graphTooltip": 2,
        "refresh": "10s",
        "time": {"from": f"now-{span}", "to": "now"},
        "timepicker": {"refresh_intervals": ["5s", "10s", "30s", "1m", "5m"]},
        "fiscalYearStartMonth": 0,
        "weekStart": "",
        "links": [_links()],
        "annotations": {"list": []},
        "templating": {"list": [dict(variable) for variable in variables]},
        "panels": list(_placed(rows)),
    }


def _links() -> dict[str, Any]:
    """Return links to the other dashboards of the tag, with the viewer's choices and time range."""
    return {
        "type": "dashboards",
        "title": "Tidegate dashboards",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


def _placed(rows: Sequence[Row]) -> Iterator[Panel]:
    number, y = 1, 0
    for row in rows:
        yield _heading(number, row.title, y)
        number, y = number + 1, y + 1
        for line in _lines(row.panels):
            x = 0
            for panel, width in zip(line, _filled(line), strict=True):
                yield {"id": number, **panel, "gridPos": {**panel["gridPos"], "w": width, "x": x, "y": y}}
                number, x = number + 1, x + width
            y += max(panel["gridPos"]["h"] for panel in line)


def _lines(panels: Sequence[Panel]) -> Iterator[list[Panel]]:
    line: list[Panel] = []
    for panel in panels:
        if sum(each["gridPos"]["w"] for each in (*line, panel)) > COLUMNS:
            yield line
            line = []
        line.append(panel)
    if line:
        yield line


def _filled(line: Sequence[Panel]) -> list[int]:
    """Return the widths, with the rest of the line distributed from the left."""
    widths = [panel["gridPos"]["w"] for panel in line]
    more, rest = divmod(COLUMNS - sum(widths), len(line))
    return [width + more + (place < rest) for place, width in enumerate(widths)]


def _heading(number: int, title: str, y: int) -> Panel:
    place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}

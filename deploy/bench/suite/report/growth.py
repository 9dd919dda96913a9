"""Curves of a result in the report: a table of axis, figure, points, slope and bend, and the data of their charts."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from deploy.bench.suite.report.html_tables import number_text

__all__ = ["growth_charts", "growth_rows", "growth_table"]

HEADS: Final = ("over", "figure", "points", "slope", "bend")


def growth_rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The table as texts, its heads first; nothing where the result has no curve."""
    curves = result.get("curves", ())
    return [HEADS, *map(_row, curves)] if curves else []


def _row(curve: Mapping[str, Any]) -> tuple[str, ...]:
    axis = f"{curve['axis']} ({curve['where']})" if curve["where"] else str(curve["axis"])
    points = ", ".join(f"{number_text(x)}: {number_text(y)}" for x, y, *_ in curve["points"])
    slope, _, bend = curve["says"].partition("; ")
    return axis, curve["figure"], points, slope, bend


def growth_table(result: Mapping[str, Any]) -> str:
    """Render the growth as an HTML table."""
    rows = growth_rows(result)
    if not rows:
        return ""
    head, *others = rows
    body = "".join(f"<tr>{''.join(_cells('td', row))}</tr>" for row in others)
    return (
        '<h3>Growth</h3><p class="quiet">The slope is that of a line on logarithmic scales: 0 means no growth, 1 means that the '
        "figure doubles with the axis. The bend is the first point beyond the spread of the line through the points before.</p>"
        f'<div class="wide"><table><thead><tr>{"".join(_cells("th", head))}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cells(tag: str, row: Sequence[str]) -> Iterator[str]:
    return (f"<{tag}>{escape(text)}</{tag}>" for text in row)


def growth_charts(curves: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A chart per axis and figure, a line per curve; both scales are logarithmic."""
    charts: dict[tuple[str, str], dict[str, dict[float, float]]] = {}
    for curve in curves:
        # A value that is not above 0 has no place on a logarithmic scale.
        line = {x: y for x, y, *_ in curve["points"] if y > 0}
        charts.setdefault((curve["axis"], curve["figure"]), {})[curve["where"] or curve["figure"]] = line
    return [_chart(axis, figure, lines) for (axis, figure), lines in charts.items() if any(lines.values())]


def _chart(axis: str, figure: str, lines: Mapping[str, Mapping[float, float]]) -> dict[str, Any]:
    places = sorted({x for line in lines.values() for x in line})
    data = [places, *([line.get(x) for x in places] for line in lines.values())]
    return {"title": f"{figure} over {axis}", "kind": "growth", "names": list(lines), "data": data}

"""Curves of a result: cells that differ in one parameter alone, each figure over it with its slope and its bend."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deploy.bench.suite.parameters import cell_text, differing_parameters, parameter_names
from deploy.bench.suite.scenario import Curve
from deploy.bench.suite.trend import LEAST_POINTS, TrendPoint, trend_of, trend_text

__all__ = ["curves_of"]


def curves_of(curves: Sequence[Curve], cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the curves with at least three points, by axis, then by figure.

    Args:
        curves: the axes and figures that a scenario names.
        cells: rows of the result.

    Returns:
        Each `{axis, figure, follows, where, points: [[x, median, min, max]], slope, slope_error, bend, slope_after, says}`;
        `where` has the parameters of those cells in which other curves over the same axis differ. The slope is None where a
        value has no logarithm.
    """
    return [one for curve in curves for figure in curve.figures for one in _curves(curve, figure, cells)]


def _curves(curve: Curve, figure: str, cells: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    given = [cell for cell in cells if figure in cell["spread"] and cell.get("measure", figure) == figure]
    names = [name for name in parameter_names(given) if name not in (curve.axis, *curve.follows)]
    groups: dict[tuple[Any, ...], dict[float, Mapping[str, Any]]] = {}
    for cell in given:
        x = cell.get(curve.axis)
        if isinstance(x, int | float) and x > 0:
            groups.setdefault(tuple(cell.get(name) for name in names), {}).setdefault(float(x), cell)
    found = [group for group in groups.values() if len(group) >= LEAST_POINTS]
    others = [
        name for name in differing_parameters([cell for group in found for cell in group.values()]) if name in names
    ]
    for group in found:
        yield _curve(curve, figure, group, cell_text(_parameters(group, others), others) if others else "")


def _parameters(group: Mapping[float, Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    first = next(iter(group.values()))
    return {name: first[name] for name in names if name in first}


def _curve(curve: Curve, figure: str, group: Mapping[float, Mapping[str, Any]], where: str) -> dict[str, Any]:
    spreads = {x: group[x]["spread"][figure] for x in sorted(group)}
    points = [TrendPoint(x, each["median"], each["min"], each["max"]) for x, each in spreads.items()]
    trend = trend_of(points)
    single = any(len(each["runs"]) == 1 for each in spreads.values())
    # The spread of one run is not known, only that there is one.
    doubt = "; one run each, so this may be chance" if single and trend is not None and trend.bend is not None else ""
    return {
        "axis": curve.axis,
        "figure": figure,
        "follows": list(curve.follows),
        "where": where,
        "points": [[point.x, point.y, point.low, point.high] for point in points],
        "slope": None if trend is None else trend.slope,
        "slope_error": None if trend is None else trend.error,
        "bend": None if trend is None else trend.bend,
        "slope_after": None if trend is None else trend.slope_after,
        "says": f"no slope: {figure} is not always above 0" if trend is None else trend_text(trend) + doubt,
    }

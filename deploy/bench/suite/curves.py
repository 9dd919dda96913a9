"""Curves of a result: figures over one parameter, for cells that differ only in it, with the slope and bend of each curve.

The slope is that of a line on logarithmic scales, on which a power of x is straight. A figure with slope 0 does not grow; one
with slope 1 doubles when x doubles.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deploy.bench.suite.parameters import cell_text, differing_parameters, parameter_names
from deploy.bench.suite.scenario import Curve
from deploy.bench.suite.spread import LEAST_SPREAD

__all__ = ["Trend", "TrendPoint", "curves_of", "trend_of", "trend_text"]

LEAST_POINTS: Final = 3
"""Least points of a curve: two points always lie on a line and show no bend."""
BEYOND: Final = 2.0
"""Distance from the line, as a multiple of the spread, from which a point is a bend."""


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """The median of a figure and the range of its repeats, at one value of a parameter."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through the points before the bend, or through all points without a bend.

    Attributes:
        slope: slope of the line on logarithmic scales; y grows by the factor `2 ** slope` when x doubles.
        error: standard error of the slope, from the spread of the points.
        bend: first x whose y is outside of the spread of the line; None without a bend.
        slope_after: slope of the line from the last point before the bend to the end; None without a bend.
    """

    slope: float
    error: float
    bend: float | None = None
    slope_after: float | None = None

    @property
    def is_flat(self) -> bool:
        """True if the slope may be 0 within its error."""
        return abs(self.slope) <= BEYOND * self.error


@dataclass(frozen=True, slots=True)
class _Line:
    """A weighted least-squares line; `scale` is above 1 if its points scatter more than their repeats."""

    middle: tuple[float, float]
    slope: float
    weight: float
    width: float
    scale: float

    def distance(self, place: tuple[float, float, float]) -> float:
        """Return the distance of a point from the line, as a multiple of the spread of both."""
        x, y, sigma = place
        expected = self.middle[1] + self.slope * (x - self.middle[0])
        spread = math.sqrt(sigma**2 + 1 / self.weight + (x - self.middle[0]) ** 2 / self.width)
        return abs(y - expected) / (spread * self.scale)

    @property
    def error(self) -> float:
        return self.scale / math.sqrt(self.width)


def trend_of(points: Sequence[TrendPoint]) -> Trend | None:
    """Fit the line from the first point on, until a point is outside of its spread.

    Args:
        points: points with different x, in any order.

    Returns:
        The trend; None for less than three points, and if an x or y is not above 0, so that it has no logarithm.
    """
    if len(points) < LEAST_POINTS or any(point.x <= 0 or point.y <= 0 for point in points):
        return None
    places = [_place(point) for point in sorted(points, key=lambda point: point.x)]
    for count in range(2, len(places)):
        line = _fit(places[:count])
        if line.distance(places[count]) > BEYOND:
            after = _fit(places[count - 1 :])
            return Trend(_short(line.slope), _short(line.error), _x(places[count]), _short(after.slope))
    line = _fit(places)
    return Trend(_short(line.slope), _short(line.error))


def trend_text(trend: Trend) -> str:
    """Return text such as `x 1.02 per doubling (slope 0.03 ± 0.05: flat); bends at 3,000, from there x 2.6 per doubling`."""
    flat = ": flat" if trend.is_flat else ""
    text = f"x {2**trend.slope:.3g} per doubling (slope {trend.slope:.2g} ± {BEYOND * trend.error:.2g}{flat})"
    if trend.bend is None or trend.slope_after is None:
        return f"{text}; no bend"
    after = f"x {2**trend.slope_after:.3g} per doubling (slope {trend.slope_after:.2g})"
    place = f"{trend.bend:,.0f}" if trend.bend >= 1000 else f"{trend.bend:.4g}"
    return f"{text}; bends at {place}, from there {after}"


def _place(point: TrendPoint) -> tuple[float, float, float]:
    """Return the logarithms of x and y, and the spread of y. Repeats that agree by chance still get a small spread."""
    low, high = (value if value > 0 else point.y for value in (point.low, point.high))
    return math.log(point.x), math.log(point.y), max(LEAST_SPREAD, abs(math.log(high / low)) / 2)


def _fit(places: Sequence[tuple[float, float, float]]) -> _Line:
    weights = [1 / sigma**2 for _, _, sigma in places]
    total = sum(weights)
    x0 = sum(weight * x for weight, (x, _, _) in zip(weights, places, strict=True)) / total
    y0 = sum(weight * y for weight, (_, y, _) in zip(weights, places, strict=True)) / total
    width = sum(weight * (x - x0) ** 2 for weight, (x, _, _) in zip(weights, places, strict=True))
    slope = sum(weight * (x - x0) * (y - y0) for weight, (x, y, _) in zip(weights, places, strict=True)) / width
    left = sum(weight * (y - y0 - slope * (x - x0)) ** 2 for weight, (x, y, _) in zip(weights, places, strict=True))
    free = len(places) - 2
    return _Line((x0, y0), slope, total, width, max(1.0, math.sqrt(left / free)) if free else 1.0)


def _x(place: tuple[float, float, float]) -> float:
    return _short(math.exp(place[0]))


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def curves_of(curves: Sequence[Curve], cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the curves with at least three points, by axis, then by figure.

    Args:
        curves: axes and figures that a scenario names.
        cells: rows of the result.

    Returns:
        A dict per curve: `{axis, figure, follows, where, points: [[x, median, min, max]], slope, slope_error, bend,
        slope_after, says}`. `where` has the parameters of its cells that differ from those of other curves over the same axis.
        The slope is None if a value has no logarithm.
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
    # The spread of a single run is unknown, but not 0.
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

"""Curves of a result: cells that differ in one parameter alone, each figure over it with its slope and its bend.

The slope is that of a line on logarithmic scales, where a power of x is straight: slope 0 is a figure that does not grow, slope 1
one that doubles with x.
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
"""Two points always lie on a line, so they cannot show a bend."""
BEYOND: Final = 2.0
"""A point bends the line where it lies so many times the spread away from it."""


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """The median of a figure and the range of its repeats, at one value of a parameter."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through the points before the bend; through all where none bends.

    Attributes:
        slope: of that line on logarithmic scales; `2 ** slope` is the factor for a doubled x.
        error: how far the spread of the points lets the slope be wrong, as a standard error.
        bend: the first x whose y lies beyond the spread of the line; None where none does.
        slope_after: of the line from the last point before the bend to the end.
    """

    slope: float
    error: float
    bend: float | None = None
    slope_after: float | None = None

    @property
    def is_flat(self) -> bool:
        """True if the error of the slope explains it."""
        return abs(self.slope) <= BEYOND * self.error


@dataclass(frozen=True, slots=True)
class _Line:
    """A weighted least-squares line; `scale` is above 1 where its points scatter more than their repeats do."""

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
    """Follow the line from the first point until one lies beyond it.

    Args:
        points: with different x, in any order.

    Returns:
        None of fewer than three points, and where an x or a y has no logarithm (is not above 0).
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
    """Such as `x 1.02 per doubling (slope 0.03 ± 0.05: flat); bends at 3,000, from there x 2.6 per doubling`."""
    flat = ": flat" if trend.is_flat else ""
    text = f"x {2**trend.slope:.3g} per doubling (slope {trend.slope:.2g} ± {BEYOND * trend.error:.2g}{flat})"
    if trend.bend is None or trend.slope_after is None:
        return f"{text}; no bend"
    after = f"x {2**trend.slope_after:.3g} per doubling (slope {trend.slope_after:.2g})"
    place = f"{trend.bend:,.0f}" if trend.bend >= 1000 else f"{trend.bend:.4g}"
    return f"{text}; bends at {place}, from there {after}"


def _place(point: TrendPoint) -> tuple[float, float, float]:
    """Logarithms of x and y, and the spread of y's; repeats that happen to agree would differ the next time."""
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

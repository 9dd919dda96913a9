"""Curve of a measured cost over one parameter: its values at, between and beyond the measured points. Pure.

A value says how it was found, because a figure beyond the last measured point is a guess of another kind.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

__all__ = ["CostCurve", "CurveValue"]

Beyond = Literal["flat", "in proportion", "as before"]
"""Course after the last point: the last value; as x grows; or as the line through the last two points."""


@dataclass(frozen=True, slots=True)
class CurveValue:
    """A value of a curve, and how it was found, such as `measured` or `beyond 10,000 messages/s`."""

    value: float
    basis: str


class CostCurve:
    """Points (x, y), both above 0, joined by lines on logarithmic scales.

    Below the first point the curve has the first value: that is the cost of an idle part. A point below an earlier one takes the
    earlier value, so that more load never costs less.
    """

    def __init__(self, points: Iterable[tuple[float, float]], *, unit: str, beyond: Beyond = "flat") -> None:
        """Take the points in any order.

        Args:
            points: at least one.
            unit: of x, for the words of a value.
            beyond: course after the last point.

        Raises:
            ValueError: there is no point.
        """
        ordered = sorted(points)
        if not ordered:
            msg = f"no measured point over {unit}"
            raise ValueError(msg)
        values = [y for _, y in ordered]
        self._xs = [x for x, _ in ordered]
        self._ys = list(accumulate(values, max))
        self._unit, self._beyond = unit, beyond

    @property
    def last(self) -> float:
        """The largest measured x."""
        return self._xs[-1]

    def at(self, x: float) -> CurveValue:
        """Return the value at x."""
        xs, ys = self._xs, self._ys
        if x in xs:
            return CurveValue(ys[xs.index(x)], "measured")
        if x < xs[0]:
            return CurveValue(ys[0], f"as at {self._text(xs[0])}, the least measured")
        if x > xs[-1]:
            return CurveValue(self._after(x), f"beyond {self._text(xs[-1])}, the most measured")
        place = next(place for place, each in enumerate(xs) if each > x)
        low, high = xs[place - 1], xs[place]
        share = math.log(x / low) / math.log(high / low)
        value = math.exp(math.log(ys[place - 1]) * (1 - share) + math.log(ys[place]) * share)
        return CurveValue(value, f"between {low:,.0f} and {self._text(high)}")

    def reach(self, value: float) -> float:
        """Return the largest x whose value is at most this one; 0 if there is none, infinity if there is no largest."""
        if self._ys[0] > value:
            return 0.0
        low, high = self._xs[0], self._xs[0]
        while self.at(high).value <= value:
            low, high = high, high * 2
            if math.isinf(high):
                return math.inf
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if self.at(middle).value <= value else (low, middle)
        return low

    def _after(self, x: float) -> float:
        last_x, last_y = self._xs[-1], self._ys[-1]
        if self._beyond == "in proportion":
            return last_y * x / last_x
        if self._beyond == "as before" and len(self._xs) > 1:
            slope = (last_y - self._ys[-2]) / (last_x - self._xs[-2])
            return last_y + slope * (x - last_x)
        return last_y

    def _text(self, x: float) -> str:
        return f"{x:,.0f} {self._unit}"

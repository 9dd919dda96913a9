"""Repeats of one figure: median, range and spread, and the rule by which two figures differ."""

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["LEAST_SPREAD", "Spread", "better", "differs", "median_curves", "middle_run", "spread_of", "spreads_of"]

LEAST_SPREAD: Final = 0.05
"""Repeats that happen to agree, and a single run, still differ so much from the next time."""
_HIGHER: Final = re.compile(r"(?:peer_)?(?:c_)?(?:produce|consume|publish|receive|messages|records|rows)_per_second")
_LOWER: Final = re.compile(
    r"(?:peer_)?(?:\w+_ms|\w+_ms_(?:p\d+|mean)|errors\w*|lost|\w*cpu_us_per_\w+|failed_\w+|out_of_order|unexpected|most_to_mean)"
)


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over its repeats; `iqr_ratio` is the range of the middle half relative to the median."""

    median: float
    low: float
    high: float
    iqr_ratio: float
    runs: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the spread as JSON-ready data."""
        return {
            "median": self.median, "min": self.low, "max": self.high, "iqr_ratio": self.iqr_ratio,
            "runs": list(self.runs),
        }  # fmt: skip


def spread_of(values: Sequence[float]) -> Spread:
    """Return the spread of at least one value."""
    median = statistics.median(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (median,) * 3
    ratio = (high - low) / abs(median) if median else 0.0
    return Spread(_round(median), _round(min(values)), _round(max(values)), round(ratio, 4), tuple(map(_round, values)))


def spreads_of(runs: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """Return the spreads by figure; a figure that only some runs have counts those."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: spread_of([run[name] for run in runs if name in run]) for name in names}


def median_curves(runs: Sequence[Mapping[str, Sequence[tuple[float, float]]]]) -> dict[str, list[list[float]]]:
    """Curves of (percentile, milliseconds) by name; each place is the median of the runs."""
    found: dict[str, list[list[float]]] = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        places: dict[float, list[float]] = {}
        for percentile, value in (point for run in runs for point in run.get(name, ())):
            places.setdefault(percentile, []).append(value)
        if places:
            found[name] = [[percentile, _round(statistics.median(places[percentile]))] for percentile in sorted(places)]
    return found


def middle_run(runs: Sequence[Mapping[str, Mapping[str, Sequence[float | None]]]]) -> dict[str, dict[str, Any]]:
    """Return latencies over time by name, of the run whose worst interval is the middle one. A mean would hide a stall."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        measured = sorted((run[name] for run in runs if run.get(name)), key=_worst)
        if measured:
            found[name] = dict(measured[len(measured) // 2])
    return found


def _worst(columns: Mapping[str, Sequence[float | None]]) -> float:
    return max((value for name in ("p99", "p50") for value in columns[name] if value is not None), default=0.0)


def better(figure: str) -> int:
    """1 where more is better, -1 where less is, 0 where neither."""
    if _HIGHER.fullmatch(figure):
        return 1
    return -1 if _LOWER.fullmatch(figure) else 0


def differs(before: Spread, after: Spread) -> int:
    """1 where `after` is higher beyond the spread of both, -1 where it is lower, 0 where they overlap."""
    (a_low, a_high), (b_low, b_high) = _range(before), _range(after)
    return 1 if b_low > a_high else -1 if b_high < a_low else 0


def _range(spread: Spread) -> tuple[float, float]:
    width = abs(spread.median) * LEAST_SPREAD / 2
    return min(spread.low, spread.median - width), max(spread.high, spread.median + width)


def _round(value: float) -> float:
    """Six digits say more than any measurement here."""
    return float(f"{value:.6g}")

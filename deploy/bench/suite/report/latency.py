"""Data of the charts of latency: by percentile, and over the time of a run."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from deploy.bench.suite.parameters import cell_text, differing_parameters
from deploy.bench.suite.scenario import ScenarioTarget

__all__ = ["latency_charts"]

_KINDS: Final = {
    "ack": "due to acknowledged",
    "puback": "due to acknowledged (PUBACK)",
    "end_to_end": "due to consumed",
}
_FEW_LINES: Final = 8
"""Cells up to this number are in one chart, whatever differs among them."""
_LOG_RATIO: Final = 30.0
"""Ratio of the largest value to the smallest from which a linear scale would hide the small ones."""

Cell = Mapping[str, Any]
Line = Mapping[float, float | None]


def latency_charts(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return the latency charts by percentile and over time, a line per cell."""
    # Cells that only differ in what is judged come from the same runs.
    runs = list(
        {tuple((name, cell.get(name)) for name in differing_parameters(cells)): cell for cell in cells}.values()
    )
    kinds = dict.fromkeys(kind for cell in runs for kind in cell["curves"])
    return [
        chart for kind in kinds for chart in _charts(kind, [cell for cell in runs if cell["curves"].get(kind)], cells)
    ]


def _charts(kind: str, cells: Sequence[Cell], everything: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    names = differing_parameters(everything)
    for part in _divided(cells):
        own = differing_parameters(part)
        where = cell_text(_given(part[0], names), [name for name in names if name not in own])
        where = f", {where}" if len(own) < len(names) else ""
        what = f"{_KINDS.get(kind, kind)}{where}"
        lines = {cell_text(_given(cell, own), own): cell for cell in part}
        by_percentile = {
            name: {_nines(at): value for at, value in cell["curves"][kind]} for name, cell in lines.items()
        }
        yield _chart("Latency by percentile", f"by percentile (ms), {what}", "percentile", by_percentile)
        courses = {name: cell.get("over_time", {}).get(kind) for name, cell in lines.items()}
        yield from _over_time(what, {name: course for name, course in courses.items() if course})


def _over_time(what: str, courses: Mapping[str, Mapping[str, Sequence[float | None]]]) -> Iterator[dict[str, Any]]:
    """Both percentiles in one chart where that has few lines."""
    together = [("p99", "p50")] if 2 * len(courses) <= _FEW_LINES else [("p99",), ("p50",)]
    for percentiles in together if courses else ():
        lines = {
            f"{percentile} {name}" if len(percentiles) > 1 else name: _line(course, percentile)
            for percentile in percentiles
            for name, course in courses.items()
        }
        title = f"{' and '.join(percentiles)} over time (ms), {what}"
        yield _chart("Latency over time (median repeat)", title, "time", lines)


def _line(course: Mapping[str, Sequence[float | None]], percentile: str) -> Line:
    seconds = [float(at) for at in course["seconds"] if at is not None]
    return dict(zip(seconds, course[percentile], strict=True))


def _divided(cells: Sequence[Cell]) -> Iterable[Sequence[Cell]]:
    """All in one chart where they are few; else by target or by workload, whatever makes fewer charts."""
    if len(cells) <= _FEW_LINES:
        return [cells] if cells else []
    names = differing_parameters(cells)
    of_target = [name for name in names if name in ScenarioTarget.model_fields]
    ways = [_grouped(cells, wanted) for wanted in (of_target, [name for name in names if name not in of_target])]
    return min((way for way in ways if 1 < len(way) < len(cells)), key=len, default=[cells])


def _grouped(cells: Sequence[Cell], names: Sequence[str]) -> list[Sequence[Cell]]:
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell.get(name) for name in names), []).append(cell)
    return list(groups.values())


def _given(cell: Cell, names: Sequence[str]) -> dict[str, Any]:
    return {name: cell[name] for name in names if name in cell}


def _chart(group: str, title: str, kind: str, lines: Mapping[str, Line]) -> dict[str, Any]:
    places = sorted({place for line in lines.values() for place in line})
    values = [value for line in lines.values() for value in line.values() if value is not None]
    wide = bool(values) and min(values) > 0 and max(values) > _LOG_RATIO * min(values)
    return {
        "group": group,
        "title": title[0].upper() + title[1:],
        "kind": kind,
        "names": list(lines),
        "logarithmic": wide,
        "data": [places, *([line.get(place) for place in places] for line in lines.values())],
    }


def _nines(percentile: float) -> float:
    """50 is 0.3, 99 is 2, 99.9 is 3; 100, the highest, is drawn at 5: so the tail has as much room as the middle."""
    return 5.0 if percentile >= 100 else round(-math.log10(1 - percentile / 100), 4)

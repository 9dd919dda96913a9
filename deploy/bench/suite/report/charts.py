"""Data of the report's charts in uPlot's form: Tidegate next to baselines and peers, growth, latency, resources over time."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from deploy.bench.suite.parameters import cell_text, differing_parameters
from deploy.bench.suite.report.growth import growth_charts
from deploy.bench.suite.report.html_tables import figures_shown, peer_spread, peers_of
from deploy.bench.suite.scenario import ScenarioTarget

__all__ = ["charts_of", "latency_charts"]

_PANELS: Final = (
    ("Processors in use (cores)", ("broker_cpu_cores", "client_cpu_cores", "other_cpu_cores", "machine_cpu_cores")),
    ("Memory in use (MB)", ("broker_rss_mb", "client_rss_mb")),
    ("Memory available (GB)", ("memory_available_gb",)),
    ("Bytes of the brokers (per second)", ("bytes_in_per_second", "bytes_out_per_second")),
    (
        "Time of a request, TotalTimeMs (ms)",
        ("produce_total_ms_p50", "produce_total_ms_p99", "fetch_total_ms_p50", "fetch_total_ms_p99"),
    ),
    ("Waiting requests (purgatory)", ("purgatory_produce", "purgatory_fetch")),
    ("Errors and failed requests (per second)", ("errors_per_second", "failed_requests_per_second")),
    ("Waiting for the disk (share)", ("io_wait_ratio",)),
    ("Context switches (per second)", ("context_switches_per_second",)),
    ("Disk available (GB)", ("disk_available_gb",)),
)
_ALL_PARTS: Final = {"broker_cpu_cores", "client_cpu_cores", "other_cpu_cores", "machine_cpu_cores"}
_KINDS: Final = {
    "ack": "due to acknowledged",
    "puback": "due to acknowledged (PUBACK)",
    "end_to_end": "due to consumed",
}
_FEW_LINES: Final = 8
"""Most cells that share one chart, whatever parameters differ between them."""
_LOG_RATIO: Final = 30.0
"""Ratio of the largest to the smallest value from which a chart has a logarithmic scale."""

Cell = Mapping[str, Any]
Line = Mapping[float, float | None]


def charts_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all charts as `{group, title, kind, names, data}`, sorted by group; `data` begins with the x values."""
    growth = ({"group": "Growth", **chart} for chart in growth_charts(result.get("curves", ())))
    used = (chart for one in result["resources"] for chart in _resources(one))
    return [*_beside(result), *growth, *latency_charts(result["cells"]), *used]


def _beside(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a chart with bars of baselines, other clients and Tidegate for each figure and target that has them."""
    cells, names = result["cells"], differing_parameters(result["cells"])
    of_target = [name for name in names if name in ScenarioTarget.model_fields]
    places: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for cell in cells:
        for figure in figures_shown(cell, cells, result.get("shows", ())):
            others = (figure in each for each in cell["baselines"].values())
            if figure in cell["spread"] and (any(others) or peers_of([(cell, figure)])):
                places.setdefault((figure, cell_text(_only(cell, of_target), of_target)), []).append(cell)
    for (figure, where), found in places.items():
        title = f"{figure}, {where}" if of_target else figure
        yield {"group": "Tidegate and others", "title": title, **_bars(figure, found, result["baselines"])}


def _bars(figure: str, cells: Sequence[Mapping[str, Any]], baselines: Mapping[str, Any]) -> dict[str, Any]:
    """Return bars of cells next to each other, with a gap after each cell; each series has its own place in a cell."""
    series: dict[str, list[float | None]] = {
        baselines[name]["title"]: [cell["baselines"].get(name, {}).get(figure) for cell in cells] for name in baselines
    }
    series |= {
        title: [(peer_spread(cell, peer, figure) or {}).get("median") for cell in cells]
        for peer, title in peers_of([(cell, figure) for cell in cells]).items()
    }
    series["Tidegate"] = [_median(cell, figure) for cell in cells]
    series = {name: values for name, values in series.items() if any(value is not None for value in values)}
    width, names = len(series) + 1, differing_parameters(cells)
    columns = [
        [value for cell in values for value in (cell if place == own else None for own in range(width))]
        for place, values in enumerate(series.values())
    ]
    return {
        "kind": "bars",
        "names": list(series),
        "labels": [" ".join(_short(cell.get(name)) for name in names) for cell in cells],
        "axis": ", ".join(names),
        "data": [list(range(width * len(cells))), *columns],
    }


def _median(cell: Mapping[str, Any], figure: str) -> float | None:
    return cell["spread"][figure]["median"] if figure in cell["spread"] else None


def _only(cell: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: cell[name] for name in names if name in cell}


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _resources(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    series = one["series"]
    parts = [name for name in series if name.endswith("_cpu_cores") and name not in _ALL_PARTS]
    for title, wanted in (*_PANELS, ("Processors in use by server (cores)", parts if len(parts) > 1 else ())):
        names = [name for name in wanted if name in series]
        if names:
            yield {
                "group": f"Resources over time: {one['target']}",
                "title": title,
                "kind": "time",
                "names": names,
                "marks": one.get("cells", []),
                "data": [series["seconds"], *(series[name] for name in names)],
            }


def latency_charts(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return the latency charts by percentile and over time, a line per cell."""
    # Cells that differ only in their measure come from the same runs.
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
        where = cell_text(_only(part[0], names), [name for name in names if name not in own])
        where = f", {where}" if len(own) < len(names) else ""
        what = f"{_KINDS.get(kind, kind)}{where}"
        lines = {cell_text(_only(cell, own), own): cell for cell in part}
        by_percentile = {
            name: {_nines(at): value for at, value in cell["curves"][kind]} for name, cell in lines.items()
        }
        yield _chart("Latency by percentile", f"by percentile (ms), {what}", "percentile", by_percentile)
        courses = {name: cell.get("over_time", {}).get(kind) for name, cell in lines.items()}
        yield from _over_time(what, {name: course for name, course in courses.items() if course})


def _over_time(what: str, courses: Mapping[str, Mapping[str, Sequence[float | None]]]) -> Iterator[dict[str, Any]]:
    """Yield both percentiles in one chart if it has few lines, else a chart for each."""
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
    """Return few cells as one group; more by target or by workload, whichever gives fewer charts."""
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
    """Return the place on the x axis: 50 is at 0.3, 99 at 2, 99.9 at 3, 100 at 5. So the tail has as much room as the middle."""
    return 5.0 if percentile >= 100 else round(-math.log10(1 - percentile / 100), 4)

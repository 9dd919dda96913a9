"""Data of the report's charts in uPlot's form: baselines and peers next to Tidegate, growth, and resources over time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from deploy.bench.suite.parameters import cell_text, differing_parameters
from deploy.bench.suite.report.growth import growth_charts
from deploy.bench.suite.report.html_tables import figures_shown, peer_spread, peers_of
from deploy.bench.suite.report.latency import latency_charts
from deploy.bench.suite.scenario import ScenarioTarget

__all__ = ["charts_of"]

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


def charts_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each `{group, title, kind, names, data}`; `data` begins with the x values. Charts of one group follow each other."""
    growth = ({"group": "Growth", **chart} for chart in growth_charts(result.get("curves", ())))
    used = (chart for one in result["resources"] for chart in _resources(one))
    return [*_beside(result), *growth, *latency_charts(result["cells"]), *used]


def _beside(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Bars of baselines, other clients and Tidegate, a chart for each figure and target that has them."""
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
    """Cells next to each other, each with its bars and a gap; a series has values at its own places alone."""
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

"""Data of the report's charts, as uPlot takes it: growth, latency by percentile, and resources over time."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deploy.bench.suite.parameters import cell_text, differing
from deploy.bench.suite.report.growth import growth_charts
from deploy.bench.suite.scenario import Target

__all__ = ["charts_of"]

_KINDS: Final = {"ack": "due to acknowledged", "end_to_end": "due to consumed"}
_PANELS: Final = (
    ("Processors in use (cores)", ("broker_cpu_cores", "client_cpu_cores", "other_cpu_cores", "machine_cpu_cores")),
    ("Memory (MB)", ("broker_rss_mb", "client_rss_mb")),
    ("Bytes of the brokers (per second)", ("bytes_in_per_second", "bytes_out_per_second")),
    (
        "Time of a request (ms)",
        ("produce_total_ms_p50", "produce_total_ms_p99", "fetch_total_ms_p50", "fetch_total_ms_p99"),
    ),
    ("Requests that wait (purgatory)", ("purgatory_produce", "purgatory_fetch")),
    ("Errors and failed requests (per second)", ("errors_per_second", "failed_requests_per_second")),
    ("Waiting for the disk (share)", ("io_wait_ratio",)),
    ("Context switches (per second)", ("context_switches_per_second",)),
    ("Disk available (GB)", ("disk_available_gb",)),
)


def charts_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each `{title, kind, names, data}`; `data` begins with the x values."""
    used = (chart for one in result["resources"] for chart in _resources(one))
    return [*growth_charts(result.get("curves", ())), *_latency(result["cells"]), *used]


def _latency(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A chart per kind of latency and target, one line per cell; x is the number of nines, so that the tail has as much room."""
    names = differing(cells)
    of_target = [name for name in names if name in Target.model_fields]
    of_workload = [name for name in names if name not in of_target]
    lines: dict[str, dict[str, dict[float, float]]] = {}
    for cell in cells:
        # Cells that only differ in what is judged come from the same runs.
        given = {name: cell[name] for name in names if name in cell}
        where = f": {cell_text(given, of_target)}" if of_target else ""
        for kind, curve in cell["curves"].items():
            title = f"Latency by percentile (ms), {_KINDS.get(kind, kind)}{where}"
            line = {_nines(percentile): value for percentile, value in curve}
            lines.setdefault(title, {})[cell_text(given, of_workload)] = line
    charts = []
    for title, by_cell in lines.items():
        places = sorted({place for line in by_cell.values() for place in line})
        data = [places, *([line.get(place) for place in places] for line in by_cell.values())]
        charts.append({"title": title, "kind": "percentile", "names": list(by_cell), "data": data})
    return charts


def _nines(percentile: float) -> float:
    """50 is 0.3, 99 is 2, 99.9 is 3; 100, the highest, is drawn at 5."""
    return 5.0 if percentile >= 100 else round(-math.log10(1 - percentile / 100), 4)


def _resources(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    series = one["series"]
    charts = []
    for title, wanted in _PANELS:
        names = [name for name in wanted if name in series]
        if names:
            data = [series["seconds"], *(series[name] for name in names)]
            charts.append({"title": f"{title}: {one['target']}", "kind": "time", "names": names, "data": data})
    return charts

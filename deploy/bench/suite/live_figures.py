"""Figures of a benchmark while it runs, for Prometheus: from states to samples of `monitoring/metrics/bench.py`.

Counters add up the growth between two looks across clusters: a new cluster continues where the one before ended.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from deploy.bench.suite.resources import GB, MB, ResourceSample
from deploy.bench.suite.spread import spreads_of
from ingest.contract.errors import UnavailableError
from monitoring.exporter import CollectorRegistry, Exporter
from monitoring.metrics.bench import BENCH
from monitoring.metrics.families import ProbeCollector

__all__ = ["LiveFigures", "serve_live"]

_Series = tuple[str, tuple[str, ...]]

_COUNTERS: Final[Mapping[str, _Series]] = {
    "broker_cpu_cores": ("tidegate_bench_cpu_seconds_total", ("brokers",)),
    "client_cpu_cores": ("tidegate_bench_cpu_seconds_total", ("clients",)),
    "machine_cpu_cores": ("tidegate_bench_cpu_seconds_total", ("machine",)),
    "io_wait_ratio": ("tidegate_bench_io_wait_seconds_total", ()),
    "context_switches_per_second": ("tidegate_bench_context_switches_total", ()),
    "bytes_in_per_second": ("tidegate_bench_kafka_bytes_total", ("in",)),
    "bytes_out_per_second": ("tidegate_bench_kafka_bytes_total", ("out",)),
    "errors_per_second": ("tidegate_bench_kafka_errors_total", ()),
    "failed_requests_per_second": ("tidegate_bench_kafka_failed_requests_total", ()),
}
"""Counter of a sample -> its series."""
_GAUGES: Final[Mapping[str, tuple[_Series, float]]] = {
    "broker_rss_mb": (("tidegate_bench_memory_bytes", ("brokers",)), MB),
    "client_rss_mb": (("tidegate_bench_memory_bytes", ("clients",)), MB),
    "memory_available_gb": (("tidegate_bench_memory_available_bytes", ()), GB),
    "disk_available_gb": (("tidegate_bench_disk_available_bytes", ()), GB),
    "purgatory_produce": (("tidegate_bench_kafka_purgatory_requests", ("Produce",)), 1),
    "purgatory_fetch": (("tidegate_bench_kafka_purgatory_requests", ("Fetch",)), 1),
}
"""Gauge of a sample -> its series, and the size of its unit."""
_TOTAL_TIME: Final = re.compile(r"(produce|fetch)_total_ms_p(\d+)")
_REQUESTS: Final = {"produce": "Produce", "fetch": "FetchConsumer"}
_SPEED: Final = re.compile(r"(?!.*_mb_per)(\w+)_per_second")
_LATENCY: Final = re.compile(r"(?:(\w+)_)?p(50|99)_ms")


class LiveFigures:
    """Metrics of a run while it runs; they cost the load nothing, whose processes are not aware of them."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._families = ProbeCollector(registry or CollectorRegistry(), BENCH)
        self._totals = {_single(name): 0.0 for name in ("errors", "lost_records", "faults")}
        self._resources: dict[_Series, float] = {}
        self._last: Mapping[str, float] = {}
        self.words = "starting"
        self._add({})

    def progress(self, *, planned: int, done: int, left_seconds: float) -> None:
        """Set the progress of the run."""
        values = {"runs_planned": planned, "runs_done": done, "left_seconds": left_seconds}
        self._give("progress", {_single(name): float(value) for name, value in values.items()})

    def begin(self, scenario: str, target: str, cell: str, run: int) -> None:
        """Set the run of a cell that begins."""
        self.words = f"{scenario}: {target}, {cell}, run {run}"
        self._give("cell", {("tidegate_bench_cell_run", (scenario, target, cell)): float(run)})

    def measured(self, runs: Sequence[Mapping[str, float]]) -> None:
        """Set the end of the last of these runs of a cell; each has its figures."""
        medians = {name: spread.median for name, spread in spreads_of(runs).items()}
        found: dict[_Series, float] = {}
        for name, value in medians.items():
            if speed := _SPEED.fullmatch(name):
                found["tidegate_bench_records_per_second", (speed[1],)] = value
            elif latency := _LATENCY.fullmatch(name):
                place = (latency[1] or "end_to_end", latency[2])
                found["tidegate_bench_latency_seconds", place] = value / 1000
        self._give("figures", found)
        self._add({"errors": runs[-1].get("errors", 0.0), "lost_records": runs[-1].get("lost", 0.0)})

    def fault(self) -> None:
        """Count a cell or a cluster that could not be measured."""
        self._add({"faults": 1.0})

    def target(self) -> None:
        """Start another cluster: observations of the last one do not apply to it."""
        self._last = {}
        for probe in ("resources", "gauges"):
            self._give(probe, {})

    def sample(self, sample: ResourceSample) -> None:
        """Set the newest view of the resources."""
        for name, series in _COUNTERS.items():
            if name in sample.counters:
                grown = sample.counters[name] - self._last.get(name, sample.counters[name])
                self._resources[series] = self._resources.get(series, 0.0) + max(0.0, grown)
        self._last = dict(sample.counters)
        gauges = {
            series: sample.gauges[name] * size for name, (series, size) in _GAUGES.items() if name in sample.gauges
        }
        for name, value in sample.gauges.items():
            if time := _TOTAL_TIME.fullmatch(name):
                place = (_REQUESTS[time[1]], time[2] if len(time[2]) < 3 else f"{time[2][:2]}.{time[2][2:]}")
                gauges["tidegate_bench_kafka_request_seconds", place] = value / 1000
        counted = [series for name, series in _COUNTERS.items() if name in sample.counters]
        self._give("resources", {series: self._resources[series] for series in counted})
        self._give("gauges", gauges)

    def _add(self, grown: Mapping[str, float]) -> None:
        for name, value in grown.items():
            self._totals[_single(name)] += value
        self._give("totals", self._totals)

    def _give(self, probe: str, values: Mapping[_Series, float]) -> None:
        samples: dict[str, list[tuple[tuple[str, ...], float]]] = {}
        for (name, labels), value in values.items():
            samples.setdefault(name, []).append((labels, value))
        self._families.replace(probe, samples)


def _single(name: str) -> _Series:
    return f"tidegate_bench_{name}", ()


@contextmanager
def serve_live(port: int | None) -> Iterator[LiveFigures]:
    """The state of a run, served on loopback while the block runs; on no port it is only kept.

    Raises:
        UnavailableError: the port cannot be had.
    """
    if port is None:
        yield LiveFigures()
        return
    from deploy.processes import version
    from monitoring.metrics.process_metrics import build_info, process_metrics

    registry = CollectorRegistry()
    live = LiveFigures(registry)
    build_info(registry, version(), "bench")
    process_metrics(registry)
    try:
        exporter = Exporter(registry, port=port, healthy=lambda: (True, live.words))
    except OSError as error:
        msg = (
            f"127.0.0.1:{port} cannot serve the metrics ({error.strerror}). Give --metrics-port a free port above 1023."
        )
        raise UnavailableError(msg) from error
    try:
        yield live
    finally:
        exporter.close()

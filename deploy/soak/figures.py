"""Figures of a soak: samples of memory, descriptors, files, state and latency, their growth per hour, and the verdict.

`BOUNDS` limits the growth by patterns of figure names.
"""

import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import psutil

from deploy.local.monitor_client import ask_monitor
from deploy.local.runfile import read_run
from deploy.settings import Settings
from monitoring.addresses import reached_at
from monitoring.scrape import Scrape, scrape

__all__ = [
    "BOUNDS",
    "RestartSafeCounter",
    "Slope",
    "SoakSample",
    "SoakVerdict",
    "as_rows",
    "judge_soak",
    "jvm_figures",
    "slope_per_hour",
    "slopes_of",
    "take_figures",
]

_MB: Final = 1024**2
_STATE_ENDS: Final = ("_ranges", "_identities")
"""Endings of gauges that say how much a part remembers."""
_OLD_POOLS: Final = ("Old Gen", "Tenured Gen")
"""Names of the pool of long-lived objects in the different garbage collectors."""
_LANDING_RESTARTS: Final = "tidegate_stream_query_restarts_total"
WARM_UP_RATIO: Final = 0.2
"""First share of the time, which is not judged: caches fill, and the JVM's heap grows to its size."""
LEAST_SECONDS: Final = 600.0
"""Least time for a slope per hour."""
BINS: Final = 60

BOUNDS: Final[Mapping[str, float | None]] = {
    "memory_mb.stream/java": None,
    "memory_mb.kafka": 150.0,
    "memory_mb.*": 60.0,
    "heap_live_mb.*": 60.0,
    "nonheap_mb.*": 60.0,
    "descriptors.*": 60.0,
    "table_files.*": 300.0,
    "log_files_besides_commits": 800.0,
    "state_files": 200.0,
    "state_kb": 2000.0,
    "state.*": 5000.0,
    "latency_ms.p50": 300.0,
    "latency_ms.p99": 2000.0,
}
"""Most growth per hour, by pattern of the figure's name. The first pattern that fits counts; without one, or with None, the
figure is only reported.

The resident memory of the stream's JVM has a ceiling instead: a JVM fills the heap that it may have before it collects much, so
growth shows nothing. Live bytes after a full collection (`heap_live_mb`) and memory outside the heap have bounds.
"""


class RestartSafeCounter:
    """A counter of a process that may restart, summed over all starts."""

    def __init__(self) -> None:
        self.total, self._last = 0.0, 0.0

    def add(self, value: float) -> None:
        """Take the counter's present value; a smaller one than before comes from a restarted process."""
        self.total += value - self._last if value >= self._last else value
        self._last = value


def take_figures(data: Path, settings: Settings, landing: RestartSafeCounter) -> dict[str, float]:
    """Return all known figures by name; `landing` receives the restarts of the landing query."""
    figures: dict[str, float] = {}
    run = read_run(data)
    for part, pid in (run.parts if run is not None else {}).items():
        if pid is not None:
            figures |= _process_figures(part, pid)
    figures |= _file_figures(data)
    monitoring = settings.monitoring
    snapshot = ask_monitor(monitoring) or {}
    latency = snapshot.get("latency_ms", {})
    figures |= {f"latency_ms.{name}": latency[name] for name in ("p50", "p99") if latency.get(name) is not None}
    for port in (monitoring.stream_port, monitoring.gateway_port):
        found = scrape(f"http://{reached_at(monitoring.metrics_host, port)}/metrics", timeout_seconds=3.0)
        if found is not None:
            figures |= _gauges(found)
            if any(name == _LANDING_RESTARTS for name, _ in found.values):
                landing.add(found.total(_LANDING_RESTARTS))
    for part, port in (("stream", monitoring.spark_jmx_port), ("kafka", monitoring.kafka_jmx_port)):
        found = scrape(f"http://{reached_at(monitoring.metrics_host, port)}/metrics", timeout_seconds=3.0)
        if found is not None:
            figures |= jvm_figures(part, found)
    return figures


def jvm_figures(part: str, found: Scrape) -> dict[str, float]:
    """Return a JVM's figures in MB: live heap after a full collection (unknown before the first), and memory outside the heap."""
    figures = {f"nonheap_mb.{part}": found.total("jvm_memory_used_bytes", area="nonheap") / _MB}
    pools = found.by_label("jvm_memory_pool_collection_used_bytes", "pool")
    live = sum(value for name, value in pools.items() if name.endswith(_OLD_POOLS))
    return figures | ({f"heap_live_mb.{part}": live / _MB} if live else {})


def _process_figures(part: str, pid: int) -> dict[str, float]:
    """Return the figures of a part, and separately those of its JVM, which is as large as everything else together."""
    figures: dict[str, float] = {}
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                name = part if each.pid == pid else f"{part}/{each.name()}"
                memory, descriptors = each.memory_info().rss / _MB, each.num_fds()
                figures[f"memory_mb.{name}"] = figures.get(f"memory_mb.{name}", 0.0) + memory
                figures[f"descriptors.{name}"] = figures.get(f"descriptors.{name}", 0.0) + descriptors
    return figures


def _file_figures(data: Path) -> dict[str, float]:
    counts = dict.fromkeys(("files", "log_files", "log_files_besides_commits", "state_files"), 0.0)
    sizes = dict.fromkeys(("data_mb", "state_kb"), 0.0)
    for path in _walk(data):
        size = 0
        with suppress(OSError):
            size = path.stat().st_size
        counts["files"] += 1
        sizes["data_mb"] += size / _MB
        relative = path.relative_to(data).parts
        if "_delta_log" in relative:
            counts["log_files"] += 1
            counts["log_files_besides_commits"] += path.suffix != ".json"
        elif _is_state(relative):
            counts["state_files"] += 1
            sizes["state_kb"] += size / 1024
    return counts | sizes


def _is_state(relative: tuple[str, ...]) -> bool:
    """Return whether a file is state that a hop keeps over restarts: checkpoints, sessions, identities; no rows or logs."""
    if relative[0] == "checkpoints":
        return True
    if relative[0] == "tables":
        return len(relative) > 1 and relative[1].startswith("_")
    return len(relative) == 1 and relative[0] not in ("run.json", "state.json")


def _walk(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder):
        yield from (Path(root, name) for name in names)


def _gauges(found: Scrape) -> Mapping[str, float]:
    figures: dict[str, float] = {}
    for (name, labels), value in found.values.items():
        if name == "tidegate_table_files":
            figures[f"table_files.{dict(labels)['table']}"] = value
        elif name.endswith(_STATE_ENDS):
            figures[f"state.{name}"] = figures.get(f"state.{name}", 0.0) + value
    return figures


@dataclass(frozen=True)
class SoakSample:
    """All known figures at one moment; `at` is in seconds since the load began."""

    at: float
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Slope:
    """Growth of one figure, in its own unit per hour; `per_hour` and `bound` are None if it was not judged."""

    name: str
    first: float
    last: float
    most: float
    per_hour: float | None
    bound: float | None

    @property
    def above(self) -> bool:
        """True if the figure grew faster than its bound."""
        return self.per_hour is not None and self.bound is not None and self.per_hour > self.bound


@dataclass(frozen=True)
class SoakVerdict:
    """Verdict of a soak: one sentence per fault, none if the soak passed."""

    wrong: Sequence[str] = field(default_factory=tuple)

    @property
    def passed(self) -> bool:
        """True if nothing is wrong."""
        return not self.wrong


def slope_per_hour(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the median of the slopes between all pairs of bins; None with less than two bins.

    A median gives single peaks and a sawtooth little weight.

    Args:
        points: (seconds, value), ascending.
    """
    bins = _bins(points)
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(bins, 2) if b[0] > a[0]]
    return statistics.median(slopes) * 3600 if slopes else None


def _bins(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    size = max(1, -(-len(points) // BINS))
    chunks = [points[first : first + size] for first in range(0, len(points), size)]
    return [(statistics.median(at for at, _ in chunk), statistics.median(v for _, v in chunk)) for chunk in chunks]


def slopes_of(samples: Sequence[SoakSample], bounds: Mapping[str, float | None] = BOUNDS) -> list[Slope]:
    """Return the slope of each figure after the warm-up, by name. If that time is too short, no figure is judged."""
    if not samples:
        return []
    begin = samples[-1].at * WARM_UP_RATIO
    series: dict[str, list[tuple[float, float]]] = {}
    for sample in samples:
        for name, value in sample.figures.items():
            series.setdefault(name, []).append((sample.at, value))
    return [_slope(name, points, begin, bounds) for name, points in sorted(series.items())]


def _slope(name: str, points: list[tuple[float, float]], begin: float, bounds: Mapping[str, float | None]) -> Slope:
    warm = [point for point in points if point[0] >= begin]
    long_enough = bool(warm) and warm[-1][0] - warm[0][0] >= LEAST_SECONDS
    per_hour = slope_per_hour(warm) if long_enough else None
    bound = next((limit for pattern, limit in bounds.items() if fnmatchcase(name, pattern)), None)
    values = [value for _, value in points]
    rounded = None if per_hour is None else round(per_hour, 2)
    return Slope(name, round(values[0], 2), round(values[-1], 2), round(max(values), 2), rounded, bound)


def judge_soak(
    slopes: Sequence[Slope],
    audit: Mapping[str, Any],
    *,
    acknowledged: int,
    ceilings: Mapping[str, float],
    restarts: Mapping[str, int],
    kills: Mapping[str, int],
    landing_failures: int,
    landing_faults: int,
    ready: bool,
) -> SoakVerdict:
    """Judge a soak by everything that it must not show.

    Args:
        slopes: slopes of all figures.
        audit: output of `tidegate audit --json` at the end.
        acknowledged: least number of the load's messages that have a PUBACK.
        ceilings: most value of a figure at any time, by name.
        restarts: restarts of each part by the supervisor.
        kills: kills of each part by the faults; as many restarts are expected.
        landing_failures: restarts of the landing query that the stream counted.
        landing_faults: faults of Kafka, which may end the landing query.
        ready: whether all parts are ready at the end.
    """
    wrong = [
        f"{slope.name} grows by {slope.per_hour:g} an hour; the limit is {slope.bound:g}"
        for slope in slopes
        if slope.above
    ]
    wrong += [
        f"{slope.name} reaches {slope.most:g}; the limit is {ceilings[slope.name]:g}"
        for slope in slopes
        if slope.most > ceilings.get(slope.name, math.inf)
    ]
    if audit["received"] < acknowledged:
        wrong.append(f"the broker acknowledged {acknowledged:,} messages, but the audit found {audit['received']:,}")
    for name in ("unaccounted", "duplicate_rows", "order_violations"):
        if audit[name]:
            wrong.append(f"the audit found {audit[name]:,} {name.replace('_', ' ')}")
    for part, count in sorted(restarts.items()):
        if count > kills.get(part, 0):
            wrong.append(f"{part} restarted {count} times, but the faults killed it {kills.get(part, 0)} times")
    if landing_failures > landing_faults:
        wrong.append(f"the landing query failed {landing_failures} times, but the faults explain {landing_faults}")
    if not ready:
        wrong.append("not all parts are ready at the end")
    return SoakVerdict(tuple(wrong))


def as_rows(slopes: Iterable[Slope]) -> list[dict[str, Any]]:
    """Return the slopes as JSON-ready data."""
    return [asdict(slope) | {"above": slope.above} for slope in slopes]

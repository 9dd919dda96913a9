"""Sample of a running embedded run: memory, descriptors, files, state, latency."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from deploy.local.monitor_client import ask_monitor
from deploy.local.runfile import read_run
from deploy.settings import Settings
from monitoring.scrape import Scrape, scrape

__all__ = ["RestartSafeCounter", "jvm_figures", "take_figures"]

_MB: Final = 1024**2
_STATE_ENDS: Final = ("_ranges", "_identities")
"""Gauges of these names say how much a part remembers."""
_OLD_POOLS: Final = ("Old Gen", "Tenured Gen")
"""Names of the pool of long-lived objects, by collector."""
_LANDING_RESTARTS: Final = "tidegate_stream_query_restarts_total"


class RestartSafeCounter:
    """A counter of a process that may start again, summed over its lives."""

    def __init__(self) -> None:
        self.total, self._last = 0.0, 0.0

    def add(self, value: float) -> None:
        """The counter as it is now; a smaller one is of a new life."""
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
        found = scrape(f"http://{monitoring.host}:{port}/metrics", timeout_seconds=3.0)
        if found is not None:
            figures |= _gauges(found)
            if any(name == _LANDING_RESTARTS for name, _ in found.values):
                landing.add(found.total(_LANDING_RESTARTS))
    for part, port in (("stream", monitoring.spark_jmx_port), ("kafka", monitoring.kafka_jmx_port)):
        found = scrape(f"http://{monitoring.host}:{port}/metrics", timeout_seconds=3.0)
        if found is not None:
            figures |= jvm_figures(part, found)
    return figures


def jvm_figures(part: str, found: Scrape) -> dict[str, float]:
    """Return a JVM's figures: live bytes after a full collection (unknown before the first), and bytes outside the heap."""
    figures = {f"nonheap_mb.{part}": found.total("jvm_memory_used_bytes", area="nonheap") / _MB}
    pools = found.by_label("jvm_memory_pool_collection_used_bytes", "pool")
    live = sum(value for name, value in pools.items() if name.endswith(_OLD_POOLS))
    return figures | ({f"heap_live_mb.{part}": live / _MB} if live else {})


def _process_figures(part: str, pid: int) -> dict[str, float]:
    """Return the figures of a part and of the JVM below it, which is as large as everything else together."""
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
    """Return whether a file is state that a hop keeps over starts: checkpoints, sessions, identities; no rows or logs."""
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

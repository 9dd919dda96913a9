"""Cells that go the whole way: devices publish over MQTT, and the clock stops at the queryable row."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil

from deploy.bench.suite.bed import Bed
from deploy.bench.suite.scenario import Parameters
from deploy.bench.target import own_run
from deploy.local.runfile import read_run
from ingest.contract.errors import FatalError

__all__ = ["pipeline_bed", "pipeline_cell"]

_PORT_OFFSET: Final = 2000
_RATE: Final = 1000.0
"""Messages a second where a cell names none: an open loop needs one."""


@contextmanager
def pipeline_bed() -> Iterator[Bed]:
    """An embedded run without the simulated fleet, in a temporary folder; it is stopped and removed afterwards.

    Raises:
        FatalError: it does not start; its words are on stderr.
    """
    folder = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    try:
        with own_run(folder, port_offset=_PORT_OFFSET) as settings:
            run = read_run(folder)
            parts = {name: pid for name, pid in run.parts.items() if pid is not None} if run is not None else {}
            yield Bed(settings.kafka, brokers=parts, folder=folder, pipeline=settings)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pipeline_cell(workload: Parameters, bed: Bed) -> dict[str, float]:
    """One run: `messages` at `rate` after `warmup_messages` that do not count.

    Returns:
        `p50_ms`, `p95_ms`, `p99_ms` from due to queryable, `commit_p50_ms` to committed; `rows`, `commits`, `lost`,
        `unacknowledged`; `cpu_us_per_message_PART` for each part of the run with all its processes, warm-up included.

    Raises:
        FatalError: the cell runs where there is no pipeline, or no row came.
    """
    from deploy.bench.e2e import measure_e2e

    if bed.pipeline is None:
        message = 'devices need a whole pipeline: give the target `runs = "pipeline"`, or use `bench e2e --config`'
        raise FatalError(message)
    rate = workload.rate or _RATE
    before = _cpu_seconds(bed.brokers)
    found = measure_e2e(
        bed.pipeline, rate=rate, seconds=workload.messages / rate, warmup_seconds=workload.warmup_messages / rate,
        devices=workload.devices,
    )  # fmt: skip
    after = _cpu_seconds(bed.brokers)
    if found["p50_ms"] is None:
        message = f"none of {workload.messages} messages became a row; `bench e2e` shows more"
        raise FatalError(message)
    messages = workload.messages + workload.warmup_messages
    names = ("p50_ms", "p95_ms", "p99_ms", "rows", "commits", "lost", "unacknowledged")
    return {
        **{name: float(found[name]) for name in names},
        "commit_p50_ms": float(found["commit"]["p50_ms"]),
        **{
            f"cpu_us_per_message_{name}": round((after[name] - before[name]) / messages * 1_000_000, 2)
            for name in after.keys() & before.keys()
        },
    }


def _cpu_seconds(parts: Mapping[str, int]) -> dict[str, float]:
    """Of each part that lives, with the processes below it."""
    found: dict[str, float] = {}
    for name, pid in parts.items():
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            found[name] = sum(_seconds(one) for one in (process, *process.children(recursive=True)))
    return found


def _seconds(process: psutil.Process) -> float:
    times: Any = None
    with suppress(psutil.Error):
        times = process.cpu_times()
    return 0.0 if times is None else float(times.user + times.system)

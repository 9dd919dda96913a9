"""Cells that go the whole way: devices publish over MQTT, and the clock stops at the queryable row."""

from typing import Any, Final

import psutil

from deploy.bench.day import reader_figures
from deploy.bench.e2e import measure_e2e
from deploy.bench.suite.cell_beds import CellBed
from deploy.bench.suite.parts_cost import PartsWatch, busy_text, cost_figures
from deploy.bench.suite.scenario import Parameters
from ingest.contract.errors import FatalError

__all__ = ["pipeline_cell"]

_RATE: Final = 1000.0
"""Messages a second where a cell names none: an open loop needs one."""
_FIGURES: Final = (
    "p50_ms", "p95_ms", "p99_ms", "rows", "commits", "lost", "unacknowledged", "messages_per_second", "backlog_at_end",
    "drain_seconds", "delay_growth_ms_per_second",
)  # fmt: skip


def pipeline_cell(workload: Parameters, bed: CellBed) -> dict[str, Any]:
    """One run: `messages` at `rate` after `warmup_messages` that do not count.

    Returns:
        `p50_ms`, `p95_ms`, `p99_ms` from due to queryable, `commit_p50_ms` to committed; `rows`, `commits`, `lost`,
        `unacknowledged`; how far it fell behind, see `backlog_figures`; processor time and memory of each part with all its
        processes, warm-up included, see `cost_figures`. Next to a grown table also what a reader meets. Under `limit` the part
        that kept the processors busy.

    Raises:
        FatalError: the cell runs where there is no pipeline, or no row came.
    """
    pipeline = bed.running
    if pipeline is None or pipeline.settings is None:
        message = 'devices need a whole pipeline. Give the target `runs = "pipeline"`, or use `bench e2e --config`'
        raise FatalError(message)
    rate = workload.rate or _RATE
    with PartsWatch(pipeline.parts).running() as watch:
        found = measure_e2e(
            pipeline.settings, rate=rate, seconds=workload.messages / rate,
            warmup_seconds=workload.warmup_messages / rate, devices=workload.devices, readings=workload.readings,
            fleet=pipeline.fleet(workload.devices),
        )  # fmt: skip
    if found["p50_ms"] is None:
        message = f"none of {workload.messages} messages became a row; run `bench e2e` for details"
        raise FatalError(message)
    sent = workload.messages + workload.warmup_messages
    limit = busy_text(watch.looks, begin_at=found["begin_at"], cores=psutil.cpu_count() or 1)
    figures: dict[str, Any] = {name: float(found[name]) for name in _FIGURES if name in found}
    figures |= {"commit_p50_ms": float(found["commit"]["p50_ms"])}
    figures |= cost_figures(watch.looks, begin_at=found["begin_at"], messages=sent, readings=workload.readings)
    figures |= {"limit": limit} if limit else {}
    return figures | (reader_figures(pipeline.settings.lake.root) if workload.table_rows else {})

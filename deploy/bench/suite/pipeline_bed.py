"""Bed and cells of a whole pipeline: devices publish over MQTT, and the clock stops when the row is queryable.

The pipeline restarts if a cell wants another number of partitions, or another profile of the stream. Its fleet and its table
exist before the clock starts.
"""

import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from deploy.bench.day import reader_figures
from deploy.bench.e2e import RowCount, follow_rows, load_plan, measure_e2e, publish
from deploy.bench.gateway_testbed import to_toml
from deploy.bench.suite.cell_beds import CellBed
from deploy.bench.suite.parts_cost import PartsWatch, RunParts, busy_text, cost_figures
from deploy.bench.suite.scenario import Parameters
from deploy.bench.table_rows import grow_table
from deploy.bench.target import own_run
from deploy.bench.temporary import own_folder
from deploy.bench.waiting import await_arrivals
from deploy.settings import Settings
from ingest.contract.errors import FatalError
from ingest.kafka_settings import KafkaSettings
from lakehouse.table_follower import TableFollower

__all__ = ["RunningPipeline", "pipeline_bed", "pipeline_cell"]

_PORT_OFFSET: Final = 2000
WARM_UP_RATE: Final = 1000.0
"""Messages per second of the load after a start: the first minutes are slower, until Java has compiled the hot code."""
INTRODUCE_RATE: Final = 4000.0
"""Messages per second while each new device sends its first message."""
GIVE_UP_SECONDS: Final = 120.0
_RATE: Final = 1000.0
"""Messages per second if a cell names no rate: an open loop needs one."""
_FIGURES: Final = (
    "p50_ms", "p95_ms", "p99_ms", "rows", "commits", "lost", "unacknowledged", "messages_per_second", "backlog_at_end",
    "drain_seconds", "delay_growth_ms_per_second",
)  # fmt: skip


class RunningPipeline:
    """The embedded run for the present cell; at most one run exists at a time.

    Attributes:
        parts: process ids of the run.
        settings: settings of the run; None before the first cell.
    """

    def __init__(self) -> None:
        self.parts = RunParts()
        self.settings: Settings | None = None
        self._stack, self._started_for, self._table_rows = ExitStack(), (0, ""), 0
        self._name, self._introduced = "", set[int]()

    def fleet(self, devices: int) -> str:
        """Return the prefix of the names of a fleet of this size; each repeat uses the same one, as real devices stay."""
        return f"{self._name}-{devices}"

    def fit(self, work: Parameters) -> None:
        """Adapt the run to a cell before the clock starts: partitions, known devices, and rows of the table.

        Raises:
            FatalError: the run does not start, or a device has no row after its first message.
        """
        wanted = (work.partitions, work.profile)
        if self.settings is None or wanted != self._started_for or work.table_rows < self._table_rows:
            self.close()
            self.settings, self._started_for = self._start(*wanted, work.settle_seconds), wanted
        if work.devices > work.warmup_messages and work.devices not in self._introduced:
            self._introduce(self.settings, work.devices)
        if work.table_rows > self._table_rows:
            grow_table(self.settings.lake.root, work.table_rows - self._table_rows, after=self._table_rows)
            self._table_rows = work.table_rows

    def close(self) -> None:
        """Stop the run and remove its folder."""
        self.settings, self.parts.folder = None, None
        self._table_rows = 0
        self._introduced.clear()
        self._stack.close()

    def _start(self, partitions: int, profile: str, settle_seconds: float) -> Settings:
        folder = self._stack.enter_context(own_folder())
        config, data = folder / "config.toml", folder / "data"
        stream = {"stream": {"profile": profile}} if profile else {}
        config.write_text(to_toml({"embedded": {"kafka_partitions": partitions}, **stream}), "utf-8")
        data.mkdir()
        settings = self._stack.enter_context(own_run(data, port_offset=_PORT_OFFSET, config=config))
        self.parts.folder = data
        self._name = f"bench-{secrets.token_hex(3)}"
        measure_e2e(
            settings, rate=WARM_UP_RATE, seconds=settle_seconds / 2, warmup_seconds=settle_seconds / 2, devices=100
        )
        return settings

    def _introduce(self, settings: Settings, devices: int) -> None:
        """Let each device send one message: its session, identities and row in `devices` then exist before the clock starts."""
        count = RowCount(boot=int(time.time() * 1000))
        plan = load_plan(
            settings.mqtt, count.boot, rate=INTRODUCE_RATE, messages=devices, devices=devices, fleet=self.fleet(devices)
        )
        with follow_rows(TableFollower(settings.lake.root, "readings", columns=("boot",)), count):
            publish(plan)
            await_arrivals(lambda: count.rows, devices, silent_seconds=GIVE_UP_SECONDS)
        if count.rows < devices:
            message = f"only {count.rows:,} of {devices:,} devices have a row after each sent one message"
            raise FatalError(message)
        self._introduced.add(devices)


@contextmanager
def pipeline_bed() -> Iterator[CellBed]:
    """Yield a bed of embedded runs in temporary folders, without the simulated fleet. It is stopped and removed afterwards.

    The first cell starts the run.
    """
    pipeline = RunningPipeline()
    try:
        yield CellBed(
            KafkaSettings(), brokers=pipeline.parts, folder=Path(tempfile.gettempdir()), running=pipeline,
            fit=pipeline.fit, makes_topics=False,
        )  # fmt: skip
    finally:
        pipeline.close()


def pipeline_cell(workload: Parameters, bed: CellBed) -> dict[str, Any]:
    """Run one cell: `messages` at `rate`, after `warmup_messages` that do not count.

    Returns:
        `p50_ms`, `p95_ms`, `p99_ms` from due to queryable, and `commit_p50_ms` from due to committed; `rows`, `commits`,
        `lost`, `unacknowledged`; the backlog (see `schedule_delay_figures`); processor time and memory of each part with all
        its processes, including the warm-up (see `cost_figures`). With a grown table also figures of its readers. `limit` is
        the part that kept the processors busy.

    Raises:
        FatalError: the bed has no pipeline, or no row arrived.
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

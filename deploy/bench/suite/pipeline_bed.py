"""A whole pipeline for cells: started again where a cell wants other partitions, its fleet introduced, its table grown."""

import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from deploy.bench.e2e import RowCount, follow_rows, load_plan, measure_e2e, publish
from deploy.bench.gateway_testbed import to_toml
from deploy.bench.suite.cell_beds import CellBed
from deploy.bench.suite.parts_cost import RunParts
from deploy.bench.suite.scenario import Parameters
from deploy.bench.table_rows import grow_table
from deploy.bench.target import own_run
from deploy.bench.temporary import own_folder
from deploy.bench.waiting import await_arrivals
from deploy.settings import Settings
from ingest.contract.errors import FatalError
from ingest.kafka_settings import KafkaSettings
from lakehouse.table_follower import TableFollower

__all__ = ["RunningPipeline", "pipeline_bed"]

_PORT_OFFSET: Final = 2000
WARM_UP_RATE: Final = 1000.0
"""Messages a second of the load after a start: Java compiles code that is used often, so the first minutes are slower."""
INTRODUCE_RATE: Final = 4000.0
"""Messages a second by which devices that have never spoken speak once."""
GIVE_UP_SECONDS: Final = 120.0


class RunningPipeline:
    """An embedded run, at most one at a time, that fits the cell which is measured.

    Attributes:
        parts: process ids of the run.
        settings: of the run, as devices use it; None before the first cell.
    """

    def __init__(self) -> None:
        self.parts = RunParts()
        self.settings: Settings | None = None
        self._stack, self._partitions, self._table_rows = ExitStack(), 0, 0
        self._name, self._introduced = "", set[int]()

    def fleet(self, devices: int) -> str:
        """Begin of the names of a fleet of so many devices: the same in each repeat, as real devices stay."""
        return f"{self._name}-{devices}"

    def fit(self, work: Parameters) -> None:
        """Make the run what a cell wants, before the clock starts.

        Raises:
            FatalError: it does not start, a device does not get through, or the table is larger than the cell wants.
        """
        if self.settings is None or work.partitions != self._partitions or work.table_rows < self._table_rows:
            self.close()
            self.settings = self._start(work.partitions, work.settle_seconds)
        if work.devices > work.warmup_messages and work.devices not in self._introduced:
            self._introduce(self.settings, work.devices)
        if work.table_rows > self._table_rows:
            grow_table(self.settings.lake.root, work.table_rows - self._table_rows, after=self._table_rows)
            self._table_rows = work.table_rows

    def close(self) -> None:
        """Stop and remove what runs."""
        self.settings, self.parts.folder = None, None
        self._table_rows = 0
        self._introduced.clear()
        self._stack.close()

    def _start(self, partitions: int, settle_seconds: float) -> Settings:
        folder = self._stack.enter_context(own_folder())
        config, data = folder / "config.toml", folder / "data"
        config.write_text(to_toml({"embedded": {"kafka_partitions": partitions}}), "utf-8")
        data.mkdir()
        settings = self._stack.enter_context(own_run(data, port_offset=_PORT_OFFSET, config=config))
        self.parts.folder, self._partitions = data, partitions
        self._name = f"bench-{secrets.token_hex(3)}"
        measure_e2e(
            settings, rate=WARM_UP_RATE, seconds=settle_seconds / 2, warmup_seconds=settle_seconds / 2, devices=100
        )
        return settings

    def _introduce(self, settings: Settings, devices: int) -> None:
        """Let each device speak once: its session, its identities and its row of `devices` exist before the clock starts."""
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
    """Embedded runs without the simulated fleet, in temporary folders; stopped and removed afterwards.

    The run starts with the first cell.
    """
    pipeline = RunningPipeline()
    try:
        yield CellBed(
            KafkaSettings(), brokers=pipeline.parts, folder=Path(tempfile.gettempdir()), running=pipeline,
            fit=pipeline.fit, makes_topics=False,
        )  # fmt: skip
    finally:
        pipeline.close()

"""Maintenance of the log next to a JVM that computes the state of its snapshots lazily: nothing that it reads is removed."""

import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from prometheus_client import CollectorRegistry

from deploy.bench.day import write_day
from ingest.kafka_settings import KafkaSettings
from lakehouse.append import Append, Appender
from lakehouse.changes import newest_version, read_changes, table_files
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.frames import rows_of
from lakehouse.lake_settings import LakeSettings
from lakehouse.log_holds import snapshot_checkpoint
from lakehouse.maintenance import JoinPlan
from lakehouse.maintenance_log import adopt_checkpoint, last_checkpoint, write_checkpoint
from lakehouse.tables import READINGS
from monitoring.metrics.stream import StreamMetrics
from streaming.derive.cursor import encode_cursor
from streaming.kafka_source import LandedTopics
from streaming.maintain.maintenance_commits import join_files
from streaming.maintain.table_maintainer import MaintenanceLimits, TableMaintainer
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

pytestmark = pytest.mark.promise("P9")

HOURS = 2


class Walk:
    """A table that a landing, a keeper and a derivation share."""

    def __init__(self, lake: Any, root: Path, limits: MaintenanceLimits) -> None:
        self.spark, self.root = lake.spark, str(root)
        write_day(self.root, commits=4, rows_per_commit=2, devices=2)
        self.source = table_files(self.root, "readings")[:1]
        metrics = StreamMetrics(CollectorRegistry(), query="land", tables=ALL_TABLES, topics=("a", "b"))
        lake_settings = LakeSettings(root=self.root, log_retention_hours=1)
        writer = WriterContext(lake.spark, KafkaSettings(), StreamSettings(), lake_settings, metrics, LandedTopics())
        self.keeper = TableMaintainer(writer, limits)
        self.appender = Appender(lake.spark, self.root, READINGS)
        self.begun: list[tuple[ExitStack, Append]] = []
        self.plans: list[Any] = []
        self.seen = -1

    @property
    def snapshot(self) -> Any:
        return self.appender.log.unsafeVolatileSnapshot()

    def log(self) -> set[str]:
        return {path.name for path in Path(self.root, "readings", "_delta_log").iterdir()}

    def begin(self) -> None:
        stack = ExitStack()
        self.begun.append((stack, stack.enter_context(self.appender.begin())))

    def land(self) -> None:
        if not self.begun:
            self.begin()
        stack, append = self.begun.pop(0)
        with stack:
            append.write(rows_of(self.spark, self.root, READINGS, self.source))
            append.commit("{}")

    def join(self) -> None:
        files = table_files(self.root, "readings")
        join_files(self.spark, self.appender, JoinPlan(None, tuple(files[-3:]), ("device",)))
        self.source = table_files(self.root, "readings")[:1]

    def checkpoint(self) -> None:
        write_checkpoint(self.root, "readings")

    def adopt(self) -> None:
        adopt_checkpoint(self.appender, last_checkpoint(self.root, "readings"))

    def clean(self) -> None:
        self.keeper.run_all("readings", full=False)

    def derive(self) -> None:
        self.seen = newest_version(self.root, "readings")
        properties = CommitProperties(custom_metadata={"userMetadata": encode_cursor({"readings": self.seen})})
        rows = pa.table({"device": ["a"]})
        write_deltalake(f"{self.root}/devices", rows, mode="append", commit_properties=properties)

    def pass_hours(self) -> None:
        for path in Path(self.root, "readings", "_delta_log").iterdir():
            at = path.stat().st_mtime - HOURS * 3600
            os.utime(path, (at, at))

    def plan(self) -> None:
        self.plans.append(self.snapshot)

    def read_lazily(self) -> None:
        assert self.snapshot.numOfFiles() > 0
        for plan in self.plans:
            assert plan.numOfFiles() > 0
        self.plans.clear()

    def check(self) -> None:
        """Everything that is open has its files, and the derivation finds what comes next."""
        there = self.log()
        for snapshot in (self.snapshot, *(append._transaction.snapshot() for _, append in self.begun), *self.plans):
            base = snapshot_checkpoint(snapshot)
            wanted = {f"{version:020d}.json" for version in range(base + 1, int(snapshot.version()) + 1)}
            wanted |= {f"{base:020d}.checkpoint.parquet"} if base >= 0 else set()
            assert wanted <= there, sorted(wanted - there)
        if self.seen >= 0:
            assert (
                len(list(read_changes(self.root, "readings", after=self.seen)))
                == newest_version(self.root, "readings") - self.seen
            )


def test_a_checkpoint_that_the_newest_snapshot_begins_with_outlives_newer_ones(lake: Any, tmp_path: Path) -> None:
    """As it happened: adopted soon after one that is kept, newer ones written, cleaned; then a join computes the state."""
    walk = Walk(lake, tmp_path, MaintenanceLimits(held_commits=10**6, readers_seconds=0.0))
    walk.land()
    walk.checkpoint()
    walk.adopt()
    begun = walk.appender.beginning()
    for _ in range(3):
        walk.land()
        walk.checkpoint()
    walk.pass_hours()
    walk.begin()  # the next batch is being written while maintenance cleans
    kept = walk.keeper.run_all("readings", full=False, keep_hours=24)
    walk.check()
    assert f"{begun:020d}.checkpoint.parquet" in walk.log()
    assert kept.log_files_deleted > 0
    assert walk.appender.beginning() == last_checkpoint(walk.root, "readings")
    walk.land()
    walk.join()
    walk.read_lazily()
    # The batch is over: a snapshot of the old checkpoint may be left, until the newest is adopted again.
    walk.clean()
    walk.check()
    assert f"{begun:020d}.checkpoint.parquet" not in walk.log()


@pytest.mark.parametrize("readers_seconds", [0.0, 3600.0])
def test_nothing_that_is_open_loses_its_log_in_any_order(lake: Any, tmp_path: Path, readers_seconds: float) -> None:
    walk, chance = (
        Walk(lake, tmp_path, MaintenanceLimits(held_commits=3, readers_seconds=readers_seconds)),
        random.Random(27),
    )
    steps: dict[Callable[[], None], int] = {
        walk.land: 5, walk.begin: 3, walk.join: 1, walk.checkpoint: 8, walk.adopt: 2, walk.clean: 6,
        walk.derive: 1, walk.pass_hours: 6, walk.read_lazily: 1, walk.plan: 2 if readers_seconds else 0,
    }  # fmt: skip
    cleaned = 0
    for step in chance.choices(list(steps), list(steps.values()), k=60):
        before = walk.log()
        step()
        walk.check()
        cleaned += bool(before - walk.log())
    walk.read_lazily()
    assert cleaned > 0, "nothing was ever removed: the walk tries nothing"
    assert DeltaTable(f"{walk.root}/readings").version() == int(walk.snapshot.version())

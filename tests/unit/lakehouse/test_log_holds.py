"""A model of a process over a Delta log: whatever it reads is there, in any order of commits, checkpoints and cleaning."""

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakehouse.log_holds import LogHolds
from lakehouse.maintenance_log import clean_log

HOUR = 3600.0
START = 1_700_000_000.0


@dataclass
class Snapshot:
    """What Delta keeps of one version: the checkpoint that its state is computed from."""

    beginning: int
    version: int


@dataclass
class Process:
    """A JVM with its installed snapshot, transactions under way and plans, on a log of empty commits."""

    root: Path
    readers_seconds: float
    at: float = START
    installed: Snapshot = field(default_factory=lambda: Snapshot(-1, -1))
    begun: list[Snapshot] = field(default_factory=list)
    plans: list[tuple[Snapshot, float]] = field(default_factory=list)
    seen: int = -1
    newest: int = -1
    deleted: int = 0

    def __post_init__(self) -> None:
        self.log = self.root / "readings" / "_delta_log"
        self.log.mkdir(parents=True)
        self.holds = LogHolds(clock=lambda: self.at)
        self.holds.watch(self)
        self.commit()

    def __hash__(self) -> int:
        return id(self)

    def beginning(self) -> int:
        return self.installed.beginning

    def _write(self, name: str, text: str = "") -> None:
        (self.log / name).write_text(text, "utf-8")
        os.utime(self.log / name, (self.at, self.at))

    def commit(self) -> None:
        """Of a transaction that began earlier where one did: the snapshot after it goes on from that one's checkpoint."""
        base = self.begun.pop(0) if self.begun else None
        self.newest += 1
        mark = json.dumps({"commitInfo": {"userMetadata": json.dumps({"app": "a"})}})
        self._write(f"{self.newest:020d}.json", mark + "\n")
        self.installed = Snapshot(self.beginning() if base is None else base.beginning, self.newest)
        if base is not None:
            self.holds.end(base.beginning)

    def begin(self) -> None:
        self.holds.begin(self.beginning())
        self.begun.append(self.installed)

    def checkpoint(self) -> None:
        self._write(f"{self.newest:020d}.checkpoint.parquet")

    def adopt(self) -> None:
        if found := [int(path.name[:20]) for path in self.log.glob("*.checkpoint.parquet")]:
            self.installed = Snapshot(max(self.beginning(), *found), self.newest)

    def plan(self) -> None:
        """A query is planned now and read later, within the time that readers have."""
        if self.readers_seconds:
            self.holds.held(readers_seconds=self.readers_seconds)
            self.plans.append((self.installed, self.at))

    def derive(self) -> None:
        self.seen = self.newest

    def clean(self) -> None:
        held = set(self.holds.held(readers_seconds=self.readers_seconds))
        if self.seen >= 0:
            held.add(self.seen + 1)
        self.deleted += clean_log(str(self.root), "readings", keep_from=self.at - 24 * HOUR, now=self.at, held=held)

    def pass_minutes(self) -> None:
        self.at += 20 * 60

    def pass_day(self) -> None:
        self.at += 25 * HOUR

    def check(self) -> None:
        there = {path.name for path in self.log.iterdir()}
        self.plans = [(plan, at) for plan, at in self.plans if self.at - at < self.readers_seconds]
        for snapshot in (self.installed, *self.begun, *(plan for plan, _ in self.plans)):
            wanted = {f"{version:020d}.json" for version in range(snapshot.beginning + 1, snapshot.version + 1)}
            if snapshot.beginning >= 0:
                wanted.add(f"{snapshot.beginning:020d}.checkpoint.parquet")
            assert wanted <= there
        if self.seen >= 0:
            assert {f"{version:020d}.json" for version in range(self.seen + 1, self.newest + 1)} <= there


STEPS = ("commit", "begin", "checkpoint", "adopt", "plan", "derive", "clean", "pass_minutes", "pass_day")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(STEPS), max_size=60), st.sampled_from([0.0, HOUR]))
def test_what_a_process_reads_of_a_log_is_never_removed(steps: list[str], readers_seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        process = Process(Path(folder), readers_seconds)
        for step in steps:
            getattr(process, step)()
            process.check()


def test_an_idle_process_does_not_keep_an_old_log(tmp_path: Path) -> None:
    process = Process(tmp_path, HOUR)
    for _ in range(10):
        process.commit()
        process.checkpoint()
        process.adopt()
        process.pass_day()
    process.clean()
    assert process.deleted > 0
    assert len(list(process.log.iterdir())) <= 4


def test_a_checkpoint_that_was_the_newest_within_the_hour_stays_for_readers_of_other_processes(tmp_path: Path) -> None:
    process = Process(tmp_path, 0.0)
    for _ in range(5):
        process.commit()
        process.checkpoint()
        process.adopt()
        process.at += 60
    process.clean()
    assert len(list(process.log.glob("*.checkpoint.parquet"))) == 5
    process.at += HOUR
    process.clean()
    assert sorted(int(path.name[:20]) for path in process.log.glob("*.checkpoint.parquet")) == [1, 4, 5]


def test_an_open_transaction_holds_its_checkpoint_and_a_closed_one_does_not() -> None:
    holds = LogHolds(clock=lambda: 0.0)
    holds.begin(3)
    holds.begin(3)
    holds.end(3)
    assert holds.held(readers_seconds=-1.0) == {3}
    holds.end(3)
    assert holds.held(readers_seconds=-1.0) == frozenset()
    assert holds.held(readers_seconds=0.0) == frozenset()

"""Maintenance of the tables: finds due work of each table, does it in small pieces, and reports results and metrics.

A pass over a table without writes costs one look for a file. The chores' thread calls it, so it never runs at the same time as a
fold or a correction. Only the landing runs meanwhile, and it only adds files.

Copies that repairs set aside are deleted after the retention of dead letters, because their rows may be past retention.
"""

import logging
import shutil
import time
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from lakehouse.append import Appender, reopen_appender
from lakehouse.catalog import table_names
from lakehouse.clock import DeletionClock
from lakehouse.derived_tables import ALL_TABLES, DERIVED
from lakehouse.lake_settings import LakeSettings
from lakehouse.maintenance import ExpiryPlan, TableState, newest_landed, plan_expiry, plan_join, table_state
from lakehouse.maintenance_log import (
    KEPT_EVERY_SECONDS,
    adopt_checkpoint,
    clean_log,
    commit_time,
    last_checkpoint,
    write_checkpoint,
)
from lakehouse.maintenance_vacuum import sweep_files
from lakehouse.paths import is_local, to_path
from lakehouse.tables import READINGS, TABLES, Table
from lakehouse.writer_epoch import CommitConflictError
from monitoring.metrics.stream import StreamMetrics
from streaming.history.log_forgetting import erasure_waits
from streaming.lost_records import REPAIR_FOLDER
from streaming.maintain.maintenance_commits import drop_days, join_files
from streaming.maintain.retention_holds import LONGEST_SECONDS, needed_since, needed_versions
from streaming.writer_context import WriterContext

__all__ = [
    "MaintenanceGauges",
    "MaintenanceLimits",
    "TableMaintainer",
    "TableMaintenance",
    "drop_old_copies",
    "maintenance_report",
]

logger = logging.getLogger("tidegate.streaming.maintain")

PASS_SECONDS: Final = 3.0
"""Time after which a pass begins no further join: derived tables wait meanwhile, and they must stay fresh."""
CHECKPOINT_DUTY: Final = 100
"""Least time between two checkpoints, as a multiple of the time that the last one took."""
NEVER: Final = -1
_WAITS: Final = (
    "retention does not drop %d days of %s, %s to %s: the clock may be wrong, or they are a large part of the table. "
    "Run `tidegate maintain --drop-days --dry-run` to see them, and without --dry-run to drop them"
)
LATE: Final = timedelta(hours=1)
LATE_DERIVED: Final = timedelta(hours=26)
"""Times after midnight until which rows of the day before are expected; derivations also correct windows of that day."""


class MaintenanceGauges:
    """Gauges of the tables' sizes, and of how long tables wait for maintenance."""

    def __init__(self, metrics: StreamMetrics) -> None:
        self._metrics = metrics
        self._tables: set[str] = set()

    def table(self, state: TableState) -> None:
        """Set the gauges of a table to its present state."""
        metrics = self._metrics
        metrics.table_files.labels(state.name).set(state.file_count)
        metrics.table_small_files.labels(state.name).set(state.small_count)
        metrics.table_bytes.labels(state.name).set(state.bytes)
        metrics.table_snapshot_load.labels(state.name).set(state.load_seconds)

    def keep(self, names: Collection[str]) -> None:
        """Take the names of all tables. A new table waits from now on; the gauges of a removed table are removed."""
        metrics = self._metrics
        gauges = metrics.table_files, metrics.table_small_files, metrics.table_bytes, metrics.table_snapshot_load
        for name in self._tables.difference(names):
            for gauge in (*gauges, metrics.table_maintained, metrics.retention_waiting):
                with suppress(KeyError):
                    gauge.remove(name)
        for name in set(names) - self._tables:
            self.done(name)
        self._tables = set(names)

    def done(self, name: str) -> None:
        """Mark all due work of a table as done."""
        self._metrics.table_maintained.labels(name).set(time.time())


@dataclass(frozen=True, kw_only=True, slots=True)
class MaintenanceLimits:
    """Intervals of the maintenance, and how long it keeps what a reader may still need.

    Attributes:
        sweep_seconds: time between two looks for unneeded files.
        first_sweep_seconds: time from the start to the first look.
        checkpoint_commits: commits after which a checkpoint is written.
        held_commits: commits in the JVM's memory after which it forgets those before the checkpoint.
        readers_seconds: longest time for which a reader uses a snapshot after a newer one has replaced it.
        every_seconds: of older checkpoints, one per this time stays.
    """

    sweep_seconds: float = 3600.0
    first_sweep_seconds: float = 300.0
    checkpoint_commits: int = 200
    held_commits: int = 2000
    readers_seconds: float = 3600.0
    every_seconds: float = KEPT_EVERY_SECONDS


@dataclass(slots=True)
class TableMaintenance:
    """Work that was done on one table, or is due in a dry run."""

    table: str
    files_before: int = 0
    files_after: int = 0
    bytes: int = 0
    joined: int = 0
    into: int = 0
    dropped_days: list[str] = field(default_factory=list)
    waiting_days: list[str] = field(default_factory=list)
    checkpoint: int | None = None
    log_files_deleted: int = 0
    files_deleted: int = 0
    bytes_deleted: int = 0


@dataclass(slots=True)
class _Known:
    """Facts about a table that are kept between passes."""

    version: int = NEVER
    checkpoint_seconds: float = 0.0
    checkpoint_at: float = float("-inf")
    sweep_at: float = 0.0


class TableMaintainer:
    """Maintainer of all tables. Not thread-safe: the chores' thread calls it."""

    def __init__(
        self, writer: WriterContext, limits: MaintenanceLimits | None = None, clock: DeletionClock | None = None
    ) -> None:
        self._writer, self._root = writer, writer.root
        self._limits, self._clock = limits or MaintenanceLimits(), clock or DeletionClock()
        self._gauges = MaintenanceGauges(writer.metrics)
        self._appenders: dict[str, tuple[str, Appender]] = {}
        self._known: dict[str, _Known] = defaultdict(
            lambda: _Known(sweep_at=time.monotonic() + self._limits.first_sweep_seconds)
        )

    def run_pass(self) -> None:
        """Do the due work. If a table fails, the others are still maintained.

        Raises:
            CommitConflictError: this process may not write any more.
            Exception: the error of the first table that failed.
        """
        deadline, failures = time.monotonic() + PASS_SECONDS, []
        names = table_names(self._root)
        self._gauges.keep(names)
        # The landed tables come first: a pass is short, and the derived tables get few files.
        for name in sorted(names, key=lambda each: (each != READINGS.name, each not in TABLES)):
            try:
                self._pass(name, deadline)
            except CommitConflictError:
                raise
            except Exception as error:
                logger.debug("maintenance of %s failed", name, exc_info=error)
                failures.append(error)
                # The table may have been dropped and created again (by a stream), so the next pass begins without memory.
                self._known.pop(name, None)
                self._appenders.pop(name, None)
        if failures:
            raise failures[0]

    def run_all(
        self,
        name: str,
        *,
        full: bool,
        keep_hours: float | None = None,
        dry_run: bool = False,
        drop_days: bool = False,
    ) -> TableMaintenance:
        """Do all possible work on one table, or plan it in a dry run.

        Args:
            name: name of the table.
            full: also do what is due later.
            keep_hours: age in hours of files that are kept for old versions; None uses the setting.
            dry_run: change nothing.
            drop_days: also drop days that wait for a person.
        """
        state = table_state(self._root, name)
        kept = TableMaintenance(name, state.file_count, state.file_count, state.bytes)
        if dry_run:
            self._plan(state, kept, full=full)
        else:
            state = self._drop(state, kept, confirmed=drop_days)
            state, _ = self._join(state, kept, deadline=float("inf"), everything=full)
            self._checkpoint(state, kept, at_least=1 if full else self._limits.checkpoint_commits)
        self._sweep(name, kept, keep_hours=keep_hours, dry_run=dry_run)
        self._gauges.table(state)
        kept.files_after, kept.bytes = state.file_count, state.bytes
        return kept

    def _pass(self, name: str, deadline: float) -> None:
        known, kept, finished = self._known[name], TableMaintenance(name), True
        if self._has_new_commit(name, known.version):
            state, finished = self._join(table_state(self._root, name), kept, deadline=deadline)
            self._checkpoint(state, kept, at_least=self._limits.checkpoint_commits)
            self._gauges.table(state)
            known.version = state.version if finished else NEVER
        if time.monotonic() >= known.sweep_at:
            version = self._drop(table_state(self._root, name), kept).version
            known.version = version if finished else NEVER
            self._sweep(name, kept)
            known.sweep_at = time.monotonic() + self._limits.sweep_seconds
        if finished:
            self._gauges.done(name)
        else:
            # The next pass continues with it, also without a commit in between.
            logger.debug("no time left to join all waiting files of %s", name)
        if kept.joined or kept.dropped_days or kept.files_deleted or kept.log_files_deleted:
            logger.info("%s", kept)

    def _has_new_commit(self, name: str, seen: int) -> bool:
        """Return whether there is a new commit, or another table: one that does not have the version `seen`."""
        if seen < 0 or commit_time(self._root, name, seen) is None:
            return True
        return commit_time(self._root, name, seen + 1) is not None

    def _plan(self, state: TableState, kept: TableMaintenance, *, full: bool) -> None:
        """Plan the next join and the retention."""
        expiry = self._expiry(state)
        kept.dropped_days, kept.waiting_days = sorted(expiry.files), sorted(expiry.waiting)
        if _is_joined(state):
            join = plan_join(state, open_from=_open_from(state.name), everything=full)
            kept.joined, kept.into = (len(join.files), 1) if join else (0, 0)

    def _newest(self) -> datetime | None:
        """Return the time at which the newest reading landed, and set the metric of a machine clock that is behind it."""
        if READINGS.name not in table_names(self._root):
            return None
        landed = newest_landed(table_state(self._root, READINGS.name))
        self._writer.metrics.clock_behind.set(max(0.0, landed.timestamp() - self._clock.wall()) if landed else 0.0)
        return landed

    def _expiry(self, state: TableState) -> ExpiryPlan:
        lake = self._writer.lake
        wall = datetime.fromtimestamp(self._clock.wall(), UTC).date()
        keep_days, most = _keep_days(lake, state.name), lake.drop_limit_ratio
        landed = self._newest()
        newest = landed.date() if landed is not None else None
        return plan_expiry(state, keep_days=keep_days, wall=wall, newest=newest, most_ratio=most)

    def _drop(self, state: TableState, kept: TableMaintenance, *, confirmed: bool = False) -> TableState:
        """Drop the days that are past their retention; if a person has confirmed it, also those that wait for that."""
        keep_days, expiry = _keep_days(self._writer.lake, state.name), self._expiry(state)
        days = expiry.files | (expiry.waiting if confirmed else {})
        kept.waiting_days = sorted(expiry.waiting.keys() - days.keys())
        self._writer.metrics.retention_waiting.labels(state.name).set(len(kept.waiting_days))
        if kept.waiting_days:
            logger.warning(_WAITS, len(kept.waiting_days), state.name, kept.waiting_days[0], kept.waiting_days[-1])
        if not days:
            return state
        drop_days(self._appender(state), days, keep_days=keep_days)
        kept.dropped_days = sorted(days)
        return table_state(self._root, state.name)

    def _join(
        self, state: TableState, kept: TableMaintenance, *, deadline: float, everything: bool = False
    ) -> tuple[TableState, bool]:
        """Join waiting files until the deadline; return the table's new state, and whether no file waits any more."""
        if not _is_joined(state):
            return state, True
        kept.files_before = kept.files_before or state.file_count
        looked_at = kept.joined
        while True:
            join = plan_join(state, open_from=_open_from(state.name), everything=everything)
            if join is not None and time.monotonic() <= deadline:
                join_files(self._writer.spark, self._appender(state), join)
                kept.joined, kept.into = kept.joined + len(join.files), kept.into + 1
                state = state.without(join.files)
            elif kept.joined > looked_at:
                # The new file may be joined again, one tier higher.
                state, looked_at = table_state(self._root, state.name), kept.joined
            else:
                return state, join is None

    def _checkpoint(self, state: TableState, kept: TableMaintenance, *, at_least: int) -> None:
        known, began = self._known[state.name], time.monotonic()
        if state.version - last_checkpoint(self._root, state.name) < at_least:
            return
        if at_least > 1 and began - known.checkpoint_at < CHECKPOINT_DUTY * known.checkpoint_seconds:
            return
        kept.checkpoint = write_checkpoint(self._root, state.name)
        known.checkpoint_at, known.checkpoint_seconds = began, time.monotonic() - began
        appender = self._appender(state)
        if appender.held_commits() > self._limits.held_commits:
            adopt_checkpoint(appender, kept.checkpoint)

    def _sweep(
        self, name: str, kept: TableMaintenance, *, keep_hours: float | None = None, dry_run: bool = False
    ) -> None:
        """Delete log and data files that neither readers of old versions nor derivations of the table need."""
        hours = self._writer.lake.log_retention_hours if keep_hours is None else keep_hours
        newest = self._newest()
        if name == READINGS.name and not dry_run:
            drop_old_copies(self._root, now=self._clock.now(newest), keep_days=self._writer.lake.dead_letters_days)
        # Remains of an erasure wait for their date even if nothing lands any more.
        now = self._clock.now(None if erasure_waits(self._root, name) else newest)
        since = needed_since(self._root, name, default=now - hours * 3600, now=now)
        if not dry_run:
            kept.log_files_deleted = self._clean_log(name, since, now)
        swept = sweep_files(self._root, name, keep_hours=(now - since) / 3600, dry_run=dry_run, now=now)
        kept.files_deleted, kept.bytes_deleted = swept.files, swept.bytes

    def _clean_log(self, name: str, since: float, now: float) -> int:
        """Delete old log files that neither this process nor its derivations still read; return their number."""
        longest, readers = now - LONGEST_SECONDS, self._limits.readers_seconds
        needed = needed_versions(self._root, name, since=longest, readers_seconds=readers)
        newest = last_checkpoint(self._root, name)
        if any(version < newest for version in needed):
            # Adopt the new checkpoint before the old one may be deleted.
            adopt_checkpoint(self._appender(table_state(self._root, name)), newest)
            needed = needed_versions(self._root, name, since=longest, readers_seconds=readers)
        every = self._limits.every_seconds
        return clean_log(self._root, name, keep_from=since, now=now, held=needed, every_seconds=every)

    def _appender(self, state: TableState) -> Appender:
        """Return the appender of the table with this id: a table that was dropped and created again has a new id."""
        made = self._appenders.get(state.name)
        if made is None or made[0] != state.id:
            table = ALL_TABLES.get(state.name) or Table(state.name, "", (), (), state.partitioned_by)
            made = self._appenders[state.name] = (
                state.id,
                reopen_appender(self._writer.spark, self._root, table, state.id),
            )
        return made[1]


def _is_joined(state: TableState) -> bool:
    """Return True for all but the derived tables without days, which each pass over them writes as a whole."""
    return state.partitioned_by == ("date",) or (not state.partitioned_by and state.name not in DERIVED)


def _keep_days(lake: LakeSettings, name: str) -> int:
    refused = lake.dead_letters_days
    days = {"readings": lake.readings_days, "dead_letters": refused, "duplicates": refused}
    return days.get(name, lake.rollups_days if name in DERIVED else 0)


def _open_from(name: str) -> date:
    return (datetime.now(UTC) - (LATE_DERIVED if name in DERIVED else LATE)).date()


def maintenance_report(kept: TableMaintenance) -> dict[str, Any]:
    """Return the result as JSON-ready data."""
    return {name: getattr(kept, name) for name in TableMaintenance.__slots__}


def drop_old_copies(root: str, *, now: float, keep_days: int) -> int:
    """Delete copies under `_repair` that are older than `keep_days` (0 keeps all); return their number.

    `now` is in epoch seconds. Nothing happens on an object store.
    """
    if not is_local(root) or keep_days <= 0:
        return 0
    oldest, dropped = datetime.fromtimestamp(now, UTC) - timedelta(days=keep_days), 0
    for copy in (to_path(root) / REPAIR_FOLDER).glob("*T*"):
        try:
            made_at = datetime.strptime(copy.name, "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)
        except ValueError:
            continue  # not made by a repair
        if copy.is_dir() and made_at < oldest:
            shutil.rmtree(copy, ignore_errors=True)
            dropped += 1
    return dropped

"""Derivation of rollups_1m, rollups_5m, rollups_1h and rolling_15m from `readings`, with a pass every few seconds.

A pass reads only new commits, as partial aggregates by minute. It merges them with the rows of the touched windows, and
rewrites the files of those rows, with rows and cursor in one commit per table. Each table has its own cursor, so after a crash
between two tables each continues where it was.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from lakehouse.changes import DataFile, table_files
from lakehouse.frames import rows_of
from lakehouse.tables import READINGS
from streaming.derive.fold import minute_partials, spark_literal
from streaming.derive.reading_changes import ReadingChanges, changes_since, files_in_ranges, oldest_day
from streaming.derive.rollups_table import SMALL_ROWS, RollupPass, RollupTable
from streaming.derive.windows import HOUR_US, SHAPES, ChangedRange, Watermark
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["RollupDerivation"]

SECOND_US: Final = 1_000_000
_MARGIN_US: Final = HOUR_US
"""No window that holds a moment reaches further from it."""
_SUMMARY: Final = (
    "max(seen) AS seen",
    "max(received) AS received",
    "collect_set(CASE WHEN count > 0 THEN minute END) AS minutes",
)


class RollupDerivation:
    """The four tables as one derivation: they share what a pass reads."""

    name = "rollups"

    def __init__(self, writer: WriterContext, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives epoch seconds: what `updated_at` and the idle timeout go by."""
        self._writer, self._clock = writer, clock
        settings = writer.settings
        self._watermark = Watermark(
            int(settings.watermark_delay_seconds * SECOND_US),
            int(settings.watermark_idle_seconds * SECOND_US),
            self._now(),
        )
        writer.metrics.rollup_bound.set(settings.watermark_delay_seconds + settings.watermark_idle_seconds)
        self._tables: list[RollupTable] | None = None

    def run(self) -> bool:
        """Take in what was committed since; False where no table had to change."""
        try:
            if self._tables is None:
                self._tables = [RollupTable(self._writer, shape) for shape in SHAPES]
            tables = sorted(self._tables, key=_seen)
            # All tables have seen the same, unless the process died between two of their commits.
            changed = any([self._bring_up(list(group)) for _, group in groupby(tables, key=_seen)])
            self._tell(tables)
            return changed
        except BaseException:
            # The tables say what was committed and what was not.
            self._tables = None
            raise

    def _bring_up(self, tables: list[RollupTable]) -> bool:
        now, seen = self._now(), tables[0].seen
        news = changes_since(self._writer.root, READINGS.name, seen)
        if news is None:
            return any([self._close_idle(table, now) for table in tables])
        self._watermark.heard(now)
        with ExitStack() as held:
            common = self._common(news, tables[0].expired, now, held)
            newest = self._summarise(common)
            changed = [
                table.take(replace(common, watermark=self._watermark.after(table.watermark, newest, now)))
                for table in tables
            ]
        return any(changed)

    def _close_idle(self, table: RollupTable, now: int) -> bool:
        watermark = self._watermark.after(table.watermark, None, now)
        if table.seen is None or not table.closes(watermark):
            return False
        return table.take(RollupPass(table.seen, now, watermark, expired=table.expired))

    def _common(self, news: ReadingChanges, expired: int | None, now: int, held: ExitStack) -> RollupPass:
        """The pass as all tables share it: its partials are kept in memory until the block is left."""
        found = RollupPass(news.upto, now, None, ranges=news.ranges, whole=news.whole)
        found.expired = max((day for day in (expired, news.expired) if day is not None), default=None)
        found.small = news.rows <= SMALL_ROWS
        if news.files:
            found.folded = self._partials(news.files, held, small=found.small)
        if news.whole or news.ranges:
            files = table_files(self._writer.root, READINGS.name, version=news.upto)
            # Without the log it is unknown what retention deleted.
            found.kept_before = None if news.erased else oldest_day(files) if news.whole else found.expired
            around = (
                None
                if news.whole
                else [replace(r, low=r.low - _MARGIN_US, high=r.high + _MARGIN_US) for r in news.ranges]
            )
            files = files if around is None else files_in_ranges(files, around)
            found.small &= sum(file.rows or SMALL_ROWS for file in files) <= SMALL_ROWS
            found.recomputed = self._partials(files, held, small=found.small, ranges=around) if files else None
        return found

    def _partials(
        self, files: list[DataFile], held: ExitStack, *, small: bool, ranges: list[ChangedRange] | None = None
    ) -> "DataFrame":
        rows = rows_of(self._writer.spark, self._writer.root, READINGS, files)
        if ranges is not None:
            rows = rows.where(_within(ranges))
        settings = self._writer.settings
        found = minute_partials(
            rows,
            excluded=settings.rollup_exclude_devices,
            skew_us=int(settings.watermark_skew_seconds * SECOND_US),
            one_task=small,
            count_retained=settings.count_retained,
        ).persist()
        held.callback(found.unpersist)
        return found

    def _summarise(self, common: RollupPass) -> int | None:
        """Fill in which minutes the pass touches; returns how far its readings move the watermark."""
        partials = common.recomputed if common.whole else common.folded
        if partials is None:
            return None
        row = partials.agg(*map(F.expr, _SUMMARY)).collect()[0]
        common.minutes = row["minutes"]
        if row["received"] is not None:
            self._writer.metrics.rollup_newest.set(row["received"] / SECOND_US)
        seen: int | None = row["seen"]
        return seen

    def _tell(self, tables: list[RollupTable]) -> None:
        """Set the metric of the time up to which every rollup is final; in a quiet hour it goes on although no window is open."""
        now = self._now()
        reached = [self._watermark.after(table.watermark, None, now) for table in tables]
        if known := [each for each in reached if each is not None]:
            self._writer.metrics.rollup_watermark.set(min(known) / SECOND_US)

    def _now(self) -> int:
        return int(self._clock() * SECOND_US)


def _seen(table: RollupTable) -> int:
    return -1 if table.seen is None else table.seen


def _within(ranges: Sequence[ChangedRange]) -> str:
    """A condition on rows of `readings`."""
    at = "unix_micros(event_time)"
    conditions = [f"{at} BETWEEN {each.low}L AND {each.high}L" + _of(each) for each in ranges]
    return " OR ".join(f"({condition})" for condition in conditions) or "false"


def _of(changed: ChangedRange) -> str:
    name = "sha2(cast(device AS binary), 256)" if changed.hashed else "device"
    return "" if changed.device is None else f" AND {name} = {spark_literal(changed.device)}"

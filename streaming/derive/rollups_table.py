"""One rollup table: its progress, its open windows, and the commit of a pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pyspark.sql import functions as F

from lakehouse.append import Append, Appender
from lakehouse.changes import DataFile
from lakehouse.data_files import read_columns
from lakehouse.frames import rows_of
from lakehouse.paths import table_uri
from streaming.derive.cursor import encode_cursor, read_cursor
from streaming.derive.fold import (
    RECOMPUTED,
    WriteStamp,
    merge_partials,
    overlaps_changed_range,
    stored_partials,
    window_partials,
)
from streaming.derive.fold_files import LiveFiles, Span
from streaming.derive.windows import ChangedRange, WindowShape, floor_to_step
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["RollupPass", "RollupTable"]

SMALL_ROWS: Final = 200_000
"""Rows up to which one task does a table's part of a pass."""
MOST_SLICES: Final = 32
"""A pass that touches more of them writes whole days."""
UNCOMMITTED_VERSIONS: Final = 100
"""Versions without a change here after which the cursor is written by itself."""


@dataclass(slots=True)
class RollupPass:
    """Input of one pass for tables with the same cursor: partials by minute, and how far they go."""

    upto: int
    now: int
    watermark: int | None
    folded: "DataFrame | None" = None
    minutes: Sequence[int] = ()
    recomputed: "DataFrame | None" = None
    ranges: Sequence[ChangedRange] = ()
    whole: bool = False
    kept_before: int | None = None
    small: bool = True
    expired: int | None = None


@dataclass(slots=True)
class _Plan:
    """Slices that a pass touches (None: too many to list), and the files that hold any of their windows.

    `lone` where all of these rows are of the one slice, so that they are one file again.
    """

    slices: list[int] | None
    files: list[DataFile]
    lone: bool


class RollupTable:
    """One rollup table, opened from its newest commit. After a failure it is not usable; open it again."""

    def __init__(self, writer: WriterContext, shape: WindowShape) -> None:
        self.shape, self.name = shape, shape.table.name
        self._writer = writer
        self._files = LiveFiles(writer.root, self.name)
        self._appender = Appender(writer.spark, writer.root, shape.table)
        cursor = read_cursor(writer.root, self.name) or {}
        self.seen: int | None = cursor.get("readings")
        self.watermark: int | None = cursor.get("watermark")
        self.expired: int | None = cursor.get("expired")
        self._committed = self.seen
        self._open = self._read_open(self._files.after(self._edge()))

    def closes(self, watermark: int | None) -> bool:
        """Return whether a window that is not final would be under this watermark."""
        return watermark is not None and bool(self.shape.closed(self._open, watermark))

    def take(self, news: RollupPass) -> bool:
        """Bring the table up to the pass, in one commit; False where it changes nothing in it and none was made."""
        touches = news.minutes or news.ranges or news.whole or self.closes(news.watermark)
        if not touches:
            behind = news.upto - (self._committed if self._committed is not None else -1)
            if behind >= UNCOMMITTED_VERSIONS:
                with self._appender.begin() as append:
                    self._commit(append, news)
            self._reach(news)
            return False
        with self._writer.metrics.commit_duration.labels(self.name).time(), self._appender.begin() as append:
            # It begins on the newest version of this process: changes by compaction or an erasure in between are visible here.
            if append.version != self._files.version:
                self._files.refresh(append.version)
            plan = self._plan(news)
            if (rows := self._rows(news, plan)) is not None:
                append.write(rows)
            append.replace(plan.files)
            fresh = self._commit(append, news)
        self._settle(news, fresh)
        return True

    def _plan(self, news: RollupPass) -> _Plan:
        shape = self.shape
        if news.whole:
            return _Plan(None, self._files.all(), lone=False)
        slices = shape.slices(news.minutes)
        if news.watermark is not None:
            slices |= {floor_to_step(start, shape.slice) for start in shape.closed(self._open, news.watermark)}
        between = [shape.slices_between(each.low, each.high) for each in news.ranges]
        if len(slices) + sum(map(len, between)) > MOST_SLICES:
            spans = [_span(part, shape) for part in slices] + [(part.start, part.stop) for part in between]
            return _Plan(None, self._files.overlapping(spans), lone=False)
        slices = slices.union(*between)
        files = self._files.overlapping(_span(part, shape) for part in slices)
        within = self._files.spans(files)
        lone = len(slices) == 1 and all(
            floor_to_step(low, shape.slice) in slices and floor_to_step(high, shape.slice) in slices
            for low, high in within
        )
        return _Plan(sorted(slices), files, lone)

    def _rows(self, news: RollupPass, plan: _Plan) -> "DataFrame | None":
        parts = []
        if plan.files:
            parts.append(stored_partials(rows_of(self._writer.spark, self._writer.root, self.shape.table, plan.files)))
        if news.folded is not None and news.minutes:
            parts.append(window_partials(news.folded, self.shape))
        replaced = None
        if news.whole or news.ranges:
            replaced = F.lit(True) if news.whole else overlaps_changed_range(news.ranges, self.shape)
            if news.recomputed is not None:
                again = window_partials(news.recomputed, self.shape, RECOMPUTED)
                parts.append(again if news.whole else again.where(replaced))
        if not parts:
            return None
        rows: DataFrame = reduce(lambda one, other: one.unionAll(other), parts)
        count = sum(file.rows or SMALL_ROWS for file in plan.files)
        one_task = news.small and count <= SMALL_ROWS
        stamp = WriteStamp(news.watermark, news.now)
        found = merge_partials(
            rows.coalesce(1) if one_task else rows, self.shape, stamp, replaced=replaced, kept_before=news.kept_before
        )
        if plan.slices is None:
            return found.repartition("date")
        if plan.lone:
            return found.coalesce(1)
        return self._by_slice(found, plan.slices)

    def _by_slice(self, rows: "DataFrame", slices: Sequence[int]) -> "DataFrame":
        """A file for each slice, and one for what lies before, between and after them."""
        edges = sorted({edge for part in slices for edge in (part, part + self.shape.slice)})
        values = f"array({', '.join(f'{edge}L' for edge in edges)})"
        part = " + ".join(
            f"CAST(unix_micros(window_start) >= get({values}, {place} + revision - revision) AS INT)"
            for place in range(len(edges))
        )
        return rows.repartitionById(len(edges) + 1, F.expr(part))

    def _commit(self, append: Append, news: RollupPass) -> list[DataFile] | None:
        """Commit and return the written files; None if another commit came in between and the files are not known."""
        before = self._files.version
        seen = {"readings": news.upto, "watermark": news.watermark, "expired": news.expired}
        version = append.commit(encode_cursor(seen))
        self._committed = news.upto
        fresh = self._files.refresh(version)
        return fresh if version == before + 1 else None

    def _reach(self, news: RollupPass) -> None:
        self.seen, self.watermark, self.expired = news.upto, news.watermark, news.expired

    def _settle(self, news: RollupPass, fresh: list[DataFile] | None) -> None:
        """Take over what was committed, and count it."""
        self._reach(news)
        edge = self._edge()
        rows = sum(file.rows or 0 for file in fresh or ())
        if fresh is None or rows > SMALL_ROWS:
            self._writer.metrics.rollup_windows.labels(self.name).inc(rows)
            self._open = self._read_open(self._files.after(edge))
            return
        self._open = {start for start in self._open if start > edge}
        if not fresh:
            return
        import pyarrow.compute as pc

        found = self._read(fresh, ["window_start", "updated_at", "revision"])
        written = pc.equal(_micros(found["updated_at"]), news.now)
        corrected = pc.and_(written, pc.greater(found["revision"], 0))
        self._writer.metrics.rollup_windows.labels(self.name).inc(pc.sum(written).as_py() or 0)
        self._writer.metrics.rollup_corrections.labels(self.name).inc(pc.sum(corrected).as_py() or 0)
        starts = pc.unique(_micros(found["window_start"])).to_pylist()
        self._open |= {start for start in starts if start > edge}

    def _edge(self) -> int:
        """Windows that begin at or before it are final."""
        return -(2**62) if self.watermark is None else self.watermark - self.shape.length

    def _read_open(self, files: list[DataFile]) -> set[int]:
        import pyarrow.compute as pc

        if not files:
            return set()
        starts = pc.unique(_micros(self._read(files, ["window_start"])["window_start"])).to_pylist()
        return {start for start in starts if start > self._edge()}

    def _read(self, files: list[DataFile], columns: Sequence[str]) -> "pa.Table":
        return read_columns(table_uri(self._writer.root, self.name), [unquote(file.path) for file in files], columns)


def _span(start: int, shape: WindowShape) -> Span:
    return start, start + shape.slice - 1


def _micros(times: "pa.ChunkedArray") -> "pa.ChunkedArray":
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.cast(pc.cast(times, pa.timestamp("us", times.type.tz), safe=False), "int64")

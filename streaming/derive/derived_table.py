"""A derived table for its derivation: its live files, its cursor, and commits that change both at once."""

import json
from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from lakehouse.append import Append, Appender
from lakehouse.catalog import open_table
from lakehouse.changes import DataFile, LogExpired, newest_version, read_changes, table_files
from lakehouse.commit_metadata import metadata_of
from lakehouse.file_stats import STEP, as_utc
from lakehouse.tables import Table
from streaming.derive.cursor import HISTORY_LIMIT, encode_cursor, read_cursor
from streaming.derive.shared_arrivals import erased_device_hash
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DerivedTable"]


class DerivedTable:
    """Live files and cursor, kept from commit to commit. Not thread-safe.

    Attributes:
        files: the live files by path.
        cursor: the cursor of the newest own commit; None if there is none.
        erased: hashes of devices that others erased from this table since our newest commit.
    """

    def __init__(self, writer: WriterContext, table: Table) -> None:
        self.table = table
        self.files: dict[str, DataFile] = {}
        self.cursor: dict[str, Any] | None = None
        self.erased: set[str] = set()
        self._writer, self._version = writer, -1
        self._appender: Appender | None = None

    def refresh(self) -> None:
        """Take in foreign commits (compaction, erase); without one, this only looks for a file."""
        if self._version < 0:
            self.cursor = read_cursor(self._writer.root, self.table.name)
            self.erased = self._erased_lately()
            self._load()
            return
        try:
            others = list(read_changes(self._writer.root, self.table.name, after=self._version))
        except LogExpired:
            self._version = -1
            self.refresh()
            return
        for change in others:
            self.cursor = change.metadata.derived or self.cursor
        if others:
            self.erased |= {each for change in others if (each := erased_device_hash(change.metadata))}
            self._load()

    def idle(self) -> bool:
        """Nothing came that was not seen: what erased devices send from now on is new. Always False, for `run`."""
        self.erased = set()
        return False

    def replace(
        self,
        rows: "DataFrame | None",
        replaced: Iterable[DataFile],
        cursor: Callable[[Append], dict[str, Any]],
    ) -> None:
        """One commit: these rows instead of those files, and the cursor, which may look at what was written."""
        if self._appender is None:
            self._appender = Appender(self._writer.spark, self._writer.root, self.table)
        metrics, name = self._writer.metrics, self.table.name
        with metrics.commit_duration.labels(name).time(), self._appender.begin() as append:
            if rows is not None:
                append.write(rows)
            append.replace(replaced)
            seen = json.loads(json.dumps(cursor(append)))
            self._version = -1  # a failed commit may have happened all the same: then files and cursor are read again
            version = append.commit(encode_cursor(seen))
        for change in read_changes(self._writer.root, name, after=version - 1, upto=version):
            for file in change.removed:
                self.files.pop(file.path, None)
            self.files |= {file.path: file for file in change.added}
            metrics.rows.labels(name).inc(sum(file.rows or 0 for file in change.added))
        metrics.last_commit.labels(name).set_to_current_time()
        self._version, self.cursor, self.erased = version, seen, set()

    def holding(self, column: str, moments: Iterable[datetime]) -> list[DataFile]:
        """The live files that may hold rows with one of these values of a time column."""
        wanted = sorted(moments)
        days = {each.date() for each in wanted}
        return [file for file in self.files.values() if _may_hold(file, column, wanted, days)]

    def _erased_lately(self) -> set[str]:
        found = set()
        for commit in open_table(self._writer.root, self.table.name).history(HISTORY_LIMIT):
            metadata = metadata_of(commit)
            if erased := erased_device_hash(metadata):
                found.add(erased)
            elif metadata.derived is not None:
                break
        return found

    def _load(self) -> None:
        self._version = newest_version(self._writer.root, self.table.name)
        files = table_files(self._writer.root, self.table.name, version=self._version)
        self.files = {file.path: file for file in files}


def _may_hold(file: DataFile, column: str, wanted: list[datetime], days: set[date]) -> bool:
    day = file.partition.get("date")
    if day is not None and date.fromisoformat(day) not in days:
        return False
    low, high = as_utc(file.low.get(column)), as_utc(file.high.get(column))
    return low is None or high is None or any(low <= each <= high + STEP for each in wanted)

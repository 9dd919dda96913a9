"""Follower of a table, commit by commit and without a JVM: a reader apart from the writer, for the canary and the benchmarks.

It asks for the next file of the Delta log by name, so a look costs the same for a table of any size. Only appended files count;
a commit that only rearranges rows (dataChange false) has none.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from lakehouse.changes import DataFile, parse_change
from lakehouse.file_stats import may_hold_text
from lakehouse.paths import log_name

__all__ = ["FollowedCommit", "TableFollower"]

STALLED_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class FollowedCommit:
    """One version: when its log file was written and when this reader had its rows, both in epoch seconds.

    `rows` always has the columns that were asked for; a commit without new rows has columns of the type null.
    """

    version: int
    committed_at: float
    seen_at: float
    rows: pa.Table


class TableFollower:
    """New rows of one table, in the order of its versions.

    Args:
        root: path or URI of the tables.
        table: name of the table.
        columns: which columns to read.
        device: only rows of this device; files that cannot hold any are skipped by their statistics.
        from_start: begin at version 0 instead of behind the newest one.
    """

    def __init__(
        self, root: str, table: str, *, columns: Sequence[str], device: str | None = None, from_start: bool = False
    ) -> None:
        self._uri = f"{root.rstrip('/')}/{table}" if "://" in root else str(Path(root).absolute() / table)
        self._columns = list(columns)
        self._device = device
        self._next = 0 if from_start else self._newest() + 1
        self._files: pafs.FileSystem | None = None
        self._news_at = time.monotonic()

    @property
    def version(self) -> int:
        """The last version that was read; -1 where there was none yet."""
        return self._next - 1

    def poll(self) -> Iterator[FollowedCommit]:
        """The commits since the last call; none where there is nothing new or no table yet."""
        while (found := self._log_file(self._next)) is not None:
            committed_at, text = found
            rows = self._rows(text)
            yield FollowedCommit(self._next, committed_at, time.time(), rows)
            self._next += 1
            self._news_at = time.monotonic()
        if time.monotonic() - self._news_at > STALLED_SECONDS:
            self._skip_expired()

    def _newest(self) -> int:
        try:
            return DeltaTable(self._uri).version()
        except TableNotFoundError:
            return -1

    def _skip_expired(self) -> None:
        """Continue at the newest version if the next file is gone, as for a reader that slept longer than the log is kept."""
        self._news_at = time.monotonic()
        newest = self._newest()
        if newest >= self._next and self._log_file(self._next) is None:
            self._next = newest + 1

    def _log_file(self, version: int) -> tuple[float, str] | None:
        name = log_name(version)
        try:
            files = self._filesystem()
            info = files.get_file_info(name)
            if info.type != pafs.FileType.File:
                return None
            with files.open_input_stream(name) as stream:
                return info.mtime.timestamp(), stream.readall().decode("utf-8")
        except (FileNotFoundError, TableNotFoundError):
            return None

    def _filesystem(self) -> pafs.FileSystem:
        if self._files is None:
            self._files = pafs.PyFileSystem(DeltaStorageHandler(self._uri))
        return self._files

    def _rows(self, log_text: str) -> pa.Table:
        added = parse_change(self._next, log_text).added
        tables = [self._read(file.path) for file in added if self._may_hold_device(file)]
        return pa.concat_tables(tables) if tables else pa.table({name: pa.nulls(0) for name in self._columns})

    def _may_hold_device(self, file: DataFile) -> bool:
        return self._device is None or may_hold_text(file, "device", self._device)

    def _read(self, path: str) -> pa.Table:
        filters = [("device", "=", self._device)] if self._device is not None else None
        return pq.read_table(
            unquote(path),
            filesystem=self._filesystem(),
            columns=self._columns,
            filters=filters,
            partitioning=None,
            use_threads=False,
        )

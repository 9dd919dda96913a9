"""Find the table version that brought a Kafka record's rows, by the offsets in the commits' marks, not by files.

So the answer stays right when maintenance has joined the file with others since. A commit's time is its log entry's
(`commitInfo.timestamp`), taken some milliseconds before readers see it.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from lakehouse.changes import newest_version
from lakehouse.commit_metadata import metadata_text
from lakehouse.paths import log_name, table_uri
from streaming.landing_offsets import Mark, parse_mark

__all__ = ["CommitLookup", "TableLog"]

_BACK: Final = 3
"""Versions looked at before the first one that is young enough: two clocks of one machine may have been set between."""
_FORTH: Final = 500


@dataclass(frozen=True, slots=True)
class CommitLookup:
    """`version` and its time, or why they are not known."""

    version: int | None = None
    at: datetime | None = None
    why: str | None = None


class TableLog:
    """The log of one table, read entry by entry as it is asked for: twenty of a hundred thousand."""

    def __init__(self, root: str, table: str) -> None:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        self._newest, self.table = newest_version(root, table), table
        self._files: Any = PyFileSystem(DeltaStorageHandler(table_uri(root, table))) if self._newest >= 0 else None
        self._known: dict[int, tuple[int, Mark | None] | None] = {}

    def commit_of(self, topic: str, partition: int, offset: int, landed_at: datetime) -> CommitLookup:
        """The version whose batch held this record; `landed_at` is when that batch began."""
        if self._newest < 0:
            return CommitLookup(why=f"there is no table {self.table}")
        first = self._first_since(int(landed_at.timestamp() * 1000))
        for version in range(max(0, first - _BACK), min(first + _FORTH, self._newest) + 1):
            entry = self._entry(version)
            mark = entry[1] if entry is not None else None
            if entry is None or mark is None:
                continue
            begin = mark.starts.get(topic, {}).get(partition, 0)
            if begin <= offset < mark.ends.get(topic, {}).get(partition, 0):
                return CommitLookup(version, datetime.fromtimestamp(entry[0] / 1000, UTC))
            if begin > offset and version >= first:
                break
        return CommitLookup(why=self._why_not(first))

    def _why_not(self, first: int) -> str:
        if first > 0 and self._entry(first - 1) is None:
            return f"the log of {self.table} no longer reaches back to it (stream log retention)"
        return f"no commit in the log of {self.table} names its offset"

    def _first_since(self, at_ms: int) -> int:
        """The first version committed at or after; what the log no longer holds is older than all that it holds."""
        low, high = 0, self._newest + 1
        while low < high:
            middle = (low + high) // 2
            entry = self._entry(middle)
            if entry is None or entry[0] < at_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry(self, version: int) -> tuple[int, Mark | None] | None:
        if version not in self._known:
            self._known[version] = self._read(version)
        return self._known[version]

    def _read(self, version: int) -> tuple[int, Mark | None] | None:
        try:
            with self._files.open_input_stream(log_name(version)) as stream:
                lines = stream.readall().decode("utf-8").splitlines()
            info = next(entry["commitInfo"] for entry in map(json.loads, lines) if "commitInfo" in entry)
            return int(info["timestamp"]), parse_mark(metadata_text(info))
        except (FileNotFoundError, ValueError, KeyError, StopIteration):
            return None  # not there, or torn: `tidegate repair` is who says so

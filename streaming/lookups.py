"""Look-ups in `readings` by device, file by file over the files that may have its rows, within a bounded time.

A device that repeats a month must not slow down the others, so look-ups have a bounded share of the time.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from lakehouse.dataset import file_dataset
from lakehouse.file_stats import STEP, may_hold_any_text
from streaming.arrow_sql import ArrowSql

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

__all__ = ["AdmittedFile", "Lookup", "TimeShare", "TimedLookup", "admitted_files", "matching_rows"]

Lookup = Callable[["pa.Table"], Iterable["pa.Table"]]
"""Rows of a batch -> rows of the table, piece by piece, some of which equal them."""

LOOKUP_SHARE: Final = 0.2
"""Largest share of the time for look-ups in the table."""
LOOKUP_BURST_SECONDS: Final = 10.0
"""Time that look-ups may take at once after a time without any."""

_FAR: Final = datetime.max.replace(tzinfo=UTC)


class TimeShare:
    """A bounded share of the time, for one look-up after the other. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left_seconds, self._left_at = LOOKUP_BURST_SECONDS, clock()

    @contextmanager
    def spend(self) -> Iterator[Callable[[], bool]]:
        """Yield a function that says whether a look-up in this block may go on."""
        began = self._clock()
        allowed = min(LOOKUP_BURST_SECONDS, self._left_seconds + LOOKUP_SHARE * (began - self._left_at))
        try:
            yield lambda: allowed > 0 and self._clock() - began <= allowed
        finally:
            self._left_at = self._clock()
            self._left_seconds = allowed - (self._left_at - began)


class TimedLookup:
    """A look-up with its own share of the time. Not thread-safe."""

    def __init__(self, lookup: Lookup, sql: ArrowSql, clock: Callable[[], float] = time.monotonic) -> None:
        self._lookup, self._sql, self._share = lookup, sql, TimeShare(clock)

    def find(
        self, wanted: "pa.Table", keys: set[int], key: str, keyed: str, *, bounded: bool = True
    ) -> "list[pa.Table]":
        """Yield the table's matches for these rows, piece by piece, until all keys are found or the time is over.

        Args:
            wanted: the rows to look for.
            keys: theirs.
            key: the column of the keys.
            keyed: SQL that makes them of `rows`.
            bounded: False takes the time that it needs.
        """
        found, left = [], set(keys)
        for piece in (self._bounded if bounded else self._lookup)(wanted) if left else ():
            found.append(self._sql.query(keyed, rows=piece))
            left.difference_update(found[-1][key].to_pylist())
            if not left:
                break
        return found

    def _bounded(self, wanted: "pa.Table") -> "Iterator[pa.Table]":
        with self._share.spend() as may_go_on:
            if may_go_on():
                for piece in self._lookup(wanted):
                    yield piece
                    if not may_go_on():
                        break


@dataclass(frozen=True, slots=True)
class AdmittedFile:
    """A data file with its rows and the bounds of its times in the log, None where that has none."""

    path: str
    landed_at: datetime
    first: datetime | None
    last: datetime | None
    rows: int | None

    def between(self, times: list[datetime], kind: "pa.DataType") -> "ds.Expression | None":
        """The condition of rows with event times from the first to the last of these (sorted) here; None without any."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        if self.first is None or self.last is None:
            return None
        here = times[bisect_left(times, self.first) : bisect_right(times, self.last + STEP)]
        at = ds.field("event_time")
        return (at >= pa.scalar(here[0], kind)) & (at <= pa.scalar(here[-1], kind)) if here else None


def admitted_files(table: "DeltaTable", devices: list[str] | None) -> list[AdmittedFile]:
    """The data files whose rows may be of one of these devices (sorted; None: any), the newest first."""
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "min.device", "max.device", "max.landed_at", "min.event_time", "max.event_time", "num_records")
    columns = (actions[name].to_pylist() if name in actions.column_names else [None] * len(actions) for name in names)
    admitted = [
        AdmittedFile(unquote(path), landed or _FAR, first, last, rows)
        for path, low, high, landed, first, last, rows in zip(*columns, strict=True)
        if devices is None or may_hold_any_text(low, high, devices)
    ]
    return sorted(admitted, key=attrgetter("landed_at"), reverse=True)


def matching_rows(
    table: "DeltaTable", wanted: "Iterable[tuple[AdmittedFile, ds.Expression]]", columns: Sequence[str]
) -> "Iterator[pa.Table]":
    """The rows of each file that fulfil its condition."""
    for file, condition in wanted:
        # One that maintenance has just taken away is in the table under another name.
        with suppress(FileNotFoundError):
            rows = file_dataset(table, file.path)
            yield rows.to_table(list(columns), condition, batch_readahead=2, use_threads=False)

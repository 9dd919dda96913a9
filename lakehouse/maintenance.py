"""Plans that keep a table small and fast, made from its log alone: files to join, and days to drop.

A streamed table gets some files per second. They are joined in tiers, as in a log-structured store: many tiny files into a
small one, some small ones into a larger one, so that each row is rewritten at most three or four times. After the end of a day
its remaining files are joined too. Joined files are sorted by device, so that a reader of one device skips most of each file;
within a device the rows keep the order of arrival.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from lakehouse.catalog import open_table
from lakehouse.changes import DataFile
from lakehouse.clock import newest_plausible, today_of
from lakehouse.derived_tables import ROLLUPS
from lakehouse.tables import DEAD_LETTERS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ExpiryPlan", "JoinPlan", "TableState", "newest_landed", "plan_expiry", "plan_join", "table_state"]

SMALL_BYTES: Final = 32 * 1024**2
"""A file below this is joined with others once its day is over."""
TARGET_BYTES: Final = 64 * 1024**2
"""Bytes that are joined in one go: some seconds of work, since derived tables wait for it."""
TARGET_FILES: Final = 500
TIERS: Final = ((256 * 1024, 60), (2 * 1024**2, 8), (16 * 1024**2, 8))
"""(bytes, files): this many files below a size, and not below the size before, are joined while their day goes on."""

SPARED_DAYS: Final = 7
"""Number of newest days with data that retention never drops, however old they are by the clock."""
MOST_RATIO: Final = 0.2
"""Days that hold more than this part of a table are dropped by a person only; see lake.drop_limit_ratio."""

_WINDOWS: Final = ("device", "metric", "window_start")
ORDER: Final = {
    "readings": ("device", "partition", "offset"),
    "dead_letters": ("source_topic", "partition", "offset"),
    "duplicates": ("device", "partition", "offset"),
    "ledger": ("device", "minute"),
    **dict.fromkeys(ROLLUPS, _WINDOWS),
}
"""Columns that sort the rows of a joined file; rows of equal keys keep the order that they had in their file."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as in its log: `files` has path, size_bytes, num_records and partition.date, a row per file."""

    name: str
    id: str
    version: int
    partitioned_by: tuple[str, ...]
    files: "pa.Table"
    load_seconds: float

    @property
    def file_count(self) -> int:
        """Files that a reader of the whole table opens."""
        return int(self.files.num_rows)

    @property
    def small_count(self) -> int:
        """Files that wait to be joined."""
        import pyarrow.compute as pc

        return int(pc.sum(pc.less(self.files["size_bytes"], SMALL_BYTES)).as_py() or 0)

    @property
    def bytes(self) -> int:
        """Size of all files."""
        import pyarrow.compute as pc

        return int(pc.sum(self.files["size_bytes"]).as_py() or 0)

    def without(self, files: Iterable[DataFile]) -> "TableState":
        """Return the state without these files; files that replace them are not looked for."""
        import pyarrow as pa
        import pyarrow.compute as pc

        gone = pa.array([file.path for file in files], pa.string())
        kept = pc.invert(pc.is_in(pc.cast(self.files["path"], pa.string()), value_set=gone))
        return replace(self, files=self.files.filter(kept))


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """Files of one day to be written as one; `day` is None where the table has no days."""

    day: str | None
    files: tuple[DataFile, ...]
    order: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Number of rows that the new file must hold."""
        return sum(file.rows or 0 for file in self.files)


def table_state(root: str, name: str) -> TableState:
    """Open a table and look; this is what every reader pays first, so the time it takes is worth knowing.

    Raises:
        UnavailableError: there is no such table.
    """
    import pyarrow as pa

    began = time.perf_counter()
    table = open_table(root, name)
    seconds = time.perf_counter() - began
    files = pa.table(table.get_add_actions(flatten=True))
    wanted = ["path", "size_bytes", "modification_time", "num_records", "partition.date", "max.landed_at"]
    files = files.select([n for n in wanted if n in files.column_names])
    metadata = table.metadata()
    return TableState(name, str(metadata.id), table.version(), tuple(metadata.partition_columns), files, seconds)


def plan_join(state: TableState, *, open_from: date, everything: bool = False) -> JoinPlan | None:
    """The files that are joined next; None where none are.

    Args:
        state: of a table that is partitioned by date, or not at all.
        open_from: days from this one on still get rows: only the tiers are joined.
        everything: join all small files, those of open days too.
    """
    days = _small_days(state)
    for day in sorted(days, key=lambda d: -len(days[d])):
        files = days[day]
        over = everything or (day is not None and date.fromisoformat(day) < open_from)
        chosen = _bounded(files) if over and len(files) > 1 else [] if over else _full_tier(files)
        if len(chosen) > 1:
            return JoinPlan(day, tuple(map(_data_file, chosen)), ORDER.get(state.name, ()))
    return None


def _small_days(state: TableState) -> dict[str | None, list[dict[str, Any]]]:
    """The small files of each day."""
    import pyarrow.compute as pc

    small = state.files.filter(pc.less(state.files["size_bytes"], SMALL_BYTES))
    days: dict[str | None, list[dict[str, Any]]] = {}
    for file in small.to_pylist():
        day = file.get("partition.date")
        days.setdefault(None if day is None else str(day), []).append(file)
    return days


def _full_tier(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The files of the smallest tier that holds as many as it may."""
    low = 0
    for high, limit in TIERS:
        tier = [file for file in files if low <= file["size_bytes"] < high]
        if len(tier) >= limit:
            return _bounded(tier)
        low = high
    return []


def _bounded(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return as many files as one go may take: the smallest first, so that a joined file is not joined again with each few."""
    chosen: list[dict[str, Any]] = []
    total = 0
    for file in sorted(
        files, key=lambda f: (f["size_bytes"] >= TIERS[0][0], f["size_bytes"] >= TIERS[1][0], f["path"])
    ):
        if len(chosen) == TARGET_FILES or (len(chosen) > 1 and total + file["size_bytes"] > TARGET_BYTES):
            break
        chosen.append(file)
        total += file["size_bytes"]
    return chosen


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """Files by day: `files` may go, `waiting` are older than is kept by the machine's clock and wait for a person."""

    files: dict[str, list[DataFile]]
    waiting: dict[str, list[DataFile]]


def _landed_days(state: TableState) -> set[date]:
    """Return the days on which rows of the table landed; if its log does not say, the days of its rows."""
    if "max.landed_at" in state.files.column_names:
        return {at.date() for at in state.files["max.landed_at"].to_pylist() if at is not None}
    if "partition.date" not in state.files.column_names:
        return set()
    return {day for day in state.files["partition.date"].to_pylist() if day is not None}


def newest_landed(state: TableState) -> datetime | None:
    """Return the time at which the newest row of the table landed, of the plausible days; None if its log does not say."""
    if "max.landed_at" not in state.files.column_names:
        return None
    newest = newest_plausible(_landed_days(state))
    landed = (at for at in state.files["max.landed_at"].to_pylist() if at is not None)
    return max((at for at in landed if newest is not None and at.date() <= newest), default=None)


def plan_expiry(
    state: TableState, *, keep_days: int, wall: date, newest: date | None, most_ratio: float = MOST_RATIO
) -> ExpiryPlan:
    """Return what retention may drop by itself, and what it must not drop without a person.

    Args:
        state: of the table.
        keep_days: 0 keeps all.
        wall: the machine's day.
        newest: the newest plausible day of rows that landed, in this table or in those that it is derived from.
        most_ratio: of the table's bytes; several days that hold more than this wait for a person.
    """
    believed = max((day for day in (newest, newest_plausible(_landed_days(state))) if day is not None), default=None)
    days = {day for day in _days(state) if day is not None}
    # The newest days that hold data stay, whatever the clock says.
    spared = {str(day) for day in sorted(days)[-min(SPARED_DAYS, keep_days or 1) :]}
    wanted = {day: files for day, files in _older(state, keep_days, wall).items() if day not in spared}
    sure = _older(state, keep_days, today_of(wall, believed))
    expired = {day: files for day, files in wanted.items() if day in sure}
    share = sum(file.bytes for files in expired.values() for file in files) / (state.bytes or 1)
    if len(expired) > 1 and share > max(most_ratio, 2 / (keep_days + 1)):
        expired = {}
    return ExpiryPlan(expired, {day: files for day, files in wanted.items() if day not in expired})


def expired_files(state: TableState, *, keep_days: int, today: date | None = None) -> dict[str, list[DataFile]]:
    """The files of each day that is older than `keep_days` (0 keeps all), as far as the table's own rows confirm the day.

    A day is the gateway's clock's: what arrived lately under an old date (a clock that was behind, a redrive) stays. So do
    the newest days that hold data, and everything where a large part of the table would go: see `plan_expiry`.
    """
    return plan_expiry(state, keep_days=keep_days, wall=today or datetime.now(UTC).date(), newest=None).files


def _days(state: TableState) -> list[date | None]:
    return state.files["partition.date"].to_pylist() if "partition.date" in state.files.column_names else []


def _older(state: TableState, keep_days: int, today: date) -> dict[str, list[DataFile]]:
    import pyarrow.compute as pc

    if keep_days <= 0 or "partition.date" not in state.files.column_names:
        return {}
    first = today - timedelta(days=keep_days)
    old = state.files.filter(pc.less(state.files["partition.date"], first))
    days: dict[str, list[DataFile]] = {}
    for file in old.to_pylist():
        if not _arrived_since(file, state.name, first):
            days.setdefault(str(file["partition.date"]), []).append(_data_file(file))
    return days


def _arrived_since(file: dict[str, Any], name: str, first: date) -> bool:
    landed = file.get("max.landed_at")
    if landed is not None:
        return bool(landed.date() >= first)
    if name != DEAD_LETTERS.name:
        return False
    return datetime.fromtimestamp(file["modification_time"] / 1000, UTC).date() >= first


def _data_file(row: dict[str, Any]) -> DataFile:
    day = row.get("partition.date")
    return DataFile(row["path"], {} if day is None else {"date": str(day)}, row["num_records"], row["size_bytes"])

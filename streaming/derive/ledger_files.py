"""Days and minutes of files, and the division of the ledger's rows into files by minute."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from lakehouse.changes import DataFile
from lakehouse.file_stats import STEP, as_utc
from streaming.derive.shared_arrivals import TableChanges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["HOT_ROWS", "cuts_of", "day_of", "divide_rows", "minutes_in", "oldest_day", "unbalanced_files"]

HOT_ROWS: Final = 5_000
"""A file with more rows is divided: what is older than the minute before the newest is not written again."""
_WIDE: Final = timedelta(hours=1)


def day_of(file: DataFile) -> str:
    """The day whose rows it holds."""
    return str(file.partition.get("date"))


def oldest_day(news: TableChanges) -> str:
    """Return the oldest day of the landed files; empty if there are none."""
    return min((day_of(file) for file in news.files), default="")


def minutes_in(files: Iterable[DataFile], rows: "DataFrame") -> set[datetime]:
    """The minutes of receipt in these files: by their statistics, or by the rows where one file spans hours."""
    found: set[datetime] = set()
    for file in files:
        low, high = as_utc(file.low.get("received_at")), as_utc(file.high.get("received_at"))
        if low is None or high is None or high - low > _WIDE:
            return _exact_minutes(rows)
        minute = _floor(low)
        while minute <= high + STEP:
            found.add(minute)
            minute += timedelta(minutes=1)
    return found


def unbalanced_files(files: Iterable[DataFile]) -> list[DataFile]:
    """The files with a row of which `unaccounted` is not 0, by their statistics."""
    return [file for file in files if file.low.get("unaccounted") or file.high.get("unaccounted")]


def _exact_minutes(rows: "DataFrame") -> set[datetime]:
    found = rows.selectExpr("unix_seconds(date_trunc('minute', received_at)) AS minute").distinct().collect()
    return {datetime.fromtimestamp(row[0], UTC) for row in found}


def _floor(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def cuts_of(replaced: list[DataFile], minutes: set[datetime]) -> list[datetime]:
    """Return the minutes that divide the rows into files: as before, and before the newest minutes once there are many."""
    lows = {low for file in replaced if (low := as_utc(file.low.get("minute"))) is not None}
    cuts = lows - {min(lows)} if lows else set()
    newest = max(
        replaced, key=lambda file: as_utc(file.high.get("minute")) or datetime.min.replace(tzinfo=UTC), default=None
    )
    if newest is not None and (newest.rows or 0) > HOT_ROWS and minutes:
        cuts.add(max(minutes) - timedelta(minutes=1))
    return sorted(cuts) if len(cuts) < 20 else []


def divide_rows(rows: "DataFrame", cuts: list[datetime]) -> "DataFrame":
    """The rows, one partition (so one file) between each two cuts."""
    from pyspark.sql import functions as F

    if not cuts:
        return rows.coalesce(1)
    bounds = [None, *cuts, None]
    pieces = []
    for low, high in pairwise(bounds):
        piece = rows if low is None else rows.where(F.col("minute") >= F.lit(low))
        pieces.append((piece if high is None else piece.where(F.col("minute") < F.lit(high))).coalesce(1))
    together = pieces[0]
    for piece in pieces[1:]:
        together = together.unionAll(piece)
    return together

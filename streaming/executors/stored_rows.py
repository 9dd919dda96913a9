"""Search of executors in `readings` for the rows that copies are compared with: file by file, the newest first.

The newest rows are always searched, as the driver always has them in memory: a gateway that sends a window again repeats these.
A device that repeats a month must not slow down the others, so a search in older files has a bounded share of the time
(streaming/lookups.py).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from lakehouse.frames import data_rows
from lakehouse.paths import table_uri
from lakehouse.tables import READINGS
from streaming.duplicate_comparator import REMEMBERED_ROWS
from streaming.lookups import AdmittedFile, TimeShare, admitted_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["StoredRows"]

NAMED_DEVICES: Final = 1000
"""Most devices whose names come to the driver, to leave out files; copies of more devices are searched in all files."""
FIRST_FILES: Final = 64
"""Files of the first step in the older ones; each further step has twice as many."""


class StoredRows:
    """Search in the table. Not thread-safe: the landing's batch calls it."""

    def __init__(self, spark: "SparkSession", root: str) -> None:
        self._spark, self._uri = spark, table_uri(root, READINGS.name)
        self._share = TimeShare()

    def find(
        self, wanted: "DataFrame", keys: Sequence[str], columns: Sequence[str], *, bounded: bool = True
    ) -> "list[DataFrame]":
        """Return rows of the table whose keys are wanted, as frames that the caller must unpersist.

        Args:
            wanted: rows with the keys, kept by the executors.
            keys: names of columns, `device` among them; none of them null.
            columns: columns of the result, the keys among them.
            bounded: False takes the time that it needs.
        """
        found: list[DataFrame] = []
        asked = wanted.select(*keys).distinct()
        if not asked.head(1):
            return found
        names = [row["device"] for row in wanted.select("device").distinct().limit(NAMED_DEVICES + 1).collect()]
        devices = sorted(names) if len(names) <= NAMED_DEVICES else None
        newest, older = self._paths(devices)
        left = self._search(newest, devices, asked, keys, columns, found)
        size = FIRST_FILES
        with self._share.spend() as may_go_on:
            while left is not None and older and (may_go_on() or not bounded):
                here, older, size = older[:size], older[size:], 2 * size
                left = self._search(here, devices, left, keys, columns, found)
        return found

    def _search(
        self, paths: list[str], devices: list[str] | None, left: "DataFrame", keys: Sequence[str], columns: Sequence[str],
        found: "list[DataFrame]",
    ) -> "DataFrame | None":  # fmt: skip
        """Add the rows of these files to `found`; return the keys that are left, None if there are none."""
        rows = data_rows(self._spark, self._uri, READINGS, paths)
        rows = rows.where(F.col("device").isin(devices)) if devices is not None else rows
        piece = rows.select(*columns).join(left, list(keys), "left_semi").persist()
        if not piece.head(1):
            piece.unpersist()
            return left
        found.append(piece)
        left = left.join(piece.select(*keys), list(keys), "left_anti")
        return left if left.head(1) else None

    def _paths(self, devices: list[str] | None) -> tuple[list[str], list[str]]:
        """Return the files with the newest rows (REMEMBERED_ROWS, or one file), and the older ones."""
        from deltalake import DeltaTable

        files = admitted_files(DeltaTable(self._uri), devices)
        count = _count_newest(files)
        paths = [file.path for file in files]
        return paths[:count], paths[count:]


def _count_newest(files: Sequence[AdmittedFile]) -> int:
    count = rows = 0
    for file in files:
        rows += file.rows or 0
        if count and rows > REMEMBERED_ROWS:
            break
        count += 1
    return count

"""Check of a batch for copies in the driver: key columns are read back and compared in DuckDB, which costs a small batch least.

The identities of a batch are learned while the Spark job of the next batch runs.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from ingest.contract.reasons import Reason
from lakehouse.append import Append
from lakehouse.data_files import read_columns
from lakehouse.frames import local_rows
from streaming.copy_check import Refusals
from streaming.decode import CONFLICT_SCHEMA
from streaming.dedup_index import KEY_COLUMNS, DedupIndex
from streaming.duplicate_comparator import COMPARED_COLUMNS, DuplicateComparator, load_recent, make_lookup
from streaming.duplicate_rows import COPIED_COLUMNS, drop_landed_records, duplicate_rows, read_counted_duplicates
from streaming.landing_progress import LandingProgress
from streaming.replay_filter import REPLAY_COLUMNS, ReplayFilter, make_replay_lookup

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DriverCheck"]

_READ_BACK: Final = (*KEY_COLUMNS, "event_time", "received_at", "kafka_time", "gateway", "retained")


class DriverCheck:
    """The driver's way of `CopyCheck`."""

    def __init__(self, spark: "SparkSession", root: str, uri: str, seen: DedupIndex, progress: LandingProgress) -> None:
        """`uri` is the place of `readings`, `seen` the stored identities; `progress` gets latencies and their number."""
        self.spark, self._root, self._uri = spark, root, uri
        self._seen, self._progress = seen, progress
        self._worker = ThreadPoolExecutor(1, "seen")
        self.contents, self._replays = DuplicateComparator(make_lookup(root)), ReplayFilter(make_replay_lookup(root))
        self._learning: Future[None] | None = self._worker.submit(load_recent, root, self.contents)

    def check(self, append: Append, counted: Sequence[tuple[int, int]]) -> "DriverBatch":
        """Find the copies in what was written; see `CopyCheck`."""
        written = append.read_back(_READ_BACK)
        records = _record_total(written)
        self._await_learning()
        return DriverBatch(self, append, written, self._copies(append, written, counted), records)

    def close(self, landed_at: datetime | None) -> None:
        """Save the identities."""
        self._await_learning()
        self._worker.shutdown()
        self._seen.close(landed_at)

    def learn(self, written: "pa.Table", paths: Sequence[str], began_at: datetime, committed_at: float) -> None:
        """Learn committed rows on the worker's thread."""
        self._learning = self._worker.submit(self._learn, written, paths, began_at, committed_at)

    def _copies(self, append: Append, written: "pa.Table", ends: Sequence[tuple[int, int]]) -> "pa.Table":
        """Return the written rows that are stored already: row, partition, offset, position, replayed."""
        import pyarrow.compute as pc

        copies = self._seen.duplicates(written.select(KEY_COLUMNS))
        if not ends and not pc.any(written["retained"]).as_py():
            return copies
        counted = read_counted_duplicates(self._root, written, ends) if ends else None
        return self._replays.add_stored(append.read_back(REPLAY_COLUMNS), copies, counted)

    def _learn(self, written: "pa.Table", paths: Sequence[str], began_at: datetime, committed_at: float) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._progress.latency(written, began_at=began_at.timestamp(), committed_at=committed_at)
        newest = pc.max(written["kafka_time"].cast(pa.timestamp("us", tz="UTC"))).as_py()
        self._seen.add(written.select(KEY_COLUMNS), began_at, at=newest)
        self._progress.identities(self._seen.figures)
        self.contents.remember(read_columns(self._uri, paths, COMPARED_COLUMNS))

    def _await_learning(self) -> None:
        if self._learning is not None:
            self._learning.result()
            self._learning = None


@dataclass(slots=True)
class DriverBatch:
    """A batch as `CheckedBatch`; `written` and `found` are the columns of its rows and of its copies."""

    way: DriverCheck
    append: Append
    written: "pa.Table"
    found: "pa.Table"
    records: int
    rows: int = field(init=False)
    copies: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows, self.copies = self.written.num_rows, self.found.num_rows

    def refusals(self) -> Refusals:
        """Compare the copies with the stored rows."""
        refused, unchecked = self.way.contents.conflicts(self.append.read_back(COMPARED_COLUMNS), self.found)
        conflicts = sum(each["reason"] == Reason.CONFLICTING_DUPLICATE for each in refused)
        rows = [tuple(each.values()) for each in refused]
        letters = F.broadcast(local_rows(self.way.spark, rows, CONFLICT_SCHEMA)) if rows else None
        return Refusals(letters, conflicts, unchecked)

    def duplicate_rows(
        self, began_at: datetime, topic: str, landed: Sequence[tuple[str, int, int]]
    ) -> "tuple[DataFrame, int] | None":
        """Return rows of `duplicates` and their number; None if there are none."""
        rows = duplicate_rows(self.append.read_back(COPIED_COLUMNS), self.found, began_at)
        rows = drop_landed_records(rows, topic, landed)
        return (self.way.spark.createDataFrame(rows), rows.num_rows) if rows.num_rows else None

    def without_copies(self, rows: "DataFrame") -> "DataFrame":
        """Return the rows without the copies."""
        drop = self.way.spark.createDataFrame(self.found.select(["partition", "offset", "position"]))
        return rows.join(F.broadcast(drop), ["partition", "offset", "position"], "left_anti").drop("position")

    def rewritten(self) -> None:
        """Read the key columns again: the append holds the rows without the copies now."""
        self.written = self.append.read_back(_READ_BACK)
        self.rows = self.written.num_rows

    def committed(self, paths: Sequence[str], began_at: datetime, committed_at: float) -> None:
        """Learn the rows while the next batch runs."""
        self.way.learn(self.written, paths, began_at, committed_at)

    def close(self) -> None:
        """Nothing is left."""


def _record_total(written: "pa.Table") -> int:
    """Return the number of Kafka records that these rows come from."""
    counted: Any = written.group_by(["partition", "offset"]).aggregate([])
    return int(counted.num_rows)

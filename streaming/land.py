"""Landing of one micro-batch, exactly once: `readings`, then `dead_letters` if the batch has any.

A batch is written, read back and committed (lakehouse/append.py). Two filters keep every row from being stored twice:
- by origin: the newest commit of each table names the Kafka offsets at which it ended. If a batch begins before them (after a
  crash, or with a new checkpoint), the records before them are left out, table by table;
- by identity: rows whose (message_id, device, metric, index) is stored are left out, because the gateway received a message
  twice; and rows of a retained message whose topic and payload are stored, because the broker replays it
  (streaming/replay_filter.py).

Records that lose readings as copies are rows of `duplicates`. A copy with other content than the stored row, or one that cannot
be compared, is a dead letter. Only the batch that drops the copies knows this, so it commits `dead_letters` and `duplicates`
before `readings`. After a kill in between, it runs again and drops the same copies. Its dead letters are already committed and
left out by their origin, so what the first run rejected stays rejected.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse import tables
from lakehouse.append import Append, Appender
from streaming.batches import BatchRunner
from streaming.checkpoint import Checkpoint
from streaming.commit_marker import Marker
from streaming.copy_check import CheckedBatch, CopyCheck
from streaming.decode import (
    IS_READING,
    LANDED_COLUMNS,
    conflict_rows,
    dead_letter_rows,
    landed_at,
    landed_at_sql,
    reading_rows,
)
from streaming.kafka_source import LandedTopics
from streaming.landing_offsets import Mark, Offsets, behind, beyond, has_records, largest_offsets, record_count
from streaming.landing_progress import LandingProgress

__all__ = ["Landing"]

SMALL_BATCH_RECORDS: Final = 50_000
"""Up to this number of records one task writes one file: a second task would cost a small batch more time than it saves."""


class Projection:
    """`where`, `selectExpr` and `coalesce` on a frame, with the same columns in every batch except the last one.

    The columns go to the JVM once. PySpark would pass each column with several calls in every batch, and analyse the whole plan
    again after each step, which costs a small batch more time than its rows. Not thread-safe: only the landing's batch calls it.
    """

    def __init__(self, spark: SparkSession, condition: str, columns: Sequence[str]) -> None:
        """Select the rows that meet the condition, these columns (SQL expressions), and one more that changes."""
        jvm: Any = spark._jvm
        self._condition = condition
        self._words: Any = jvm.java.util.ArrayList()
        for column in (*columns, ""):
            self._words.add(column)
        self._place = len(columns)
        self._to_seq: Any = jvm.org.apache.spark.api.python.PythonUtils.toSeq

    def __call__(self, rows: DataFrame, changing: str, *, partitions: int) -> DataFrame:
        """Return the selected rows with the SQL expression `changing` as last column, in at most this many whole partitions."""
        self._words.set(self._place, changing)
        selected: Any = rows._jdf
        selected = selected.filter(self._condition).selectExpr(self._to_seq(self._words))
        return DataFrame(selected.coalesce(partitions), rows.sparkSession)


@dataclass(frozen=True, slots=True)
class _Batch:
    number: int
    records: DataFrame
    starts: Offsets
    ends: Offsets
    began_at: datetime

    def count(self, topic: str) -> int:
        return record_count(self.starts, self.ends, topic)


class Landing(BatchRunner):
    """Landing of the query `land`."""

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        checkpoint: Checkpoint,
        check: CopyCheck,
        progress: LandingProgress,
        mirror: Callable[[Offsets], object],
        marks: dict[str, Mark | None],
        topics: LandedTopics,
        *,
        marker: Marker,
        fsync: bool,
    ) -> None:
        """Create a landing that continues from the state of the tables.

        Args:
            spark: the session.
            root: root of the tables.
            checkpoint: checkpoint of the query.
            check: finds the copies in a batch.
            progress: receives the events of the landing.
            mirror: receives the stored offsets after each batch.
            marks: the newest mark of each table.
            topics: names of the landed topics.
            marker: makes the marks of the next commits.
            fsync: True if each commit must be on the disk when it returns.
        """
        super().__init__()
        self.app = ""
        self._checkpoint, self._check, self._progress, self._mirror = checkpoint, check, progress, mirror
        self._readings = Appender(spark, root, tables.READINGS, fsync=fsync)
        self._dead_letters = Appender(spark, root, tables.DEAD_LETTERS, fsync=fsync)
        self._duplicates = Appender(spark, root, tables.DUPLICATES, fsync=fsync)
        self._done = {name: _ends(mark) for name, mark in marks.items()}
        self._marked = largest_offsets(*(mark.ends for mark in marks.values() if mark is not None))
        self._position: Offsets | None = None
        self._spark, self._topics = spark, topics
        self._rows = Projection(spark, IS_READING, LANDED_COLUMNS)
        self._landed_at: datetime | None = None
        self._marker, self._promised = marker, False

    def close(self) -> None:
        """Save what the next start needs; call it when the query has ended."""
        self._marker.close()
        self._check.close(self._landed_at)

    def _write(self, rows: DataFrame, number: int) -> None:
        began = time.perf_counter()
        starts = self._checkpoint.starts(number) if self._position is None else self._position
        ends = self._checkpoint.ends(number)
        batch = _Batch(number, rows, starts, ends, datetime.now(UTC))
        self._marker.begin(starts, ends)
        with _held(rows, hold=bool(batch.count(self._topics.dead_letters))):
            self._land_tables(batch)
        # Each batch with records leaves a mark. So a checkpoint past every mark shows that commits were lost.
        if has_records(self._marked, ends):
            with self._readings.begin() as append:
                self._commit(append, batch, "readings", 0, time.perf_counter())
        self._position = ends
        self._progress.batch(number, time.perf_counter() - began)
        self._mirror(ends)

    def _land_tables(self, batch: _Batch) -> None:
        poison = done = False
        if batch.count(self._topics.readings):
            landed, done = self._land_readings(batch)
            poison = landed < batch.count(self._topics.readings)
        if not done and (poison or batch.count(self._topics.dead_letters)):
            self._land_dead_letters(batch, None)

    def _land_readings(self, batch: _Batch) -> tuple[int, bool]:
        """Land the readings; return the number of their records, and whether the batch's dead letters are committed already."""
        began = time.perf_counter()
        unlanded, files = self._unlanded(batch, "readings"), self._file_count(batch)
        with self._readings.begin() as append:
            append.write(self._rows(unlanded, f"{landed_at_sql(batch.began_at)} AS landed_at", partitions=files))
            self._progress.lap("write", began)
            if not append.paths:
                return 0, False
            checked = self._check.check(append, self._counted_ends(batch))
            self._progress.lap("check")
            try:
                refused = self._land_checked(batch, append, checked, unlanded, files, began)
            finally:
                checked.close()
        return checked.records, refused

    def _land_checked(
        self, batch: _Batch, append: Append, checked: CheckedBatch, unlanded: DataFrame, files: int, began: float
    ) -> bool:
        """Commit a checked batch without its copies; return whether the batch's dead letters are committed already."""
        refused, readings = False, batch.count(self._topics.readings)
        letters = checked.records < readings or batch.count(self._topics.dead_letters) > 0
        if checked.copies:
            stores = checked.rows > checked.copies
            refused = self._refuse_conflicts(batch, checked, ("readings",) if stores else ())
            later = "readings" if stores else "dead_letters" if letters and not refused else None
            self._count_copies(batch, checked, (later,) if later else ())
            rows = checked.without_copies(reading_rows(unlanded, landed_at(batch.began_at)))
            append.write(rows.coalesce(files))
            if not append.paths:
                return refused
            checked.rewritten()
        paths, follows = append.paths, ("dead_letters",) if letters and not refused else ()
        self._commit(append, batch, "readings", checked.rows, began, follows)
        self._landed_at = batch.began_at
        checked.committed(paths, batch.began_at, time.time())
        return refused

    def _refuse_conflicts(self, batch: _Batch, checked: CheckedBatch, follows: tuple[str, ...]) -> bool:
        """Commit the batch's dead letters now if a copy differs from the stored row; return whether one does."""
        found = checked.refusals()
        self._progress.duplicates(checked.copies, conflicts=found.conflicts, unchecked=found.unchecked)
        if found.letters is not None:
            self._land_dead_letters(batch, found.letters, follows)
        return found.letters is not None

    def _count_copies(self, batch: _Batch, checked: CheckedBatch, follows: tuple[str, ...]) -> None:
        """Commit the records of the copies to `duplicates`, before `readings` gets the batch without them."""
        began = time.perf_counter()
        counted = checked.duplicate_rows(batch.began_at, self._topics.readings, self._behind(batch, "duplicates"))
        if counted is not None:
            rows, count = counted
            with self._duplicates.begin() as append:
                append.write(rows.coalesce(1))
                self._commit(append, batch, "duplicates", count, began, follows)

    def _counted_ends(self, batch: _Batch) -> list[tuple[int, int]]:
        """Return the partitions of the readings in which `duplicates` reaches past the batch's start, with the ends."""
        covered = self._behind(batch, "duplicates")
        return [(part, end) for topic, part, end in covered if topic == self._topics.readings]

    def _land_dead_letters(self, batch: _Batch, refused: DataFrame | None, follows: tuple[str, ...] = ()) -> None:
        began = time.perf_counter()
        unlanded, landed = self._unlanded(batch, "dead_letters"), landed_at(batch.began_at)
        rows = dead_letter_rows(unlanded, landed, *self._topics.names)
        if refused is not None:
            rows = rows.unionByName(conflict_rows(unlanded, refused, landed, self._topics.readings))
        with self._dead_letters.begin() as append:
            append.write(rows.coalesce(1))
            if append.paths:
                self._commit(append, batch, "dead_letters", append.read_back(["reason"]).num_rows, began, follows)
            elif self._promised:
                self._commit(append, batch, "dead_letters", 0, began)

    def _commit(
        self, append: Append, batch: _Batch, table: str, rows: int, began: float, follows: tuple[str, ...] = ()
    ) -> None:
        """Commit to one table; `follows` are the tables to which this batch commits after it, even without rows."""
        versions = {each.table.name: each.version for each in (self._readings, self._dead_letters, self._duplicates)}
        further = beyond(batch.ends, self._done[table])
        mark = self._marker.mark(self.app, batch.number, batch.starts, batch.ends, versions, follows, further)
        append.commit(mark.encode())
        self._marker.settle()
        self._marked, self._promised = largest_offsets(self._marked, batch.ends), bool(follows)
        self._progress.lap("commit")
        self._progress.committed(table, rows, time.perf_counter() - began)

    def _unlanded(self, batch: _Batch, table: str) -> DataFrame:
        """Return the batch without the records that the table's commits already cover; usually there are none."""
        old = self._behind(batch, table)
        if not old:
            return batch.records
        covered = F.lit(False)
        for topic, part, end in old:
            covered = covered | ((F.col("topic") == topic) & (F.col("partition") == part) & (F.col("offset") < end))
        return batch.records.where(~covered)

    def _behind(self, batch: _Batch, table: str) -> list[tuple[str, int, int]]:
        """Return the ends of the table's own commits, for the partitions in which they reach past the batch's start."""
        self._done[table] = behind(batch.starts, self._done[table])
        return self._done[table]

    def _file_count(self, batch: _Batch) -> int:
        """Return the number of tasks that run at once, whatever the number of Kafka's partitions; one for a small batch."""
        if batch.count(self._topics.readings) <= SMALL_BATCH_RECORDS:
            return 1
        return int(self._spark.sparkContext.defaultParallelism)  # workers of a cluster come and go


@contextmanager
def _held(records: DataFrame, *, hold: bool) -> Iterator[None]:
    """Keep the records in memory while the block runs, so that a batch for both tables is fetched from Kafka and parsed once."""
    if hold:
        records.persist()
    try:
        yield
    finally:
        if hold:
            records.unpersist()


def _ends(mark: Mark | None) -> list[tuple[str, int, int]]:
    ends = mark.reach if mark else {}
    return [(topic, part, end) for topic, parts in ends.items() for part, end in parts.items()]

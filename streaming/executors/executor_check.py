"""Check of a batch for copies on the executors: only numbers, some names of devices and a sample of times come to the driver.

Executors read back what they wrote, find the copies (identity_parts.py, and replays by topic and payload), compare these with
the stored rows (content_judge.py) and write the batch again without them. In the usual batch without copies that is one join.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ingest.contract.errors import ConfigError
from ingest.contract.reasons import Reason
from lakehouse.append import Append
from lakehouse.changes import newest_version, table_files
from lakehouse.data_files import sample_columns
from lakehouse.frames import data_rows, local_rows, rows_of
from lakehouse.object_store import is_s3
from lakehouse.paths import log_name, table_uri
from lakehouse.tables import DUPLICATES, READINGS
from streaming.copy_check import Refusals
from streaming.decode import landed_at
from streaming.duplicate_rows import COPIED_COLUMNS
from streaming.executors.content_judge import IDENTITY, JUDGED_COLUMNS, judge_copies, refused_records
from streaming.executors.identity_parts import IdentityParts
from streaming.executors.stored_rows import StoredRows
from streaming.landing_progress import LandingProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ExecutorBatch", "ExecutorCheck", "check_login"]

logger = logging.getLogger("tidegate.streaming.progress")

SAMPLED_ROWS: Final = 20_000
"""Most rows of a batch whose latency is measured: a larger batch catches up, and its rows waited alike."""
_NO_LOGIN: Final = (
    "NoAwsCredentials",
    "NoAuthWithAWS",
    "Unable to load credentials",
    "AccessDenied",
    "InvalidAccessKeyId",
)
"""Words of errors of S3A."""
_TIMES: Final = ("event_time", "received_at", "kafka_time", "gateway")
_ROW: Final = ("partition", "offset", "row_index")
_REPLAY_KEY: Final = ("device", "metric", "index", "mqtt_topic", "payload_hash")
_COLUMNS: Final = tuple(dict.fromkeys((*JUDGED_COLUMNS, *COPIED_COLUMNS, *_REPLAY_KEY, "retained")))
_POSITION: Final = "row_number() OVER (PARTITION BY partition, offset ORDER BY row_index) - 1 AS position"


def check_login(root: str, spark: "SparkSession") -> None:
    """Let a task read the newest file of the table's log, if the table is in an object store.

    Without it, executors without a login would fail in each batch of a table that is empty.

    Raises:
        ConfigError: executors have no login, or the store rejects it.
    """
    if not is_s3(root) or (newest := newest_version(root, READINGS.name)) < 0:
        return
    uri = table_uri(root, READINGS.name)
    try:
        spark.read.text(f"{uri}/{log_name(newest)}").count()
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if any(sign in line for sign in _NO_LOGIN)]
        if not lines:
            raise
        why = lines[-1].removeprefix("Caused by: ")[:300].rstrip(".")
        message = (
            f"The executors of Spark cannot read {uri}: {why}. Give them the login of the store: set lake.s3_access_key and "
            "lake.s3_secret_key, or give their machines the login that this one has."
        )
        raise ConfigError(message) from error


class ExecutorCheck:
    """The executors' way of `CopyCheck`."""

    def __init__(self, spark: "SparkSession", root: str, identities: IdentityParts, progress: LandingProgress) -> None:
        """`identities` is loaded; `progress` gets latencies and the number of identities."""
        self.spark, self.root, self.identities = spark, root, identities
        self.contents, self.replays = StoredRows(spark, root), StoredRows(spark, root)
        self._progress = progress
        self._worker = ThreadPoolExecutor(1, "latency")
        self._measuring: Future[None] | None = None

    def check(self, append: Append, counted: Sequence[tuple[int, int]]) -> "ExecutorBatch":
        """Find the copies in what was written; see `CopyCheck`."""
        batch = ExecutorBatch(self, append)
        try:
            batch.find(counted)
        except BaseException:
            batch.close()
            raise
        return batch

    def close(self, landed_at: datetime | None) -> None:
        """End the background work; identities are in files already, or in the table."""
        self._worker.shutdown()
        self.identities.close()

    def measure(self, uri: str, paths: Sequence[str], began_at: datetime, committed_at: float) -> None:
        """Measure the latency of committed rows while the next batch runs."""
        if self._measuring is not None:
            self._measuring.result()
        self._measuring = self._worker.submit(self._measure, uri, paths, began_at, committed_at)

    def _measure(self, uri: str, paths: Sequence[str], began_at: datetime, committed_at: float) -> None:
        try:
            rows = sample_columns(uri, paths, _TIMES, SAMPLED_ROWS)
            self._progress.latency(rows, began_at=began_at.timestamp(), committed_at=committed_at)
            self._progress.identities(self.identities.figures)
        except Exception as error:  # these are only metrics, and the rows are committed
            logger.warning("cannot measure the latency of a batch: %s", " ".join(str(error).split())[:300])


class ExecutorBatch:
    """A batch as `CheckedBatch`. `_marked` are its rows with their position and whether each is a copy, where it has any.

    Executors may lose what they hold at any time: each frame is made of committed files, of parts and of the batch's own files,
    which stay until the batch is closed or written again, so it is the same when it is made again.
    """

    def __init__(self, way: ExecutorCheck, append: Append) -> None:
        self._way, self._append = way, append
        self._kept: list[DataFrame] = []
        self.rows = self.records = self.copies = 0
        written = data_rows(way.spark, append.uri, READINGS, append.paths)
        self._rows = written.select(*dict.fromkeys(("boot", "seq", *_COLUMNS)), F.col("_metadata.row_index"))
        self._placed: DataFrame | None = None
        self._found: DataFrame
        self._marked: DataFrame | None = None
        way.identities.in_use.acquire()

    def find(self, counted: Sequence[tuple[int, int]]) -> None:
        """Count the rows, their records and the copies; `counted` as of `CopyCheck.check`."""
        self._placed = self._way.identities.place(self._rows)
        self._found = self._keep(self._way.identities.copies(self._placed).withColumn("replayed", F.lit(False)))
        self.copies = self._found.count()
        facts = self._rows.agg(
            F.count("*"), F.count_distinct("partition", "offset"), F.expr("coalesce(bool_or(retained), false)")
        ).collect()[0]
        self.rows, self.records = int(facts[0]), int(facts[1])
        if counted or facts[2]:
            self._add_replays(counted)
        if self.copies:
            self._marked = self._keep(self._mark())

    def refusals(self) -> Refusals:
        """Compare the copies with the stored rows."""
        # Topic and payload are the whole identity of a retained message (`rt:`) and of a replay: their copies cannot differ.
        compared = self._marked_rows.where("is_copy AND NOT replayed AND NOT startswith(message_id, 'rt:')")
        stays = self._marked_rows.where("NOT is_copy AND message_id IS NOT NULL").select(*JUDGED_COLUMNS)
        missing = self._keep(compared.join(stays.select(*IDENTITY), list(IDENTITY), "left_anti"))
        stored = [self._noted(each) for each in self._way.contents.find(missing, IDENTITY, JUDGED_COLUMNS)]
        judged = self._keep(judge_copies(compared, reduce(lambda all_, each: all_.union(each), stored, stays)))
        unchecked = judged.where(F.col("reason") == str(Reason.UNCHECKED_DUPLICATE)).count()
        letters = self._keep(refused_records(judged))
        counts = {row["reason"]: row["count"] for row in letters.groupBy("reason").count().collect()}
        return Refusals(letters if counts else None, counts.get(str(Reason.CONFLICTING_DUPLICATE), 0), unchecked)

    def duplicate_rows(
        self, began_at: datetime, topic: str, landed: Sequence[tuple[str, int, int]]
    ) -> "tuple[DataFrame, int] | None":
        """Return rows of `duplicates` and their number; None if there are none."""
        # A message may have two records of one device: it is a copy as a whole where none of them has a row that stays.
        whole = "min(is_copy) OVER (PARTITION BY device, gateway, gateway_epoch, message_number) AS whole"
        left_out = self._marked_rows.selectExpr("*", whole).where("is_copy")
        for name, partition, end in landed:
            if name == topic:
                left_out = left_out.where(f"NOT (partition = {partition:d} AND offset < {end:d})")
        same = ("device", "received_at", "kafka_time", "mqtt_topic", "gateway", "gateway_epoch", "message_number")
        rows = left_out.groupBy("partition", "offset").agg(
            *(F.first(name).alias(name) for name in (*same, "whole", "date")),
            F.min_by("message_id", "row_index").alias("message_id"),
            F.count("*").alias("readings_dropped"),
        )
        found = self._keep(
            rows.withColumn("landed_at", landed_at(began_at)).select(*(c.name for c in DUPLICATES.columns))
        )
        count = found.count()
        return (found, count) if count else None

    def without_copies(self, rows: "DataFrame") -> "DataFrame":
        """Return the rows without the copies."""
        copies = self._marked_rows.where("is_copy").groupBy("partition", "offset")
        left_out = self._keep(copies.agg(F.collect_set("position").alias("left_out")))
        left_out.count()  # now the executors hold it, and its size is known to the plan of the join
        stays = "left_out IS NULL OR NOT array_contains(left_out, position)"
        # A join may move the rows: in a file those of a partition are in the order of their offsets again.
        ordered = rows.join(left_out, ["partition", "offset"], "left").where(stays)
        ordered = ordered.sortWithinPartitions("partition", "offset", "position")
        return ordered.select(*(name for name in rows.columns if name != "position"))

    def rewritten(self) -> None:
        """Take note that the append holds the rows without the copies."""
        self.rows = self._append.row_count
        self._drop_placed()

    def committed(self, paths: Sequence[str], began_at: datetime, committed_at: float) -> None:
        """Learn the rows: their identities are where the executors hold them already, or in the files."""
        version = self._append.committed
        if version is None:
            raise AssertionError
        placed, self._placed = self._placed, None
        self._way.identities.add(placed, paths, version, self.rows, began_at)
        self._way.measure(self._append.uri, paths, began_at, committed_at)

    def close(self) -> None:
        """Free what only this batch needs; call it once."""
        try:
            self._drop_placed()
            while self._kept:
                self._kept.pop().unpersist()
        finally:
            self._way.identities.in_use.release()

    @property
    def _marked_rows(self) -> "DataFrame":
        if self._marked is None:
            raise AssertionError
        return self._marked

    def _mark(self) -> "DataFrame":
        found = self._found.selectExpr(*_ROW, "replayed AS how")
        marked = self._rows.selectExpr("*", _POSITION).join(found, list(_ROW), "left")
        marked = marked.selectExpr("*", "how IS NOT NULL AS is_copy", "coalesce(how, false) AS replayed").drop("how")
        partial = "max(NOT is_copy) OVER (PARTITION BY partition, offset) AS partial"
        return marked.selectExpr("*", partial)

    def _add_replays(self, counted: Sequence[tuple[int, int]]) -> None:
        """Add to the copies what a broker replays, and leave out what an earlier run of this batch left out."""
        marked = self._keep(self._mark())
        wanted = marked.where("NOT is_copy AND retained AND payload_hash IS NOT NULL")
        more: list[DataFrame] = []
        if counted:
            judged = self._keep(self._judged(marked, counted))
            more.append(judged.where("dropped = readings AND NOT is_copy").select(*_ROW))
            kept = judged.where("dropped = 0 OR dropped = readings").select(*_ROW)
            wanted = wanted.join(kept, list(_ROW), "left_anti")
        wanted = self._keep(wanted.select(*_ROW, *_REPLAY_KEY))
        live = marked.where("NOT coalesce(retained, false)").select(*_REPLAY_KEY)
        left = self._keep(wanted.join(live, list(_REPLAY_KEY), "left_anti"))
        stored = self._way.replays.find(left, _REPLAY_KEY, _REPLAY_KEY, bounded=not counted)
        known = reduce(lambda all_, each: all_.union(each), map(self._noted, stored), live)
        more.append(wanted.join(known, list(_REPLAY_KEY), "left_semi").select(*_ROW))
        replayed = reduce(lambda all_, each: all_.union(each), more).withColumn("replayed", F.lit(True))
        self._found = self._keep(self._found.union(replayed))
        before, self.copies = self.copies, self._found.count()
        if self.copies > before:
            self._drop_placed()  # the identity of a replay that is left out is not stored

    def _judged(self, marked: "DataFrame", counted: Sequence[tuple[int, int]]) -> "DataFrame":
        """Return the rows that an earlier run has judged, and how many readings of their record it left out (`dropped`)."""
        covered = F.broadcast(local_rows(self._way.spark, list(counted), "partition INT, end BIGINT"))
        notes = rows_of(self._way.spark, self._way.root, DUPLICATES, table_files(self._way.root, DUPLICATES.name))
        # With the time, because a topic that was created again has the offsets of the former one.
        record = ["partition", "offset", "received_at"]
        notes = notes.groupBy(*record).agg(F.max("readings_dropped").alias("noted"))
        rows = marked.join(covered, "partition").where("offset < end").join(notes, record, "left")
        readings = "count(*) OVER (PARTITION BY partition, offset) AS readings"
        return rows.selectExpr(*_ROW, "is_copy", "coalesce(noted, 0L) AS dropped", readings)

    def _drop_placed(self) -> None:
        if self._placed is not None:
            self._placed.unpersist()
            self._placed = None

    def _keep(self, rows: "DataFrame") -> "DataFrame":
        """Let the executors hold the rows until the batch ends."""
        return self._noted(rows.persist())

    def _noted(self, rows: "DataFrame") -> "DataFrame":
        self._kept.append(rows)
        return rows

"""Identities of `readings` in files that executors read and write, so that a cluster finds copies without the driver.

As in streaming/dedup_index.py, an identity with a counter is a number on a line (device, metric, index, boot), and all others are
points. A part has the ranges and points of a span of the table's versions (parts_folder.py). Executors keep the parts in memory
or on their disks, divided by hash as the rows of a batch are, so only the batch moves. Newer parts are joined into older ones
when they have a quarter of the rows.

Parts are derived from the table and may be lost: a start reads what the commits after them added, or the whole table.
"""

import logging
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pyspark.sql import functions as F

from lakehouse.changes import DataFile, LogExpired, newest_version, read_changes, table_files
from lakehouse.frames import data_rows
from lakehouse.paths import table_uri
from lakehouse.tables import READINGS
from lakehouse.writer_epoch import CommitConflictError
from streaming.executors.parts_folder import PART_COLUMNS, Part, PartName, PartsFolder, is_gone
from streaming.identity_snapshot import missing_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["IdentityParts"]

logger = logging.getLogger("tidegate.streaming.dedupe")

FRESH_COMMITS: Final = 24
FRESH_ROWS: Final = 500_000
FRESH_SECONDS: Final = 900.0
"""Commits become a part after so many, with so many rows, or after this time: their files may be joined and deleted later."""
GROWTH: Final = 4
"""A part is joined with the newer ones when they have a fourth of its rows."""
LEAST_TASKS: Final = 4
DAY_SECONDS: Final = 86_400
JOB_GROUP: Final = "tidegate-identities"

# The words of dedup_index: a line, or the whole id. Two independent hashes name a line, one a point; the tag names the device.
_COUNTED: Final = (
    "coalesce(message_id = concat('bs:', CAST(boot AS STRING), ':', CAST(seq AS STRING)), false) AS counted"
)
_STEM: Final = "CASE WHEN counted THEN concat('bs:', CAST(boot AS STRING)) ELSE message_id END AS stem"
_HASHED: Final = (
    "hash(device) AS tag",
    "xxhash64(device, metric, `index`, stem) AS a",
    "CASE WHEN counted THEN xxhash64(stem, `index`, metric, device) ELSE 0L END AS b",
    "CASE WHEN counted THEN seq ELSE 0L END AS number",
    "counted",
)
_COPY: Final = "row_number() OVER (PARTITION BY a, b, number ORDER BY partition, offset, row_index) AS copy"
_LINE: Final = "tag, a, b, counted"
# Gaps and islands, as in dedup_index.
_SO_FAR: Final = f"PARTITION BY {_LINE} ORDER BY low, high ROWS BETWEEN UNBOUNDED PRECEDING"
_BEFORE: Final = f"max(high) OVER ({_SO_FAR} AND 1 PRECEDING) AS before"
_OPENS: Final = "CASE WHEN before IS NULL OR (low > before AND low - 1 > before) THEN 1 ELSE 0 END AS opens"
_ISLAND: Final = f"sum(opens) OVER ({_SO_FAR} AND CURRENT ROW) AS island"


@dataclass(slots=True)
class _Fresh:
    """A commit that is in no part yet."""

    version: int
    rows: int
    placed: "DataFrame"
    day: int

    @property
    def frame(self) -> "DataFrame":
        """Its identities in the form of a part."""
        held = ("tag", "a", "b", "number AS low", "number AS high", "counted")
        return self.placed.selectExpr(*held, f"{self.day} AS day")


class IdentityParts:
    """The stored identities of a table. The landing's batch calls it; `forget` may come from another thread.

    `in_use` is a lock that a batch holds while it reads what `place` and `copies` returned: parts that it reads must not be
    deleted, because executors that lost them read them again.
    """

    def __init__(self, spark: "SparkSession", root: str) -> None:
        """`root` is the root of the tables, which driver and executors reach under the same name."""
        self._spark, self._root = spark, root
        self._folder, self._horizon_days = PartsFolder(spark, root, ""), math.inf
        self._parts: list[Part] = []
        self._fresh: list[_Fresh] = []
        self.in_use, self._lock = threading.Lock(), threading.Lock()
        self._worker = ThreadPoolExecutor(1, "identities")
        self._busy, self._closed, self._fresh_since = False, False, time.monotonic()
        self._tasks = LEAST_TASKS
        self._conflict: CommitConflictError | None = None

    @property
    def figures(self) -> dict[str, tuple[int, float, int]]:
        """Per kind (ranges, points): the number in the parts, and zeros, because there is no limit."""
        with self._lock:
            ranges, points = sum(part.ranges for part in self._parts), sum(part.points for part in self._parts)
        return {"range": (ranges, 0.0, 0), "point": (points, 0.0, 0)}

    def load(self, *, horizon_days: float) -> None:
        """Learn what is stored: the parts, and what the commits after them added; without parts the whole table.

        Raises:
            FatalError: a data file of the table is gone; names the next step.
            FencedError: another stream has the tables.
            Py4JError: Spark cannot read the table, or the parts. They stay.
        """
        self._horizon_days = horizon_days
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        from deltalake import DeltaTable

        table = DeltaTable(table_uri(self._root, READINGS.name))
        version = int(table.version())
        self._folder = PartsFolder(self._spark, self._root, str(table.metadata().id))
        self._tasks = max(LEAST_TASKS, int(self._spark.sparkContext.defaultParallelism))
        self._parts = self._found(version)
        try:
            self._take(self._added(version), version)
        except Exception as error:
            if not is_gone(error) and not isinstance(error, LogExpired):
                raise
            # The files of those commits were joined into others, or the log no longer names them.
            logger.warning("the known identities in %s are too old; reading the table again", self._folder.uri)
            self._drop()
            self._take_table()

    def place(self, written: "DataFrame") -> "DataFrame":
        """Return the identities of a batch, kept by the executors until they are unpersisted.

        Args:
            written: rows of `readings` with `row_index`, which orders the rows of a record.

        Returns:
            partition, offset, row_index, the identity, and `copy`: 1 for the first row of an identity.

        Raises:
            FencedError: another stream has the tables.
        """
        if self._conflict is not None:
            raise self._conflict
        origin = ("partition", "offset", "row_index")
        return (
            self._spread(_identified(written, *origin).selectExpr(*origin, *_HASHED)).selectExpr("*", _COPY).persist()
        )

    def copies(self, placed: "DataFrame") -> "DataFrame":
        """Return the rows of a batch that are stored, or twice in it: partition, offset, row_index; each once."""
        origin = ("partition", "offset", "row_index")
        twice = placed.where("copy > 1").select(*origin)
        with self._lock:
            frames = [part.frame for part in self._parts] + [each.frame for each in self._fresh]
        if not frames:
            return twice
        held = _union([frame.selectExpr("a AS held_a", "b AS held_b", "low", "high") for frame in frames])
        same = F.expr("held_a = a AND held_b = b AND number BETWEEN low AND high")
        # Built of the batch: what is held is larger, and stays where it is.
        return held.join(placed.hint("shuffle_hash"), same).select(*origin).union(twice).distinct()

    def add(
        self, placed: "DataFrame | None", paths: Sequence[str], version: int, rows: int, landed_at: datetime
    ) -> None:
        """Remember rows that were committed.

        Args:
            placed: their identities if `place` has them all; None reads them from the files.
            paths: the committed files.
            version: of the commit.
            rows: their number.
            landed_at: the time that they carry.
        """
        if placed is None:
            placed = self._spread(_identified(self._rows_at(paths)).selectExpr(*_HASHED)).persist()
        with self._lock:
            if not self._fresh:
                self._fresh_since = time.monotonic()
            self._fresh.append(_Fresh(version, rows, placed, _day(landed_at)))
            due = len(self._fresh) >= FRESH_COMMITS or sum(each.rows for each in self._fresh) >= FRESH_ROWS
            due = due or time.monotonic() - self._fresh_since > FRESH_SECONDS
            if due and not self._busy:
                self._busy = True
                self._worker.submit(self._join)

    def forget(self, device: str) -> None:
        """Forget a device: its earlier messages count as new if they come again."""
        self._worker.submit(self._merge, 0, device).result()

    def close(self) -> None:
        """End the background work; the next start reads the commits that are in no part."""
        self._closed = True
        with suppress(Exception):  # the JVM may be gone already
            self._spark.sparkContext.cancelJobGroup(JOB_GROUP)
        self._worker.shutdown(cancel_futures=True)
        with self._lock:
            for frame in (*(part.frame for part in self._parts), *(each.placed for each in self._fresh)):
                frame.unpersist()

    def _join(self) -> None:
        """Make a part of the fresh commits, and of the newest parts that are not much larger."""
        try:
            with self._lock:
                rows, first = sum(each.rows for each in self._fresh), len(self._parts)
                while first and self._parts[first - 1].rows < GROWTH * rows:
                    first -= 1
                    rows += self._parts[first].rows
            self._merge(first)
        except CommitConflictError as error:
            self._conflict = error  # for the next batch
        except Exception as error:  # the landing goes on with what it has; the next commit tries again
            if not self._closed:
                why = " ".join(str(error).split())[:300]
                logger.warning("cannot save the known identities in %s; trying again later: %s", self._folder.uri, why)
        finally:
            self._busy = False

    def _merge(self, first: int, without: str | None = None) -> None:
        """Replace the parts from this place on, and the fresh commits, by one part, without a device."""
        self._spark.sparkContext.setJobGroup(JOB_GROUP, "identities")
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "chores")
        with self._lock:
            parts, fresh = self._parts[first:], list(self._fresh)
        if not parts and not fresh:
            return
        frames = [part.frame for part in parts] + [each.frame for each in fresh]
        rows = _union([frame.select(*PART_COLUMNS) for frame in frames])
        if without is not None:
            rows = rows.where(F.col("tag") != F.hash(F.lit(without)))
        if first == 0 and (old := self._expired(parts)):
            rows = rows.where(F.col("counted") | ~F.col("day").isin(old))
        begin = parts[0].name.first if parts else self._next
        end = fresh[-1].version if fresh else parts[-1].name.last
        joined = self._write(rows, begin, end)
        with self.in_use:
            with self._lock:
                self._parts[first:] = [joined]
                self._fresh, self._fresh_since = self._fresh[len(fresh) :], time.monotonic()
            for each in fresh:
                each.placed.unpersist()
            for part in parts:
                part.frame.unpersist()
            self._folder.delete([part.name for part in parts])

    @property
    def _next(self) -> int:
        """First version that no part holds."""
        return self._parts[-1].name.last + 1 if self._parts else 0

    def _take_table(self) -> None:
        try:
            self._take(table_files(self._root, READINGS.name), newest_version(self._root, READINGS.name))
        except Exception as error:
            if is_gone(error):
                raise missing_file(str(error).splitlines()[0]) from error
            raise

    def _take(self, files: Sequence[DataFile], version: int) -> None:
        """Make a part of these data files, which reach up to the version."""
        if not files:
            return
        rows = self._rows_at([unquote(file.path) for file in files])
        day = f"CAST(unix_micros(landed_at) DIV {DAY_SECONDS * 1_000_000} AS INT) AS day"
        frame = _identified(rows, "landed_at").selectExpr(*_HASHED, day)
        held = frame.selectExpr("tag", "a", "b", "number AS low", "number AS high", "counted", "day")
        self._parts.append(self._write(held, self._next, version))

    def _write(self, rows: "DataFrame", first: int, last: int) -> Part:
        islands = self._spread(rows).selectExpr("*", _BEFORE).selectExpr("*", _OPENS).selectExpr("*", _ISLAND)
        folded = islands.groupBy("tag", "a", "b", "counted", "island").agg(
            F.min("low").alias("low"), F.max("high").alias("high"), F.max("day").alias("day")
        )
        return self._hold(self._folder.write(folded, first, last))

    def _hold(self, part: Part) -> Part:
        part.frame = self._spread(part.frame).persist()
        return part

    def _expired(self, parts: Sequence[Part]) -> list[int]:
        """Return the days of points past the horizon. A clock that jumps ahead costs one day: as many newer ones must exist."""
        if not math.isfinite(self._horizon_days) or not parts:
            return []
        kept = math.ceil(self._horizon_days) + 1
        found = _union([part.frame.where("NOT counted").select("day") for part in parts]).distinct().collect()
        days, today = sorted(row["day"] for row in found), _day(datetime.now(UTC))
        return [day for place, day in enumerate(days) if day <= today - kept and len(days) - place > kept]

    def _added(self, version: int) -> list[DataFile]:
        """Return the files with rows that came after the parts.

        Raises:
            LogExpired: the log no longer names them all.
        """
        if not self._parts:
            return table_files(self._root, READINGS.name)
        changes = list(read_changes(self._root, READINGS.name, after=self._next - 1, upto=version))
        return [file for change in changes for file in change.added]

    def _found(self, version: int) -> list[Part]:
        """Return the parts that hold the table from its first version on without a gap; delete all others.

        A part past the table's version holds rows that were lost with their commits and have to be stored again.
        """
        kept, others, following = list[Part](), list[PartName](), 0
        for name in sorted(self._folder.names(), key=lambda name: (name.first, -name.last)):
            fits = name.first == following and name.last <= version
            part = self._folder.read(name) if fits else None
            if part is None:
                others.append(name)
                continue
            kept.append(part)
            following = name.last + 1
        self._folder.delete(others)
        return [self._hold(part) for part in kept]

    def _drop(self) -> None:
        """Delete all parts."""
        parts, self._parts = self._parts, []
        for part in parts:
            part.frame.unpersist()
        self._folder.delete(self._folder.names())

    def _rows_at(self, paths: Sequence[str]) -> "DataFrame":
        return data_rows(self._spark, table_uri(self._root, READINGS.name), READINGS, paths)

    def _spread(self, rows: "DataFrame") -> "DataFrame":
        """Divide by identity; everything is divided in the same way, so that a look-up moves nothing that is held."""
        return rows.repartition(self._tasks, "a", "b")


def _identified(rows: "DataFrame", *more: str) -> "DataFrame":
    """Rows with an identity, and the words that it is made of."""
    words = ("device", "metric", "index", "message_id", "boot", "seq")
    known = rows.where("message_id IS NOT NULL").select(*words, *more)
    return known.selectExpr("*", _COUNTED).selectExpr("*", _STEM)


def _union(frames: "Sequence[DataFrame]") -> "DataFrame":
    return reduce(lambda all_, each: all_.union(each), frames)


def _day(at: datetime) -> int:
    return int(at.timestamp() // DAY_SECONDS)

"""Folder with the parts of identities (identity_parts.py), which a stream may share with the one that it took over from.

A part is a folder of Parquet files. Its name has the versions of the table that it holds, and the name of an empty file in it has
the numbers of ranges and points that its write counted: a part with other numbers lost files and is not used.

In an object store an overtaken stream may go on for a while. So a stream deletes only names that it knew before it asked the log
for the newest writer epoch: a newer stream wrote none of them. An older part that the newer stream uses already may be gone then,
and its next read fails. Neither stream can take the rest of a part for the whole.
"""

import logging
import re
import shutil
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import Observation
from pyspark.sql import functions as F

from ingest.contract.errors import RetryableError
from lakehouse.paths import is_local, table_uri, to_path
from lakehouse.tables import READINGS
from lakehouse.writer_epoch import refuse_overtaken
from streaming.identity_snapshot import PARTS_FOLDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PART_COLUMNS", "Part", "PartName", "PartsFolder", "drop_parts", "is_gone"]

logger = logging.getLogger("tidegate.streaming.dedupe")

PART_SCHEMA: Final = "tag INT, a BIGINT, b BIGINT, low BIGINT, high BIGINT, counted BOOLEAN, day INT"
PART_COLUMNS: Final = tuple(column.split()[0] for column in PART_SCHEMA.split(", "))
_NAME: Final = re.compile(r"(\d{20})-(\d{20})-[0-9a-f]{8}")
COUNT_SECONDS: Final = 60.0
"""Longest wait for the count of a write, which comes from a thread of the driver's JVM when the write has ended."""
_GONE: Final = ("PATH_NOT_FOUND", "FILE_NOT_EXIST", "FileNotFoundException")
_TORN: Final = (
    "is not a Parquet file",
    "ParquetDecodingException",
    "can not read class org.apache.parquet",
    "could not read page",
    "FAILED_TO_UNCOMPRESS",
    "ZstdIOException",
)
"""Words of Spark's errors about a file that is not there, and about one that is damaged."""
_UNREAD: Final = "FAILED_READ_FILE"
"""What Spark says of a file that it cannot read for any other reason."""


class PartName(NamedTuple):
    """The first and the last version that a part holds, and the name of its folder."""

    first: int
    last: int
    name: str


@dataclass(slots=True)
class Part:
    """A part with its number of ranges and of points; `frame` are its rows."""

    name: PartName
    ranges: int
    points: int
    frame: "DataFrame"

    @property
    def rows(self) -> int:
        """Number of its rows."""
        return self.ranges + self.points


class PartsFolder:
    """The parts of one table."""

    def __init__(self, spark: "SparkSession", root: str, table_id: str) -> None:
        self._spark, self._root = spark, root
        self.uri = f"{table_uri(root, PARTS_FOLDER)}/{table_id}"

    def names(self) -> list[PartName]:
        """Return the names of all parts, whole or not."""
        found = map(_NAME.fullmatch, _names(self._spark, self.uri))
        return [PartName(int(each[1]), int(each[2]), each[0]) for each in found if each is not None]

    def read(self, name: PartName) -> Part | None:
        """Return the part; None if it is not whole."""
        try:
            part = self._count(name)
        except Exception as error:
            # On a local disk no store is away: what cannot be read is damaged.
            torn = (*_TORN, _UNREAD) if is_local(self._root) else _TORN
            if not is_gone(error) and not any(sign.lower() in str(error).lower() for sign in torn):
                raise
            logger.warning("cannot read the known identities in %s/%s: %s", self.uri, name.name, _first_line(error))
            return None
        files, path = self._whole(part)
        return part if files.exists(path) else None

    def write(self, rows: "DataFrame", first: int, last: int) -> Part:
        """Write a part that holds these versions, with rows of PART_COLUMNS.

        Raises:
            RetryableError: it does not hold what was written: another stream deleted from it.
        """
        name = PartName(first, last, f"{first:020d}-{last:020d}-{uuid.uuid4().hex[:8]}")
        written = Observation()
        ranges, points = F.expr("count_if(counted) AS ranges"), F.expr("count_if(NOT counted) AS points")
        # Without Spark's own empty file, a folder that lost all of its files is missing in an object store: a read of it fails.
        writer = rows.select(*PART_COLUMNS).observe(written, ranges, points).write
        writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(f"{self.uri}/{name.name}")
        wanted, part = _counted(written), self._count(name)
        if (part.ranges, part.points) != wanted:
            message = (
                f"The known identities in {self.uri}/{name.name} lost rows right after they were written: {part.rows} of "
                f"{sum(wanted)} are there. Run only one stream for these tables."
            )
            raise RetryableError(message)
        files, path = self._whole(part)
        files.create(path, True).close()
        return part

    def delete(self, names: Iterable[PartName]) -> None:
        """Delete parts whose names were known before this call.

        Raises:
            FencedError: another stream has the tables; nothing is deleted.
        """
        _delete(self._spark, self._root, [f"{self.uri}/{name.name}" for name in names])

    def _count(self, name: PartName) -> Part:
        rows = self._spark.read.schema(PART_SCHEMA).parquet(f"{self.uri}/{name.name}")
        counts = {row["counted"]: row["count"] for row in rows.groupBy("counted").count().collect()}
        return Part(name, counts.get(True, 0), counts.get(False, 0), rows)

    def _whole(self, part: Part) -> tuple[Any, Any]:
        return _files(self._spark, f"{self.uri}/{part.name.name}/_whole-{part.ranges}-{part.points}")


def is_gone(error: BaseException) -> bool:
    """Return whether an error of Spark is about a file that is not there."""
    return any(sign in str(error) for sign in _GONE)


def drop_parts(spark: "SparkSession", root: str) -> None:
    """Delete the parts of all tables: the next start of a landing that uses them reads the table.

    Raises:
        FencedError: another stream has the tables; nothing is deleted.
    """
    if is_local(root):
        shutil.rmtree(to_path(root) / PARTS_FOLDER, ignore_errors=True)
        return
    folder = table_uri(root, PARTS_FOLDER)
    tables = [f"{folder}/{table}" for table in _names(spark, folder)]
    _delete(spark, root, [f"{table}/{name}" for table in tables for name in _names(spark, table)])


def _delete(spark: "SparkSession", root: str, places: "list[str]") -> None:
    if not places:
        return
    refuse_overtaken(table_uri(root, READINGS.name))
    for place in places:
        files, path = _files(spark, place)
        files.delete(path, True)


def _names(spark: "SparkSession", folder: str) -> list[str]:
    files, path = _files(spark, folder)
    return [str(each.getPath().getName()) for each in files.listStatus(path)] if files.exists(path) else []


def _files(spark: "SparkSession", place: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    java: Any = spark._jsc
    path = jvm.org.apache.hadoop.fs.Path(place)
    return path.getFileSystem(java.hadoopConfiguration()), path


def _counted(written: Observation) -> tuple[int, int]:
    """Return the numbers of ranges and points that a write counted."""
    observed: Any = written._jo
    until = time.monotonic() + COUNT_SECONDS
    # `get` alone would wait for ever for an event that a busy JVM drops.
    while not observed.future().isCompleted():
        if time.monotonic() > until:
            message = f"Spark did not report the rows of a write within {COUNT_SECONDS:.0f} s; landing tries again."
            raise RetryableError(message)
        time.sleep(0.005)
    counts = written.get
    return int(counts["ranges"]), int(counts["points"])


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]

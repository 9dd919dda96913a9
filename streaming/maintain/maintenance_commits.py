"""The two commits of maintenance: one that joins files, and one that drops days past their retention."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ingest.contract.errors import RetryableError
from lakehouse.append import Appender
from lakehouse.changes import DataFile
from lakehouse.commit_metadata import encode_metadata
from lakehouse.maintenance import JoinPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["drop_days", "join_files"]

_ROW: Final = "_row"


def join_files(spark: "SparkSession", appender: Appender, join: JoinPlan) -> int:
    """Write the rows of these files as one, and put it in their place; returns the version.

    Guarantee: one commit that changes no rows, so that a follower of the table does not see one twice; it meets no commit
    of the landing, which only adds files. Killed before it, the table is as it was and a file stays next to it until the next
    vacuum.

    Raises:
        RetryableError: the rows came out fewer or more than the log says; nothing was changed.
    """
    schema = StructType.fromJson(json.loads(appender.log.unsafeVolatileSnapshot().schema().json()))
    paths = [file.at(appender.uri) for file in join.files]
    rows = spark.read.schema(schema).option("basePath", appender.uri).parquet(*paths).coalesce(1)
    # Rows of one record have equal keys: their place in the file keeps them in their order.
    ordered = rows.withColumn(_ROW, F.monotonically_increasing_id()).sortWithinPartitions(*join.order, _ROW).drop(_ROW)
    with appender.begin() as append:
        append.write(ordered)
        if append.row_count != join.rows:
            message = (
                f"By the log, {len(join.files)} files of {appender.table.name} on {join.day} hold {join.rows} rows, but "
                f"{append.row_count} were read; the files stay as they are. Run `tidegate doctor` to look for damage."
            )
            raise RetryableError(message)
        append.replace(join.files)
        told = {"maintain": {"joined": len(join.files), "rows": join.rows, "date": join.day}}
        return append.commit(encode_metadata(told), data_change=False)


def drop_days(appender: Appender, days: Mapping[str, Iterable[DataFile]], *, keep_days: int) -> int:
    """Take whole days out of the table in one commit; what is derived from them stays. Returns the version."""
    with appender.begin() as append:
        for files in days.values():
            append.replace(files)
        return append.commit(encode_metadata({"retention": {"days": sorted(days), "keep_days": keep_days}}))

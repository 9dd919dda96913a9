"""Rewrite of a table's files in one Delta transaction: the same rows in the same order, except for the changed ones.

Each new file replaces one old file, or several small ones of the same partition. Readers see all of it or nothing. Rows that
land meanwhile are neither touched nor in conflict: an append reads nothing that this removes.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import FatalError, TidegateError
from lakehouse.append import Appender
from lakehouse.catalog import columns_of
from lakehouse.changes import DataFile, LogExpired, read_changes
from lakehouse.commit_metadata import encode_metadata
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.frames import local_rows
from lakehouse.paths import table_uri
from lakehouse.tables import Column, Table, spark_ddl
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["applied", "rewrite_files", "table_of"]

TARGET_BYTES: Final = 128 * 1024 * 1024
_HELPERS: Final = ("tidegate_group", "tidegate_file", "tidegate_row", "tidegate_name")


def rewrite_files(
    writer: WriterContext,
    table: Table,
    files: Sequence[DataFile],
    change: "Callable[[DataFrame], DataFrame]",
    *,
    rows: int,
    metadata: dict[str, Any],
) -> int:
    """Put `change` of the files' rows in the place of the files; returns the version.

    Args:
        writer: the one that may write here.
        table: the table.
        files: of the table as it is now, in the order that their rows should keep.
        change: takes rows away or changes columns; must not shuffle.
        rows: how many rows must be left. Another number raises an error before the commit.
        metadata: of the commit.
    """
    with Appender(writer.spark, writer.root, table).begin() as append:
        append.write(change(_in_order(writer, table, files)).drop(*_HELPERS))
        written = append.read_back(["device"]).num_rows if append.paths else 0
        if written != rows:
            message = (
                f"Rewriting {len(files)} files of {table.name} gave {written} rows instead of {rows}; nothing was committed and "
                "the table is unchanged. Run the command again, and report the error if it comes back."
            )
            raise FatalError(message)
        append.replace(files)
        return append.commit(encode_metadata(metadata))


def applied(root: str, name: str, request_id: str, *, after: int) -> dict[str, Any] | None:
    """The metadata of the commit that this request made after a version, with its `version`; None where it made none.

    Raises:
        TidegateError: the log does not reach back that far, so it cannot be known.
    """
    try:
        for change in read_changes(root, name, after=after):
            metadata = change.metadata
            if metadata.request.get("id") == request_id:
                return {**metadata.data, "version": change.version}
    except LogExpired as error:
        message = (
            f"The request {request_id} began at version {after} of {name}, and the log no longer says whether it was committed. "
            "This request is not run again. Look at the rows, and run the command again if they are unchanged."
        )
        raise TidegateError(message) from error
    return None


def table_of(root: str, name: str) -> Table:
    """The definition of a table; of one that is not ours, as it is stored."""
    if name in ALL_TABLES:
        return ALL_TABLES[name]
    stored = columns_of(root, name)
    columns = tuple(Column(c.name, c.type, c.comment, c.nullable) for c in stored)
    return Table(name, "", columns, (), tuple(c.name for c in stored if c.partition))


def _in_order(writer: WriterContext, table: Table, files: Sequence[DataFile]) -> "DataFrame":
    """The rows of the files in their order, one partition for each new file."""
    from pyspark.sql import functions as F

    uri = table_uri(writer.root, table.name)
    group, at, row, name = _HELPERS
    groups = _groups(files)
    named = [(path.rsplit("/", 1)[-1], groups[i], i) for i, path in enumerate(file.at(uri) for file in files)]
    places = local_rows(writer.spark, named, f"{name} string, {group} int, {at} int")
    reader = writer.spark.read.option("basePath", uri)
    if table.name in ALL_TABLES:
        reader = reader.schema(spark_ddl(table))
    else:
        reader = reader.schema(writer.spark.read.format("delta").load(uri).schema)
    rows = reader.parquet(*(file.at(uri) for file in files))
    placed = rows.withColumns({name: F.col("_metadata.file_name"), row: F.col("_metadata.row_index")}).join(
        F.broadcast(places), name
    )
    return placed.repartitionById(groups[-1] + 1, F.col(group)).sortWithinPartitions(at, row)


def _groups(files: Sequence[DataFile]) -> list[int]:
    """The number of the new file for each old one: small neighbours of one partition share one."""
    numbers: list[int] = []
    number, size = -1, 0
    before: DataFile | None = None
    for file in files:
        if before is None or file.partition != before.partition or size + file.bytes > TARGET_BYTES:
            number, size = number + 1, 0
        numbers.append(number)
        size, before = size + file.bytes, file
    return numbers

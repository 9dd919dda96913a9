"""Appends to a Delta table in two steps, write then commit, so that the writer can look at what it wrote in between.

`DataFrame.write` commits at once. Here Delta's own transaction (`OptimisticTransaction`, proved for the pinned version)
writes the data files first; the caller reads the key columns back, may write again without what should not be there, and
commits the last files only. Files written but not committed are invisible to every reader; they are deleted unless a
commit was tried, for then nobody knows yet whether they are part of the table.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from lakehouse.create import table_uri
from lakehouse.files import read_columns
from lakehouse.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Append", "Appender"]


class Appender:
    """The way into one table; begins one append at a time. One writing process per root: see lakehouse/lock.py."""

    def __init__(self, spark: "SparkSession", root: str, table: Table) -> None:
        self.uri = table_uri(root, table.name)
        self.table = table
        self._spark = spark
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._log: Any = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, self.uri)

    def begin(self) -> "Append":
        """Start a transaction on the newest version."""
        return Append(self, self._log.startTransaction(), self._jvm)

    def operation(self, user_metadata: str) -> Any:
        """What Delta's history shows for the commit."""
        option = self._jvm.scala.Option
        columns = self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(self.table.partitioned_by))
        append = self._jvm.org.apache.spark.sql.SaveMode.Append
        rest = [option.empty()] * 5
        return self._jvm.org.apache.spark.sql.delta.DeltaOperations.Write(
            append, option.apply(columns), option.empty(), option.apply(user_metadata), *rest
        )


class Append:
    """One transaction: `write` (again, to replace), `read_back`, then `commit`; leaving the block discards the rest."""

    def __init__(self, appender: Appender, transaction: Any, jvm: Any) -> None:
        self._appender = appender
        self._transaction = transaction
        self._jvm = jvm
        self._files: Any = None
        self.paths: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        with suppress(Exception):
            self.discard()

    def write(self, rows: "DataFrame") -> None:
        """Write the rows as data files, in the order of the frame's partitions; replaces an earlier `write`."""
        self.discard()
        self._files = self._transaction.writeFiles(rows._jdf)
        self.paths = [unquote(self._files.apply(i).path()) for i in range(self._files.size())]

    def read_back(self, columns: Sequence[str]) -> "pa.Table":
        """These columns of what was written, in the order written."""
        return read_columns(self._appender.uri, self.paths, columns)

    def commit(self, user_metadata: str) -> int:
        """Make the rows visible, all at once; returns the version."""
        files, self._files, self.paths = self._files, None, []
        return int(self._transaction.commit(files, self._appender.operation(user_metadata)))

    def discard(self) -> None:
        """Delete what was written and not committed."""
        configuration = self._appender._spark._jsc.hadoopConfiguration()
        for path in self.paths:
            file = self._jvm.org.apache.hadoop.fs.Path(f"{self._appender.uri}/{path}")
            file.getFileSystem(configuration).delete(file, False)
        self._files, self.paths = None, []

"""Spark DataFrames without a Delta snapshot: of a few rows of this process, and of data files that a table's log names.

Rows go to the JVM as Arrow. `createDataFrame` of a list would start Python workers on the executors, which must then have the
same Python. Data files need no snapshot, because the caller has read the log already.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lakehouse.changes import DataFile
from lakehouse.paths import table_uri
from lakehouse.tables import Table, spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["data_rows", "local_rows", "rows_of"]


def local_rows(spark: "SparkSession", rows: Sequence[Sequence[Any]], ddl: str) -> "DataFrame":
    """Return the rows as a frame with the columns of a Spark DDL string; `rows` may be empty."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    kind = StructType.fromDDL(ddl)
    assert isinstance(kind, StructType)  # noqa: S101
    schema = to_arrow_schema(kind)
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return spark.createDataFrame(pa.table(columns, schema=schema), kind)


def rows_of(spark: "SparkSession", root: str, table: Table, files: Iterable[DataFile]) -> "DataFrame":
    """Return the rows of these files with all columns of the table; partition columns come from the folder names.

    Columns that a file does not have are null. Spark reads only the columns that are used. Without files the frame is empty.
    """
    uri = table_uri(root, table.name)
    return data_rows(spark, uri, table, [unquote(file.path) for file in files])


def data_rows(spark: "SparkSession", uri: str, table: Table, paths: Sequence[str]) -> "DataFrame":
    """Return the rows of the data files at these paths under a table, as `rows_of`; each has the hidden column `_metadata`."""
    if not paths:
        return local_rows(spark, (), spark_ddl(table))
    files = [f"{uri}/{path}" for path in paths]
    return spark.read.schema(spark_ddl(table)).option("basePath", uri).parquet(*files)

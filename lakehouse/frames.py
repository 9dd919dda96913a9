"""DataFrames of a few rows of this process, and of chosen data files.

Rows go to the JVM as Arrow: `createDataFrame` of a list starts Python worker processes on the executors, which then must have
this very Python. Data files are read without asking Delta for a snapshot, because the log has named them already.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lakehouse.changes import DataFile
from lakehouse.paths import table_uri
from lakehouse.tables import Table, spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["local_rows", "rows_of"]


def local_rows(spark: "SparkSession", rows: Sequence[Sequence[Any]], ddl: str) -> "DataFrame":
    """The rows with the columns of a Spark DDL string; no rows are fine."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    kind = StructType.fromDDL(ddl)
    assert isinstance(kind, StructType)  # noqa: S101
    schema = to_arrow_schema(kind)
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return spark.createDataFrame(pa.table(columns, schema=schema), kind)


def rows_of(spark: "SparkSession", root: str, table: Table, files: Iterable[DataFile]) -> "DataFrame":
    """The rows of these files, all columns of the table (partition columns from the folder names); empty for no files.

    Columns that a file was written without are null. Spark reads only the columns that are used.
    """
    uri = table_uri(root, table.name)
    paths = [file.at(uri) for file in files]
    if not paths:
        return local_rows(spark, (), spark_ddl(table))
    return spark.read.schema(spark_ddl(table)).option("basePath", uri).parquet(*paths)

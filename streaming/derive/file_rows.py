"""Rows of chosen data files as a DataFrame, without asking Delta for a snapshot: the log has named the files already."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakehouse.changes import DataFile
from lakehouse.local_rows import local_rows
from lakehouse.paths import table_uri
from lakehouse.tables import Table, spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["rows_of"]


def rows_of(spark: "SparkSession", root: str, table: Table, files: Iterable[DataFile]) -> "DataFrame":
    """The rows of these files, all columns of the table (partition columns from the folder names); empty for no files.

    Columns that a file was written without are null. Spark reads only the columns that are used.
    """
    uri = table_uri(root, table.name)
    paths = [file.at(uri) for file in files]
    if not paths:
        return local_rows(spark, (), spark_ddl(table))
    return spark.read.schema(spark_ddl(table)).option("basePath", uri).parquet(*paths)

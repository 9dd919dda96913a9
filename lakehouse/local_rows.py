"""A few rows of this process as a DataFrame, handed to the JVM as Arrow.

`createDataFrame` of a list starts Python worker processes on the executors, which then must have this very Python.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["local_rows"]


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

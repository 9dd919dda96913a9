"""A selection of columns that is the same in every batch but for one: its words are handed to the JVM once.

PySpark hands each column over by several calls, and each step of a chain has the whole plan analysed again; a small batch paid
more for that than for its rows.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

__all__ = ["Projection"]


class Projection:
    """`where`, `selectExpr` and `coalesce` on a frame. Not thread-safe: the landing's batch calls it."""

    def __init__(self, spark: SparkSession, condition: str, columns: Sequence[str]) -> None:
        """The rows that meet the condition, these columns (SQL expressions), and one more that changes."""
        jvm: Any = spark._jvm
        self._condition = condition
        self._words: Any = jvm.java.util.ArrayList()
        for column in (*columns, ""):
            self._words.add(column)
        self._place = len(columns)
        self._to_seq: Any = jvm.org.apache.spark.api.python.PythonUtils.toSeq

    def __call__(self, rows: DataFrame, changing: str, *, partitions: int) -> DataFrame:
        """The rows with `changing` as their last column, in at most so many partitions, none of them cut."""
        self._words.set(self._place, changing)
        selected: Any = rows._jdf
        selected = selected.filter(self._condition).selectExpr(self._to_seq(self._words))
        return DataFrame(selected.coalesce(partitions), rows.sparkSession)

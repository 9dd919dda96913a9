"""Spark's SQL over the tables, for scans that are too large for one process: same tables, same views, read-only."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ingest.contract.errors import TidegateError, UnavailableError
from lakehouse.catalog import open_table, table_names
from lakehouse.create import table_uri
from lakehouse.query import tables_here
from lakehouse.views import View, named, views_in

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["SPARK_CONF", "run_spark_sql"]

SPARK_CONF = {
    # The opposite of what small batches want: plans that adapt, and as many tasks as the data asks for.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "32",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
"""Settings of a session for large scans, for `open_session(extra=…)`."""

_COMMANDS = (
    "org.apache.spark.sql.catalyst.plans.logical.Command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement",
)


def run_spark_sql(
    spark: "SparkSession",
    root: str,
    sql: str,
    *,
    version: int | None = None,
    at: datetime | None = None,
    views: Iterable[View] = (),
) -> "pa.Table":
    """The answer to one query, as `lakehouse.query.run_sql` gives it; `sql` is Spark's.

    Raises:
        UnavailableError: there is no table under the root yet, or the version or time is not kept any more.
        TidegateError: the query is wrong or would change something; the message is Spark's.
    """
    from pyspark.errors import PySparkException

    names = table_names(root)
    if not names:
        message = f"There is no table under {root} yet. Start the pipeline with `tidegate up`, or name another folder."
        raise UnavailableError(message)
    used = views_in(sql, views)
    try:
        _check_reads(spark, sql)
        for name in named(" ".join([sql, *(view.sql for view in used)]), names):
            # Spark refuses a time after the newest commit; the version at that time is asked of deltalake.
            found = open_table(root, name, version=version, at=at).version()
            rows = spark.read.format("delta").option("versionAsOf", found).load(table_uri(root, name))
            rows.createOrReplaceTempView(f"`{name}`")
        for view in used:
            spark.sql(view.spark or view.sql).createOrReplaceTempView(f"`{view.name}`")
        return spark.sql(sql).toArrow()
    except PySparkException as error:
        raise TidegateError(_explained(error, [*names, *(view.name for view in views)])) from error


def _check_reads(spark: "SparkSession", sql: str) -> None:
    """Refuse what is no query: Spark runs a command as soon as it is given."""
    jvm: Any = spark._jvm
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    kinds = [jvm.java.lang.Class.forName(name, True, _loader(jvm)) for name in _COMMANDS]
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if any(kind.isInstance(node) for kind in kinds):
            message = (
                f"`tidegate sql` only reads, and this is {node.nodeName()}. Write a query (SELECT, FROM, WITH); "
                "what changes tables are commands of their own, such as `tidegate correct`."
            )
            raise TidegateError(message)
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]


def _loader(jvm: Any) -> Any:
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()


def _explained(error: Any, names: list[str]) -> str:
    first = str(error).strip().splitlines()[0]
    unknown = re.search(r"TABLE_OR_VIEW_NOT_FOUND\].*? view `(.+?)` cannot be found", first)
    return first if unknown is None else f"{first.split('. ')[0]}. {tables_here(unknown[1], names)}"

"""Spark's SQL over the tables, for scans that are too large for one process: same tables, same views, read-only."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ingest.contract.errors import TidegateError, UnavailableError
from lakehouse.catalog import open_table, table_names
from lakehouse.paths import table_uri
from lakehouse.query import suggest_table_names
from lakehouse.spark_statement import read_query, reading_session
from lakehouse.views import View, names_in_query, views_in

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
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    names = table_names(root)
    if not names:
        message = f"There is no table under {root} yet. Start the pipeline with `tidegate up`, or name another folder."
        raise UnavailableError(message)
    used = views_in(sql, views)
    session = reading_session(spark)
    try:
        query = read_query(session, sql)
        for name in names_in_query(" ".join([sql, *(view.sql for view in used)]), names):
            # Spark rejects a time after the newest commit; deltalake returns the version at that time.
            found = open_table(root, name, version=version, at=at).version()
            rows = session.read.format("delta").option("versionAsOf", found).load(table_uri(root, name))
            rows.createOrReplaceTempView(f"`{name}`")
        for view in used:
            session.sql(view.spark or view.sql).createOrReplaceTempView(f"`{view.name}`")
        return query.frame().toArrow()
    except PySparkException as error:
        raise TidegateError(_explained(error, [*names, *(view.name for view in views)])) from error
    except Py4JJavaError as error:
        raise TidegateError(_cause(error.java_exception)) from error


def _cause(thrown: Any) -> str:
    """Return Spark's error text for a query that failed while it ran: the message of the innermost error."""
    while (cause := thrown.getCause()) is not None:
        thrown = cause
    return str(thrown.getMessage() or thrown.toString()).strip().splitlines()[0]


def _explained(error: Any, names: list[str]) -> str:
    first = str(error).strip().splitlines()[0]
    unknown = re.search(r"TABLE_OR_VIEW_NOT_FOUND\].*? view `(.+?)` cannot be found", first)
    return first if unknown is None else f"{first.split('. ')[0]}. {suggest_table_names(unknown[1], names)}"

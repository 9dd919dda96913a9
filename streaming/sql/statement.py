"""The statement of a stream as Spark parses it: one query that only reads, and the relations it names."""

from typing import TYPE_CHECKING

from ingest.contract.errors import ConfigError
from lakehouse.spark_statement import CheckedQuery, ReadOnlyError, read_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["first_line", "read_statement"]


def read_statement(session: "SparkSession", body: str, where: str) -> CheckedQuery:
    """Parse and check a statement; nothing of it runs.

    Args:
        session: of the stream.
        body: the statement.
        where: the file, for people.

    Raises:
        ConfigError: it is not one query that only reads, or not SQL.
    """
    from pyspark.errors import ParseException

    try:
        return read_query(session, body)
    except (ReadOnlyError, ParseException) as error:
        msg = f"{where}: {first_line(error)}"
        raise ConfigError(msg) from error


def first_line(error: BaseException) -> str:
    """Spark's first sentence about a wrong statement, without plan and stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:600] if lines else type(error).__name__

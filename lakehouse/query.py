"""SQL over the tables without a JVM: deltalake reads the log, DuckDB the files, through Arrow, read-only.

Only the tables that a query names are opened, and of those only the files and columns that it needs.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from ingest.contract.errors import TidegateError, UnavailableError
from lakehouse.catalog import open_table, table_names
from lakehouse.dataset import dataset_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["run_sql"]

_LOCKED: Final = ("SET TimeZone = 'UTC'", "SET enable_external_access = false", "SET lock_configuration = true")


def run_sql(
    root: str,
    sql: str,
    *,
    version: int | None = None,
    at: datetime | None = None,
    beside: "Mapping[str, pa.Table] | None" = None,
) -> "pa.Table":
    """The answer to one query.

    Args:
        root: path or URI of the tables.
        sql: DuckDB's SQL; every table under the root is there by its name.
        version: read the tables as of this version.
        at: read the tables as they were at this time.
        beside: further tables, by their names.

    Raises:
        UnavailableError: there is no table under the root yet, or the version or time is not kept any more.
        TidegateError: the query is wrong; the message is DuckDB's, with its suggestion.
    """
    import duckdb
    import pyarrow as pa

    names = table_names(root)
    if not names:
        message = f"There is no table under {root} yet. Start the pipeline with `tidegate up`, or name another folder."
        raise UnavailableError(message)
    connection = duckdb.connect(config={"python_enable_replacements": False, "temp_directory": ""})
    try:
        for name in _named(sql, names):
            connection.register(name, dataset_of(open_table(root, name, version=version, at=at)))
        for name, rows in (beside or {}).items():
            connection.register(name, rows)
        for statement in _LOCKED:
            connection.execute(statement)
        answer = connection.sql(sql)
        # A statement that is no query has no answer.
        return answer.to_arrow_table() if answer is not None else pa.table({})
    except duckdb.Error as error:
        raise TidegateError(_explained(str(error), names)) from error
    finally:
        connection.close()


def _named(sql: str, names: Iterable[str]) -> list[str]:
    """The tables whose name stands as a word in the query; one too many costs some milliseconds, nothing else."""
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE)]


def _explained(text: str, names: list[str]) -> str:
    """DuckDB's message without its suggestions that do not apply here, and with the tables where a name is unknown."""
    kept = text.strip()
    if "Table with name" in kept and "does not exist" in kept:
        return f"{kept.splitlines()[0]} The tables here are: {', '.join(names)}."
    return kept

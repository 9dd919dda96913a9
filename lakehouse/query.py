"""SQL over the tables, read-only: by DuckDB without a JVM, or by Spark for scans that are too large for one process.

For DuckDB, deltalake reads the log. Only the tables that a query names are opened, and of those only the files and columns
that it needs. Spark has the same tables and views.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import TidegateError, UnavailableError
from lakehouse.catalog import open_table, table_names
from lakehouse.dataset import dataset_of
from lakehouse.paths import table_uri
from lakehouse.scan import FileScan, needed_files, quote_identifier, scan_of
from lakehouse.spark_statement import read_query, reading_session
from lakehouse.statement import check_query
from lakehouse.views import View, names_in_query, views_in

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from duckdb import DuckDBPyConnection
    from pyspark.sql import SparkSession

__all__ = ["SPARK_CONF", "duckdb_literal", "run_spark_sql", "run_sql"]

_MANY_FILES: Final = 32
"""Opening so many files costs less than planning the query once more to see which of them it needs."""

_HARMLESS: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features of a table that change nothing for who reads its files."""

SPARK_CONF: Final = {
    # The opposite of what small batches want: plans that adapt, and as many tasks as the data asks for.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "32",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
"""Settings of a session for large scans, for `open_session(extra=…)`."""


def run_sql(
    root: str,
    sql: str,
    *,
    version: int | None = None,
    at: datetime | None = None,
    extra_tables: "Mapping[str, pa.Table] | None" = None,
    views: Iterable[View] = (),
) -> "pa.Table":
    """The answer to one query.

    Args:
        root: path or URI of the tables.
        sql: DuckDB's SQL; every table under the root is there by its name.
        version: read the tables as of this version.
        at: read the tables as they were at this time.
        extra_tables: further tables of the query, by their names.
        views: queries over the tables, by their names.

    Raises:
        UnavailableError: there is no table under the root yet, or the version or time is not kept any more.
        TidegateError: the query is wrong or not one query; the message is DuckDB's, with its suggestion.
    """
    import duckdb

    names = _present_tables(root)
    used = views_in(sql, views)
    connection = duckdb.connect(config={"python_enable_replacements": False, "temp_directory": ""})
    try:
        statement = check_query(connection, sql)
        connection.execute("SET TimeZone = 'UTC'")
        scans: dict[str, FileScan] = {}
        for name in names_in_query(" ".join([sql, *(view.sql for view in used)]), names):
            table = open_table(root, name, version=version, at=at)
            _check_features(name, table)
            if (scan := scan_of(table)) is None:
                connection.register(name, dataset_of(table))
            else:
                scans[name] = scan
        for name, rows in (extra_tables or {}).items():
            connection.register(name, rows)
        return _Reader(connection, scans, used).answer(statement)
    except duckdb.Error as error:
        raise TidegateError(_explained(str(error), [*names, *(view.name for view in views)])) from error
    finally:
        connection.close()


def _present_tables(root: str) -> list[str]:
    names = table_names(root)
    if not names:
        message = f"There is no table under {root} yet. Start the pipeline with `tidegate up`, or name another folder."
        raise UnavailableError(message)
    return names


def _check_features(name: str, table: "DeltaTable") -> None:
    """Refuse a table whose files alone do not say what its rows are; none that we write is one."""
    protocol = table.protocol()
    needed = set(protocol.reader_features or (["columnMapping"] if protocol.min_reader_version > 1 else [])) - _HARMLESS
    if needed:
        message = (
            f"Table {name} needs a reader with {', '.join(sorted(needed))}, which this engine does not support. Read it with "
            "`tidegate sql --engine spark`."
        )
        raise TidegateError(message)


class _Reader:
    """The tables of one query as views over lists of files; the lists are variables, so that they can become shorter."""

    def __init__(self, connection: "DuckDBPyConnection", scans: dict[str, FileScan], views: list[View]) -> None:
        self._connection, self._scans, self._views = connection, scans, views
        self._folders = sorted({scan.folder for scan in scans.values()})
        self._files: dict[str, Sequence[str]] = {name: scan.files for name, scan in scans.items()}

    def answer(self, sql: str) -> "pa.Table":
        import pyarrow as pa

        self._lock()
        # now() is the beginning of the transaction: the plan that says which files are needed and the query see one.
        self._connection.execute("BEGIN")
        for name, scan in self._scans.items():
            self._show(name, scan)
        for view in self._views:
            self._connection.execute(f"CREATE TEMP VIEW {quote_identifier(view.name)} AS {view.sql}")
        if self._connection.extract_statements(sql)[0].type.name == "SELECT":
            self._leave_out(sql)
        for name, files in self._files.items():
            self._set(name, files)
        found = self._connection.sql(sql)
        # A statement that is not a query has no answer.
        return found.to_arrow_table() if found is not None else pa.table({})

    def _lock(self) -> None:
        """Allow reading only the files of these tables; nothing is written, since only queries come here."""
        self._connection.execute("SET allowed_directories = ?", [[f"{folder}/" for folder in self._folders]])
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def _show(self, name: str, scan: FileScan, *, by_path: bool = True) -> None:
        """Let the table's name stand for the files in its variable; for now two of them: each look at them costs."""
        query = scan.select(_variable(name), by_path=by_path) if self._files[name] else scan.empty()
        self._set(name, self._files[name][:2])
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {quote_identifier(name)} AS {query}")

    def _set(self, name: str, files: Sequence[str]) -> None:
        self._connection.execute(f"SET VARIABLE {quote_identifier(_variable(name))} = ?", [list(files)])

    def _leave_out(self, sql: str) -> None:
        """Plan the query once for each large table, to see which files of it are needed.

        For the time of that plan the other tables are of a kind that the planner knows nothing about, so that all scans
        of files in it are those of the one table.
        """
        for name in [name for name, scan in self._scans.items() if len(scan.files) > _MANY_FILES and scan.ranges]:
            for other in self._scans.keys() - {name}:
                self._show_empty(other)
            self._show(name, self._scans[name], by_path=False)
            (plan,) = self._connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall()
            # A list of no files is none that DuckDB reads.
            self._files[name] = needed_files(plan[1], self._scans[name]) or self._scans[name].files[:1]
            for other in self._scans:
                self._show(other, self._scans[other])

    def _show_empty(self, name: str) -> None:
        rows = self._connection.sql(self._scans[name].empty()).to_arrow_table()
        self._connection.register(f"no rows of {name}", rows)
        query = f"SELECT * FROM {quote_identifier(f'no rows of {name}')}"  # noqa: S608 - a quoted name
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {quote_identifier(name)} AS {query}")


def _variable(name: str) -> str:
    return f"files of {name}"


def _explained(text: str, names: list[str]) -> str:
    """DuckDB's message, but where a table is unknown with those that are there: its own suggestions do not apply here."""
    kept = text.strip()
    unknown = re.search(r'Table with name "?(.+?)"? does not exist', kept)
    return kept if unknown is None else f"{kept.splitlines()[0]} {_suggest_table_names(unknown[1], names)}"


def _suggest_table_names(wanted: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown table name: the nearest name and the tables that exist."""
    listed = sorted(names)
    near = difflib.get_close_matches(wanted.lower(), listed, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return f"{hint}The tables here are: {', '.join(listed)}."


def run_spark_sql(
    spark: "SparkSession",
    root: str,
    sql: str,
    *,
    version: int | None = None,
    at: datetime | None = None,
    views: Iterable[View] = (),
) -> "pa.Table":
    """The answer to one query, as `run_sql` gives it; `sql` is Spark's.

    Raises:
        UnavailableError: there is no table under the root yet, or the version or time is not kept any more.
        TidegateError: the query is wrong or would change something; the message is Spark's.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    names = _present_tables(root)
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
        raise TidegateError(_explained_spark(error, [*names, *(view.name for view in views)])) from error
    except Py4JJavaError as error:
        raise TidegateError(_cause(error.java_exception)) from error


def _cause(thrown: Any) -> str:
    """Return Spark's error text for a query that failed while it ran: the message of the innermost error."""
    while (cause := thrown.getCause()) is not None:
        thrown = cause
    return str(thrown.getMessage() or thrown.toString()).strip().splitlines()[0]


def _explained_spark(error: Any, names: list[str]) -> str:
    first = str(error).strip().splitlines()[0]
    unknown = re.search(r"TABLE_OR_VIEW_NOT_FOUND\].*? view `(.+?)` cannot be found", first)
    return first if unknown is None else f"{first.split('. ')[0]}. {_suggest_table_names(unknown[1], names)}"


def duckdb_literal(text: str) -> str:
    """An expression of DuckDB that is this text: digits of a hexadecimal number, which it folds to a constant.

    `run_sql` takes no parameters and looks for tables' names in what it is given: in this it finds none.
    """
    return f"decode(unhex('{text.encode('utf-8', 'replace').hex()}'))"

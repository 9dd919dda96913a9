"""Read-only SQL over the tables: with DuckDB without a JVM, or with Spark for scans that are too large for one process.

For DuckDB, deltalake reads the log. Only the tables that a query names are opened, and of these only the files and columns
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
from lakehouse.derived_tables import DERIVED
from lakehouse.looks import note_look
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

__all__ = ["SPARK_CONF", "duckdb_literal", "innermost_message", "present_tables", "run_spark_sql", "run_sql"]

_MANY_FILES: Final = 32
"""Up to this number of files, opening all of them costs less than a second plan that shows which ones the query needs."""

_HARMLESS: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features of a table that a reader of its files can ignore."""

SPARK_CONF: Final = {
    # Unlike small batches, large scans want adaptive plans and many tasks.
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
    person: bool = True,
) -> "pa.Table":
    """Run one query with DuckDB and return its rows.

    Args:
        root: path or URI of the tables.
        sql: query in DuckDB's SQL; it may name every table under the root.
        version: read the tables as of this version.
        at: read the tables as of this time.
        extra_tables: further tables by name.
        views: queries over the tables by name.
        person: False for a query that repeats by itself, so that it does not keep derived tables fresh.

    Raises:
        UnavailableError: the root has no table yet, or the tables no longer have this version or time.
        TidegateError: the SQL is wrong or not a single query; the message is DuckDB's, with a suggestion.
    """
    import duckdb

    names = present_tables(root)
    used = views_in(sql, views)
    connection = duckdb.connect(config={"python_enable_replacements": False, "temp_directory": ""})
    try:
        statement = check_query(connection, sql)
        connection.execute("SET TimeZone = 'UTC'")
        scans: dict[str, FileScan] = {}
        asked = names_in_query(" ".join([sql, *(view.sql for view in used)]), names)
        if person:
            _note(root, asked)
        for name in asked:
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


def present_tables(root: str) -> list[str]:
    """Return the names of the tables.

    Raises:
        UnavailableError: there is none yet.
    """
    names = table_names(root)
    if not names:
        message = f"There is no table under {root} yet. Start the pipeline with `tidegate up`, or name another folder."
        raise UnavailableError(message)
    return names


def _note(root: str, asked: Iterable[str]) -> None:
    if not DERIVED.keys().isdisjoint(asked):
        note_look(root)


def _check_features(name: str, table: "DeltaTable") -> None:
    """Reject a table whose rows do not follow from its files alone. Tidegate writes no such table."""
    protocol = table.protocol()
    needed = set(protocol.reader_features or (["columnMapping"] if protocol.min_reader_version > 1 else [])) - _HARMLESS
    if needed:
        message = (
            f"Table {name} needs a reader with {', '.join(sorted(needed))}, which this engine does not support. Read it with "
            "`tidegate sql --engine spark`."
        )
        raise TidegateError(message)


class _Reader:
    """Tables of one query, as views over lists of files. The lists are variables, so that they can become shorter."""

    def __init__(self, connection: "DuckDBPyConnection", scans: dict[str, FileScan], views: list[View]) -> None:
        self._connection, self._scans, self._views = connection, scans, views
        self._folders = sorted({scan.folder for scan in scans.values()})
        self._files: dict[str, Sequence[str]] = {name: scan.files for name, scan in scans.items()}

    def answer(self, sql: str) -> "pa.Table":
        import pyarrow as pa

        self._lock()
        # now() is the beginning of the transaction, so the plan that chooses the files and the query use the same time.
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
        # A statement that is not a query has no result.
        return found.to_arrow_table() if found is not None else pa.table({})

    def _lock(self) -> None:
        """Allow DuckDB to read only the files of these tables. Nothing can be written, because `answer` gets only queries."""
        self._connection.execute("SET allowed_directories = ?", [[f"{folder}/" for folder in self._folders]])
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def _show(self, name: str, scan: FileScan, *, by_path: bool = True) -> None:
        """Define the table's name as a view of the files in its variable, at first only two, because planning opens them."""
        query = scan.select(_variable(name), by_path=by_path) if self._files[name] else scan.empty()
        self._set(name, self._files[name][:2])
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {quote_identifier(name)} AS {query}")

    def _set(self, name: str, files: Sequence[str]) -> None:
        self._connection.execute(f"SET VARIABLE {quote_identifier(_variable(name))} = ?", [list(files)])

    def _leave_out(self, sql: str) -> None:
        """Plan the query once for each large table, to see which of its files are needed.

        In that plan the other tables are empty Arrow tables, so that all scans of files belong to the one table.
        """
        for name in [name for name, scan in self._scans.items() if len(scan.files) > _MANY_FILES and scan.ranges]:
            for other in self._scans.keys() - {name}:
                self._show_empty(other)
            self._show(name, self._scans[name], by_path=False)
            (plan,) = self._connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall()
            # DuckDB cannot read an empty list of files.
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
    """Return DuckDB's message; for an unknown table with the existing tables in place of DuckDB's own suggestions."""
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
    """Run one query with Spark and return its rows; the arguments are those of `run_sql`, but `sql` is Spark's.

    Raises:
        UnavailableError: the root has no table yet, or the tables no longer have this version or time.
        TidegateError: the SQL is wrong or would change something; the message is Spark's.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    names = present_tables(root)
    used = views_in(sql, views)
    session = reading_session(spark)
    try:
        query = read_query(session, sql)
        asked = names_in_query(" ".join([sql, *(view.sql for view in used)]), names)
        _note(root, asked)
        for name in asked:
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
        raise TidegateError(innermost_message(error.java_exception)) from error


def innermost_message(thrown: Any) -> str:
    """Return the first line of what the innermost of nested Java errors says: Spark wraps the reason several times."""
    while (cause := thrown.getCause()) is not None:
        thrown = cause
    return str(thrown.getMessage() or thrown.toString()).strip().splitlines()[0]


def _explained_spark(error: Any, names: list[str]) -> str:
    first = str(error).strip().splitlines()[0]
    unknown = re.search(r"TABLE_OR_VIEW_NOT_FOUND\].*? view `(.+?)` cannot be found", first)
    return first if unknown is None else f"{first.split('. ')[0]}. {_suggest_table_names(unknown[1], names)}"


def duckdb_literal(text: str) -> str:
    """Return a DuckDB expression for this text, in hexadecimal digits; DuckDB folds it to a constant.

    `run_sql` has no parameters and looks for table names in its SQL. In this expression it finds none.
    """
    return f"decode(unhex('{text.encode('utf-8', 'replace').hex()}'))"

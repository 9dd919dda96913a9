"""Python code to paste for one query, for DuckDB, Polars, pandas and Spark: the same tables, versions and answer. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

from lakehouse.views import View

__all__ = ["NamedTable", "render_code"]


class NamedTable(NamedTuple):
    """A table that the query names; `version` None is the newest."""

    name: str
    uri: str
    version: int | None = None


def render_code(sql: str, tables: Sequence[NamedTable], views: Sequence[View]) -> dict[str, str]:
    """Programs that leave the answer in `answer`, by what they run on.

    They read the tables without what DuckDB would have to fetch (its Delta extension).
    """
    return {
        "duckdb": _DUCKDB_HEAD + _duckdb(sql, tables, views) + "print(answer)\n",
        "polars": _polars(sql, tables, views),
        "pandas": _PANDAS_HEAD + _duckdb(sql, tables, views, ".df()") + "print(answer)\n",
        "spark": _spark(sql, tables, views),
    }


def _duckdb(sql: str, tables: Sequence[NamedTable], views: Sequence[View], ending: str = "") -> str:
    lines = ["connection = duckdb.connect()", "connection.execute(\"SET TimeZone = 'UTC'\")"]
    for name, uri, version in tables:
        travel = "" if version is None else f", version={version}"
        lines.append(f"connection.register({name!r}, DeltaTable({uri!r}{travel}).to_pyarrow_dataset())")
    lines += [f"connection.execute({_made(view.name, view.sql, chr(34))})" for view in views]
    return "\n".join([*lines, f"answer = connection.sql({_long(sql)}){ending}", ""])


def _polars(sql: str, tables: Sequence[NamedTable], views: Sequence[View]) -> str:
    if views:  # Polars' own SQL has no aggregate with a filter
        return _POLARS_VIEWS_HEAD + _duckdb(sql, tables, views, ".pl()") + "print(answer)\n"
    lines = ["tables = pl.SQLContext()"]
    for name, uri, version in tables:
        options = "" if version is None else f", version={version}"
        if quote(uri, safe="/:") != uri:  # Polars takes the escapes of deltalake's URI for the path itself
            options += ", use_pyarrow=True"
        lines.append(f"tables.register({name!r}, pl.scan_delta({uri!r}{options}))")
    return _POLARS_HEAD + "\n".join([*lines, f"answer = tables.execute({_long(sql)}, eager=True)", "print(answer)", ""])


def _spark(sql: str, tables: Sequence[NamedTable], views: Sequence[View]) -> str:
    lines = []
    for name, uri, version in tables:
        travel = "" if version is None else f'.option("versionAsOf", {version})'
        lines.append(f'spark.read.format("delta"){travel}.load({uri!r}).createOrReplaceTempView({name!r})')
    lines += [f"spark.sql({_made(view.name, view.spark or view.sql, '`', replace=True)})" for view in views]
    return _SPARK_HEAD + "\n".join([*lines, f"answer = spark.sql({_long(sql)})", "answer.show(truncate=False)", ""])


def _made(name: str, sql: str, mark: str, *, replace: bool = False) -> str:
    return _long(f"CREATE {'OR REPLACE ' if replace else ''}TEMP VIEW {mark}{name}{mark} AS\n{sql}")


def _long(sql: str) -> str:
    """A literal of Python that reads as the SQL does, where it can."""
    plain = '"""' not in sql and "\\" not in sql
    return f'"""\n{sql}\n"""' if "\n" in sql and plain else repr(sql)


_DUCKDB_HEAD: Final = """\
# DuckDB: pip install duckdb deltalake
import duckdb
from deltalake import DeltaTable

"""
_POLARS_HEAD: Final = """\
# Polars: pip install polars deltalake
# Polars supports less SQL than DuckDB. If it rejects the query, end the DuckDB program with .pl() for a Polars frame.
import polars as pl

"""
_POLARS_VIEWS_HEAD: Final = """\
# Polars through DuckDB (the SQL of Polars does not support the view): pip install polars duckdb deltalake
import duckdb
from deltalake import DeltaTable

"""
_PANDAS_HEAD: Final = """\
# pandas through DuckDB, because pandas has no SQL: pip install pandas duckdb deltalake
import duckdb
from deltalake import DeltaTable

"""
_SPARK_HEAD: Final = """\
# Spark: pip install delta-spark (it fetches Delta's jars). Spark's SQL differs from DuckDB's in places.
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

builder = (
    SparkSession.builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.session.timeZone", "UTC")
)
spark = configure_spark_with_delta_pip(builder).getOrCreate()
"""

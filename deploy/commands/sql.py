"""`tidegate sql`: run one query over the tables, with DuckDB without a JVM or with Spark. The pipeline does not need to run."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, parse_time, show_json

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from deploy.settings import Settings
    from lakehouse.views import View

__all__ = ["register"]


class Format(StrEnum):
    """Format of an answer."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


class Engine(StrEnum):
    """Query engine."""

    DUCKDB = "duckdb"
    SPARK = "spark"


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(sql)


def sql(
    query: Annotated[str, typer.Argument(help="SQL of the engine over tables and views (`tables ls` lists them).")],
    at: Annotated[
        str | None,
        typer.Option("--at", help="Read the tables as they were at this ISO time, or 10m-ago.", show_default=False),
    ] = None,
    version: Annotated[int | None, typer.Option("--version", min=0, help="Read the tables at this version.")] = None,
    form: Annotated[Format, typer.Option("--format", help="Format of the answer.")] = Format.TABLE,
    engine: Annotated[
        Engine, typer.Option("--engine", help="Query engine. spark starts a JVM, for scans too large for one process.")
    ] = Engine.DUCKDB,
    show_code: Annotated[
        bool, typer.Option("--show-code", help="Print Python code for the same query, and do not run it.")
    ] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Query the tables in SQL, without a JVM and without changes."""
    from deploy.local.locate_settings import locate_settings

    if at is not None and version is not None:
        msg = "Use --at or --version, not both."
        raise typer.BadParameter(msg)
    moment = parse_time(at) if at is not None else None
    settings = locate_settings(config, data, needs_run=False)
    views = _views(settings, query)
    if show_code:
        _show_code(settings.lake.root, query, version, moment, views, as_json=as_json)
        return
    if form is Format.PARQUET and sys.stdout.isatty():
        msg = "Parquet is binary and stdout is a terminal: write it to a file, such as > answer.parquet."
        raise typer.BadParameter(msg)
    from lakehouse.render import render_table

    if engine is Engine.SPARK:
        answer = _ask_spark(settings, query, version, moment, views)
    else:
        from lakehouse.query import run_sql

        answer = run_sql(settings.lake.root, query, version=version, at=moment, views=views)
    typer.echo(render_table(answer, "json" if as_json else form), nl=False)


def _views(settings: "Settings", query: str) -> "list[View]":
    """Return the views that the query may use; read profiles only for a query that names a view of theirs."""
    from lakehouse.views import WIDE, shipped_views

    if WIDE not in query.lower():
        return shipped_views()
    from deploy.lake_views import configured_views

    return configured_views(settings)


def _show_code(
    root: str, query: str, version: int | None, at: "datetime | None", views: "list[View]", *, as_json: bool
) -> None:
    from lakehouse.catalog import open_table, table_names
    from lakehouse.paths import table_uri
    from lakehouse.show_code import NamedTable, render_code
    from lakehouse.views import names_in_query, views_in

    used = views_in(query, views)
    names = names_in_query(" ".join([query, *(view.sql for view in used)]), table_names(root))
    travels = version is not None or at is not None
    tables = [
        NamedTable(
            name,
            _absolute(table_uri(root, name)),
            open_table(root, name, version=version, at=at).version() if travels else None,
        )
        for name in names
    ]
    programs = render_code(query, tables, used)
    if as_json:
        show_json({"programs": programs, "views": {view.name: view.sql for view in used}})
    else:
        typer.echo("\n".join(programs.values()), nl=False)


def _absolute(uri: str) -> str:
    return uri if "://" in uri else str(Path(uri).absolute())


def _ask_spark(
    settings: "Settings", query: str, version: int | None, at: "datetime | None", views: "list[View]"
) -> "pa.Table":
    import tempfile

    from deploy.local.artifacts import lake_jars
    from deploy.local.java import find_java
    from lakehouse.jvm import JvmOptions
    from lakehouse.object_store import s3_spark_conf
    from lakehouse.query import SPARK_CONF, run_spark_sql
    from lakehouse.session import open_session

    master = settings.stream.master
    java = find_java()
    typer.echo("Starting Spark; this takes some seconds.", err=True)
    with tempfile.TemporaryDirectory(prefix="tidegate-sql-") as logs:
        jars = lake_jars(settings.lake.root, progress=lambda text: typer.echo(text, err=True))
        jvm = JvmOptions(java.home, tuple(jars), Path(logs), settings.stream.driver_memory, tuple(java.gc_options))
        session = open_session(
            jvm,
            master="local[*]" if master.startswith("local") else master,
            app_name="tidegate-sql",
            extra={**SPARK_CONF, **s3_spark_conf(settings.lake), **settings.stream.extra},
            secret=settings.stream.auth_secret,
        )
        try:
            return run_spark_sql(session.spark, settings.lake.root, query, version=version, at=at, views=views)
        finally:
            session.close()

"""`tidegate sql` and `tidegate tables`: for analysts; no JVM is started, and the pipeline need not run."""

import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.commands.options import Data, Json, OptionalConfig, parse_time, show_json

__all__ = ["register"]

tables = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, describe and date tables.")


class Format(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def register(parent: typer.Typer) -> None:
    """Add the commands to the command line."""
    parent.command()(sql)
    parent.add_typer(tables, name="tables")


def sql(
    query: Annotated[str, typer.Argument(help="DuckDB's SQL; tables by their names: readings, dead_letters.")],
    at: Annotated[
        str | None, typer.Option("--at", help="Read the tables as they were: ISO time, or 10m-ago.", show_default=False)
    ] = None,
    version: Annotated[int | None, typer.Option("--version", min=0, help="Read the tables as of this version.")] = None,
    form: Annotated[Format, typer.Option("--format", help="How to write the answer.")] = Format.TABLE,
    show_code: Annotated[
        bool, typer.Option("--show-code", help="Print Python that asks the same; run nothing.")
    ] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Ask the tables in SQL, without a JVM."""
    from deploy.local.locate import locate_settings

    if at is not None and version is not None:
        msg = "give --at or --version, not both"
        raise typer.BadParameter(msg)
    moment = parse_time(at) if at is not None else None
    root = locate_settings(config, data, needs_run=False).lake.root
    if show_code:
        typer.echo(_code(root, query, version, moment.isoformat() if moment else None))
        return
    from lakehouse.query import run_sql
    from lakehouse.render import render

    answer = render(run_sql(root, query, version=version, at=moment), "json" if as_json else form)
    if form is Format.PARQUET and sys.stdout.isatty():
        msg = "parquet is binary: send it to a file, such as > answer.parquet"
        raise typer.BadParameter(msg)
    typer.echo(answer, nl=False)


def _code(root: str, query: str, version: int | None, at: str | None) -> str:
    opened = f", version={version}" if version is not None else ""
    travel = f"\n    table.load_as_version({at!r})" if at else ""
    return (
        "import duckdb\nfrom deltalake import DeltaTable\n\nconnection = duckdb.connect()\n"
        'for name in ("readings", "dead_letters"):\n'
        f"    table = DeltaTable(f{root + '/{name}'!r}{opened}){travel}\n"
        "    connection.register(name, table.to_pyarrow_dataset())\n"
        f"print(connection.sql({query!r}))"
    )


@tables.command()
def ls(config: OptionalConfig = None, data: Data = None, as_json: Json = False) -> None:
    """List the tables with rows, files and size."""
    from lakehouse.catalog import list_tables

    found = [asdict(info) for info in list_tables(_root(config, data))]
    _show(found, ("name", "version", "rows", "files", "bytes", "committed_at"), as_json=as_json)


@tables.command()
def show(
    name: Annotated[str, typer.Argument(help="The table.")],
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show a table's columns and what each means."""
    from lakehouse.catalog import columns_of

    found = [asdict(column) for column in columns_of(_root(config, data), name)]
    _show(found, ("name", "type", "comment"), as_json=as_json)


@tables.command()
def history(
    name: Annotated[str, typer.Argument(help="The table.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many versions, newest first.")] = 20,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show a table's versions: what `sql --version` can read."""
    from lakehouse.catalog import history_of

    found = [asdict(commit) for commit in history_of(_root(config, data), name, limit=limit)]
    _show(found, ("version", "committed_at", "operation", "rows"), as_json=as_json)


def _root(config: Path | None, data: Path | None) -> str:
    from deploy.local.locate import locate_settings

    return locate_settings(config, data, needs_run=False).lake.root


def _show(found: list[dict[str, Any]], columns: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        show_json(found)
        return
    cells = [list(columns), *([_cell(entry[column]) for column in columns] for entry in found)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    for row in cells:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    from datetime import datetime

    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}Z"
    return "" if value is None else str(value)

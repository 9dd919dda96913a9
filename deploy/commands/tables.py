"""`tidegate tables ls | show | history | diff | serve`: tables and views. The pipeline does not need to run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.commands.options import Data, Json, OptionalConfig, parse_time, show_json
from deploy.commands.tables_serve import serve

if TYPE_CHECKING:
    from deploy.settings import Settings

__all__ = ["register"]

tables = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Tables: list, describe, show versions, compare, serve."
)
tables.command()(serve)


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(tables, name="tables")


@tables.command()
def ls(config: OptionalConfig = None, data: Data = None, as_json: Json = False) -> None:
    """List the tables with rows, files and size, and the views."""
    from deploy.lake_views import configured_views
    from lakehouse.catalog import list_tables

    settings = _settings(config, data)
    found = [{"kind": "table", **asdict(info)} for info in list_tables(settings.lake.root)]
    nothing = dict.fromkeys(("version", "rows", "files", "bytes", "committed_at"))
    found += [{"kind": "view", "name": view.name, **nothing} for view in configured_views(settings)]
    _show(found, ("name", "kind", "version", "rows", "files", "bytes", "committed_at"), as_json=as_json)


@tables.command()
def show(
    name: Annotated[str, typer.Argument(help="Name of the table or view.")],
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show the columns of a table or view and their meaning.

    For a view, its query goes to stderr.
    """
    from deploy.lake_views import configured_views
    from lakehouse.catalog import columns_of, table_names, view_columns

    settings = _settings(config, data)
    root = settings.lake.root
    view = None
    if name not in table_names(root):
        view = next((view for view in configured_views(settings) if view.name == name), None)
    found = [asdict(column) for column in (columns_of(root, name) if view is None else view_columns(root, view))]
    if view is not None and not as_json:
        typer.echo(f"{view.comment}\n\n{view.sql}\n", err=True)
    _show(found, ("name", "type", "comment"), as_json=as_json)


@tables.command()
def history(
    name: Annotated[str, typer.Argument(help="Name of the table.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Number of versions, newest first.")] = 20,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """List a table's versions, which `sql --version` can read."""
    from lakehouse.catalog import history_of

    found = [asdict(commit) for commit in history_of(_root(config, data), name, limit=limit)]
    _show(found, ("version", "committed_at", "operation", "rows"), as_json=as_json)


@tables.command()
def diff(
    name: Annotated[str, typer.Argument(help="Name of the table.")],
    before: Annotated[str, typer.Option("--from", help="First version: a number, an ISO time, or 10m-ago.")],
    after: Annotated[str, typer.Option("--to", help="Second version: a number, an ISO time, or 10m-ago.")],
    keys: Annotated[
        str | None,
        typer.Option("--keys", help="Columns that identify a row, such as device,metric.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Number of rows of each kind to show.")] = 10,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show the rows that differ between two versions of a table.

    Reads only the files that are not in both versions.
    """
    from lakehouse.diff import diff_table
    from lakehouse.render import json_value

    root = _root(config, data)
    chosen = [key.strip() for key in keys.split(",") if key.strip()] if keys is not None else None
    versions = (_version(root, name, text) for text in (before, after))
    found = json_value(asdict(diff_table(root, name, *versions, keys=chosen, limit=limit)))
    if as_json:
        show_json(found)
        return
    typer.echo(
        f"{name}, version {found['from_version']} to {found['to_version']}, key {', '.join(found['keys']) or 'none'}:"
    )
    for kind, sign in (("only_in_from", "-"), ("only_in_to", "+"), ("changed", "~")):
        rows = found[f"rows_{kind}"]
        typer.echo(f"{kind.replace('_', ' ')}: {found[kind]} row{'' if found[kind] == 1 else 's'}")
        for row in rows:
            typer.echo(f"  {sign} {_line(row)}")
        if len(rows) < found[kind]:
            typer.echo(f"  … and {found[kind] - len(rows)} more")


def _version(root: str, name: str, text: str) -> int:
    from lakehouse.catalog import open_table

    if text.isdecimal():
        return int(text)
    return open_table(root, name, at=parse_time(text)).version()


def _line(row: dict[str, Any]) -> str:
    """Return a row as one line; null values are left out."""
    from lakehouse.render import cell_text

    changes = row.pop("columns", None)
    cells = [f"{name}={cell_text(value)}" for name, value in row.items() if value is not None]
    if isinstance(changes, dict):
        cells += [
            f"{name}: {cell_text(change['from'])} → {cell_text(change['to'])}" for name, change in changes.items()
        ]
    return "  ".join(cells)


def _settings(config: Path | None, data: Path | None) -> "Settings":
    from deploy.local.locate_settings import locate_settings

    return locate_settings(config, data, needs_run=False)


def _root(config: Path | None, data: Path | None) -> str:
    return _settings(config, data).lake.root


def _show(found: list[dict[str, Any]], columns: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        show_json(found)
        return
    from deploy.commands.options import text_table

    typer.echo("\n".join(text_table(columns, ([_cell(entry[column]) for column in columns] for entry in found))))


def _cell(value: object) -> str:
    from datetime import datetime

    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}Z"
    return "" if value is None else str(value)

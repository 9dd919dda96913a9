"""`tidegate maintain`: join small files, drop days past their retention and vacuum, now instead of when it is due."""

from typing import Annotated, Any

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(maintain)


def maintain(
    table: Annotated[
        str | None, typer.Option("--table", help="Maintain only this table (default: all).", show_default=False)
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Join every small file and write a checkpoint.")] = False,
    keep_hours: Annotated[
        float | None,
        typer.Option(
            "--keep-hours",
            help="Delete files that left a table longer ago than this (default: lake.log_retention_hours).",
            show_default=False,
        ),
    ] = None,
    drop_days: Annotated[
        bool,
        typer.Option(
            "--drop-days",
            help="Drop days past their retention, even if they are many at once or the clock is in doubt.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Join small files, drop expired days, delete old files.

    A running stream does this by itself. This command asks the stream to do it now, or does it here if no stream runs.
    """
    from deploy.local.locate_settings import locate_settings
    from deploy.requests import run_request
    from lakehouse.maintenance_vacuum import check_keep_hours
    from lakehouse.requests import Request

    if keep_hours is not None:
        check_keep_hours(keep_hours)
    settings = locate_settings(config, data, needs_run=False)
    arguments = {"table": table, "full": full, "keep_hours": keep_hours, "dry_run": dry_run, "drop_days": drop_days}
    answer = run_request(settings, Request("maintain", arguments), tell=lambda text: typer.echo(text, err=True))
    if as_json:
        show_json(answer)
    else:
        typer.echo("\n".join(_lines(answer)))


def _lines(answer: dict[str, Any]) -> list[str]:
    would = "would be " if answer["dry_run"] else ""
    lines = [f"{'table':20} {'files':>15} {'bytes':>14}  done"]
    for kept in answer["tables"]:
        files = f"{kept['files_before']} -> {kept['files_after']}"
        did = [
            f"{kept['joined']} files {would}joined into {kept['into']}" if kept["joined"] else "",
            f"{len(kept['dropped_days'])} days {would}dropped" if kept["dropped_days"] else "",
            f"{len(kept['waiting_days'])} days wait for --drop-days ({kept['waiting_days'][0]} to {kept['waiting_days'][-1]})"
            if kept["waiting_days"]
            else "",
            f"{kept['files_deleted']} old files {would}deleted ({kept['bytes_deleted']} bytes)"
            if kept["files_deleted"]
            else "",
            f"{kept['log_files_deleted']} log files deleted" if kept["log_files_deleted"] else "",
        ]
        lines.append(f"{kept['table']:20} {files:>15} {kept['bytes']:>14}  {', '.join(filter(None, did)) or 'nothing'}")
    return [*lines, f"{answer['seconds']:.1f} s"]

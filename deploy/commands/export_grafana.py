"""`tidegate export grafana`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_exported, show_json

if TYPE_CHECKING:
    from monitoring.grafana.query_check import EmptyQuery
    from monitoring.monitoring_settings import MonitoringSettings

__all__ = ["register"]


def register_grafana(group: typer.Typer) -> None:
    """Add the command to the group `export`."""
    group.command("grafana")(export_grafana)


def export_grafana(
    folder: Annotated[Path, typer.Argument(help="Folder to write to; a missing one is created.", metavar="DIR")],
    force: Annotated[bool, typer.Option("--force", help="Replace files that differ.")] = False,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            help="URL of a Prometheus to send every query to. Exit 1 if one has no result.",
            metavar="URL",
            show_default=False,
        ),
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write dashboards for Grafana and the files that provision them.

    The dashboards are overview, pipeline, Kafka and bench. They show the objectives of the settings, with --data those of an
    embedded run. DIR/README.md says how to load them into Grafana.
    """
    from deploy.export_folder import write_export
    from deploy.local.locate_settings import locate_settings
    from deploy.settings import load_settings
    from monitoring.grafana.export_files import grafana_files

    found = load_settings(config) if data is None else locate_settings(config, data, needs_run=False)
    settings = found.monitoring
    done = write_export(folder, grafana_files(settings), force=force)
    empty = [] if check is None else _check(check, settings)
    if as_json:
        show_json(asdict(done) | ({} if check is None else {"empty": [asdict(each) for each in empty]}))
    else:
        show_exported(done)
        if check is not None:
            _say_empty(empty)
    raise typer.Exit(1 if any(not each.expected for each in empty) else 0)


def _check(url: str, settings: "MonitoringSettings") -> "list[EmptyQuery]":
    from ingest.contract.errors import ConfigError, UnavailableError
    from monitoring.grafana.dashboard_files import dashboards
    from monitoring.grafana.query_check import ask_prometheus, empty_queries

    if not url.startswith(("http://", "https://")):
        msg = f"--check {url}: wanted the URL of a Prometheus, such as http://127.0.0.1:9090."
        raise ConfigError(msg)
    try:
        return empty_queries(dashboards(settings), ask_prometheus(url))
    except OSError as error:
        msg = f"{url}: no Prometheus answers there ({error}). Use the URL under which its own page opens."
        raise UnavailableError(msg) from error


def _say_empty(empty: "list[EmptyQuery]") -> None:
    for each in empty:
        mark = "expected" if each.expected else "EMPTY"
        typer.echo(f"{mark}: {each.dashboard}, {each.panel}: {each.why}: {each.expr}", err=True)
    wrong = sum(not each.expected for each in empty)
    typer.echo(
        f"All queries were sent: {wrong} have no result, {len(empty) - wrong} more are expected to be empty.", err=True
    )

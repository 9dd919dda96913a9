"""`tidegate export grafana | prometheus | systemd | compose | helm | asyncapi`: write files for tools that people already run."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.commands.export_deployment import register_deployments
from deploy.commands.export_folder import ExportFolder, Force, export_settings, show_export, write_export
from deploy.commands.export_helm import register_descriptions
from deploy.commands.options import Data, Json, OptionalConfig
from ingest.contract.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from monitoring.grafana.query_check import EmptyQuery
    from monitoring.monitoring_settings import MonitoringSettings

__all__ = ["register"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Write files for tools that you already run.")


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    register_deployments(app)
    register_descriptions(app)
    parent.add_typer(app, name="export")


@app.callback()
def _group() -> None:
    """Write files for tools that you already run."""


@app.command("grafana")
def export_grafana(
    folder: ExportFolder,
    force: Force = False,
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
    from monitoring.grafana.export_files import grafana_files

    settings = export_settings(config, data).monitoring
    done = write_export(folder, grafana_files(settings), force=force)
    empty = [] if check is None else _check_queries(check, settings)
    more: dict[str, Any] = {} if check is None else {"empty": [asdict(each) for each in empty]}
    show_export(done, as_json=as_json, **more)
    if check is not None and not as_json:
        _say_empty(empty)
    raise typer.Exit(1 if any(not each.expected for each in empty) else 0)


@app.command("prometheus")
def export_prometheus(
    folder: ExportFolder,
    force: Force = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write scrape configuration, alert rules and Alertmanager's configuration.

    With --data the files have the addresses of an embedded run. DIR/README.md says how to load them.
    """
    from monitoring.prometheus.export_files import prometheus_files

    files = prometheus_files(export_settings(config, data).monitoring)
    show_export(write_export(folder, files, force=force), as_json=as_json)


def _check_queries(url: str, settings: "MonitoringSettings") -> "list[EmptyQuery]":
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

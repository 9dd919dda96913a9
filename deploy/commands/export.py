"""`tidegate export grafana | prometheus | systemd | compose | helm | asyncapi`: write files for tools that people already run.

A folder gets all files of an export or none, so that what a person changed there is not lost by accident.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.commands.export_deployment import register_deployments
from deploy.commands.export_helm import register_descriptions
from deploy.commands.options import Data, Json, OptionalConfig, show_json
from ingest.contract.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from monitoring.grafana.query_check import EmptyQuery
    from monitoring.monitoring_settings import MonitoringSettings

__all__ = ["ExportResult", "register", "show_exported", "write_export"]

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
    from deploy.local.locate_settings import locate_settings
    from deploy.settings import load_settings
    from monitoring.grafana.export_files import grafana_files

    found = load_settings(config) if data is None else locate_settings(config, data, needs_run=False)
    settings = found.monitoring
    done = write_export(folder, grafana_files(settings), force=force)
    empty = [] if check is None else _check_queries(check, settings)
    if as_json:
        show_json(asdict(done) | ({} if check is None else {"empty": [asdict(each) for each in empty]}))
    else:
        show_exported(done)
        if check is not None:
            _say_empty(empty)
    raise typer.Exit(1 if any(not each.expected for each in empty) else 0)


@app.command("prometheus")
def export_prometheus(
    folder: Annotated[Path, typer.Argument(help="Folder to write to; a missing one is created.", metavar="DIR")],
    force: Annotated[bool, typer.Option("--force", help="Replace files that differ.")] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write scrape configuration, alert rules and Alertmanager's configuration.

    With --data the files have the addresses of an embedded run. DIR/README.md says how to load them.
    """
    from deploy.local.locate_settings import locate_settings
    from deploy.settings import load_settings
    from monitoring.prometheus.export_files import prometheus_files

    settings = load_settings(config) if data is None else locate_settings(config, data, needs_run=False)
    done = write_export(folder, prometheus_files(settings.monitoring), force=force)
    if as_json:
        show_json(asdict(done))
    else:
        show_exported(done)


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


@dataclass(frozen=True, slots=True)
class ExportResult:
    """Result of an export; names are paths below the folder."""

    folder: str
    written: tuple[str, ...]
    unchanged: tuple[str, ...]


def write_export(folder: Path, files: Mapping[str, str], *, force: bool) -> ExportResult:
    """Write missing files, and with `force` also files that differ. Other files of the folder stay.

    Raises:
        ConfigError: a file differs, and `force` is not given; nothing was written.
        UnavailableError: the folder cannot be written.
    """
    try:
        differing = [name for name, text in files.items() if not _is(folder / name, text)]
        changed = [name for name in differing if (folder / name).exists()]
        if changed and not force:
            names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
            msg = f"{folder}: existing files differ: {names}. Give another folder, or --force to replace them."
            raise ConfigError(msg)
        for name in differing:
            _write(folder / name, files[name])
    except OSError as error:
        msg = f"{error.filename or folder}: cannot be written ({error.strerror}). Give a writable folder."
        raise UnavailableError(msg) from error
    return ExportResult(str(folder), tuple(differing), tuple(name for name in files if name not in differing))


def _is(file: Path, text: str) -> bool:
    try:
        return file.read_bytes() == text.encode()
    except FileNotFoundError:
        return False


def _write(file: Path, text: str) -> None:
    """Write by a rename, so that a Grafana that watches the folder never reads half a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_bytes(text.encode())
    fresh.replace(file)


def show_exported(done: ExportResult) -> None:
    """Print the files that an export wrote, one per line, and the file that says how to use them."""
    for name in done.written:
        typer.echo(str(Path(done.folder) / name))
    counts = f"{len(done.written)} files written, {len(done.unchanged)} unchanged"
    typer.echo(f"{counts}; see {done.folder}/README.md.", err=True)

"""`tidegate export helm | asyncapi`: write what describes a pipeline to Kubernetes and to other programs."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

if TYPE_CHECKING:
    from deploy.settings import Settings

__all__ = ["register_descriptions"]

_Folder = Annotated[Path, typer.Argument(help="Folder to write to; a missing one is created.", metavar="DIR")]
_Force = Annotated[bool, typer.Option("--force", help="Replace files that differ.")]


def register_descriptions(group: typer.Typer) -> None:
    """Add the commands to the group `export`."""
    group.command("helm")(export_helm)
    group.command("asyncapi")(export_asyncapi)


def export_helm(
    folder: _Folder,
    force: _Force = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write a Helm chart of the pipeline, with its values filled from the settings.

    The chart has no secret: values.yaml names the Secrets to create. It contains the rules and dashboards of the other exports.
    DIR/README.md says how to install it.
    """
    from deploy.helm.chart_files import chart_files
    from deploy.settings_file import read_toml

    settings = _settings(config, data)
    file = data / "config.toml" if data is not None else config
    chart = chart_files(settings, None if file is None else read_toml(file))
    _write(folder, chart.files, force=force, as_json=as_json, notes=chart.notes)


def export_asyncapi(
    folder: _Folder,
    force: _Force = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write an AsyncAPI document of the MQTT topics and the Kafka topics.

    It has the schemas of native messages, receipts and records, and the topics of routes and presets that apply.
    """
    from deploy.asyncapi.document import asyncapi_files

    _write(folder, asyncapi_files(_settings(config, data)), force=force, as_json=as_json)


def _settings(config: Path | None, data: Path | None) -> "Settings":
    """Return the settings of the file or of the embedded run, else the defaults."""
    from deploy.local.locate_settings import locate_settings
    from deploy.settings import load_settings

    return load_settings(config) if data is None else locate_settings(config, data, needs_run=False)


def _write(
    folder: Path, files: Mapping[str, str], *, force: bool, as_json: bool, notes: tuple[str, ...] | None = None
) -> None:
    from deploy.commands.export import show_exported, write_export

    done = write_export(folder, files, force=force)
    if as_json:
        show_json(asdict(done) | ({} if notes is None else {"notes": list(notes)}))
        return
    show_exported(done)
    for note in notes or ():
        typer.echo(f"Note: {note}", err=True)

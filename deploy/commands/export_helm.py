"""`tidegate export helm | asyncapi`: write what describes a pipeline to Kubernetes and to other programs."""

from typing import TYPE_CHECKING

import typer

from deploy.commands.export_folder import ExportFolder, Force, export_settings, show_export, write_export
from deploy.commands.options import Data, Json, OptionalConfig

if TYPE_CHECKING:
    pass

__all__ = ["register_descriptions"]


def register_descriptions(group: typer.Typer) -> None:
    """Add the commands to the group `export`."""
    group.command("helm")(export_helm)
    group.command("asyncapi")(export_asyncapi)


def export_helm(
    folder: ExportFolder,
    force: Force = False,
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

    file = data / "config.toml" if data is not None else config
    chart = chart_files(export_settings(config, data), None if file is None else read_toml(file))
    show_export(write_export(folder, chart.files, force=force), as_json=as_json, notes=chart.notes)


def export_asyncapi(
    folder: ExportFolder,
    force: Force = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write an AsyncAPI document of the MQTT topics and the Kafka topics.

    It has the schemas of native messages, receipts and records, and the topics of routes and presets that apply.
    """
    from deploy.asyncapi.document import asyncapi_files

    files = asyncapi_files(export_settings(config, data))
    show_export(write_export(folder, files, force=force), as_json=as_json)

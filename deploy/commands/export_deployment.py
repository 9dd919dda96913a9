"""`tidegate export systemd | compose`: write what runs a pipeline in production."""

from typing import Annotated

import typer

from deploy.commands.export_folder import ExportFolder, Force, export_settings, show_export, write_export
from deploy.commands.options import Data, Json, OptionalConfig

__all__ = ["register_deployments"]


def register_deployments(group: typer.Typer) -> None:
    """Add the commands to the group `export`."""
    group.command("systemd")(export_systemd)
    group.command("compose")(export_compose)


def export_systemd(
    folder: ExportFolder,
    force: Force = False,
    program: Annotated[
        str | None,
        typer.Option(
            "--program",
            help="Absolute path of the command on the machine (default: /opt/tidegate/.venv/bin/tidegate).",
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    user: Annotated[str, typer.Option("--user", help="System user of the services.")] = "tidegate",
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write systemd units for gateway, stream, canary and monitor.

    Memory, folders and names of secrets come from the settings; no secret is written. DIR/README.md has the next commands.
    """
    from deploy.export.systemd import PROGRAM, systemd_files

    files = systemd_files(export_settings(config, data), program=program or PROGRAM, user=user)
    show_export(write_export(folder, files, force=force), as_json=as_json)


def export_compose(
    folder: ExportFolder,
    force: Force = False,
    image: Annotated[
        str | None,
        typer.Option(
            "--image",
            help="Name of Tidegate's image (default: tidegate and its version).",
            metavar="IMAGE",
            show_default=False,
        ),
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write a Compose file with all parts, Prometheus and Grafana.

    A broker or a Kafka at a loopback address of the settings becomes a service too. No secret is written: DIR/README.md says
    which files to make, and how to start.
    """
    from deploy.export.compose import compose_files
    from deploy.processes import version

    files = compose_files(export_settings(config, data), image=image or f"tidegate:{version()}")
    show_export(write_export(folder, files, force=force), as_json=as_json)

"""`tidegate export systemd | compose`: write what runs a pipeline in production."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

__all__ = ["register_deployments"]

_Folder = Annotated[Path, typer.Argument(help="Folder to write to; a missing one is created.", metavar="DIR")]
_Force = Annotated[bool, typer.Option("--force", help="Replace files that differ.")]


def register_deployments(group: typer.Typer) -> None:
    """Add the commands to the group `export`."""
    group.command("systemd")(export_systemd)
    group.command("compose")(export_compose)


def export_systemd(
    folder: _Folder,
    force: _Force = False,
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
    from deploy.local.locate_settings import locate_settings
    from deploy.settings import load_settings

    settings = load_settings(config) if data is None else locate_settings(config, data, needs_run=False)
    _write(folder, systemd_files(settings, program=program or PROGRAM, user=user), force=force, as_json=as_json)


def export_compose(
    folder: _Folder,
    force: _Force = False,
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
    from deploy.local.locate_settings import locate_settings
    from deploy.processes import version
    from deploy.settings import load_settings

    settings = load_settings(config) if data is None else locate_settings(config, data, needs_run=False)
    name = image or f"tidegate:{version()}"
    _write(folder, compose_files(settings, image=name), force=force, as_json=as_json)


def _write(folder: Path, files: dict[str, str], *, force: bool, as_json: bool) -> None:
    from deploy.commands.export import show_exported, write_export

    done = write_export(folder, files, force=force)
    if as_json:
        show_json(asdict(done))
    else:
        show_exported(done)

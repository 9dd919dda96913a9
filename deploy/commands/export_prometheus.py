"""`tidegate export prometheus`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_exported, show_json

__all__ = ["register"]


def register(group: typer.Typer) -> None:
    """Add the command to the group `export`."""
    group.command("prometheus")(export_prometheus)


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
    from deploy.export_folder import write_export
    from deploy.local.locate_settings import locate_settings
    from deploy.settings import load_settings
    from monitoring.prometheus.export_files import prometheus_files

    settings = load_settings(config) if data is None else locate_settings(config, data, needs_run=False)
    done = write_export(folder, prometheus_files(settings.monitoring), force=force)
    if as_json:
        show_json(asdict(done))
    else:
        show_exported(done)

"""`tidegate stream`: hop 3 as one process."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Config

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(stream)


def stream(
    config: Config,
    log_dir: Annotated[Path, typer.Option("--log-dir", help="Folder for Spark's own log.")] = Path(
        "tidegate-data/logs"
    ),
) -> None:
    """Run hop 3: Kafka in, Delta tables out.

    Writes each record exactly once. Only one stream may write to a tables root. SIGTERM stops it after it has drained.
    """
    from deploy.processes import run_stream
    from deploy.settings import load_settings

    run_stream(load_settings(config), log_dir=log_dir)

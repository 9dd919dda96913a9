"""`tidegate trace`: follow a device's last messages across all hops."""

from typing import Annotated, Final

import typer

from deploy.command_line import commands_for_options
from deploy.commands.options import Data, Json, OptionalConfig, show_json

__all__ = ["register"]

MOST: Final = 100


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(trace)


def trace(
    device: Annotated[str, typer.Option("--device", "-d", help="Device id.", show_default=False)],
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=MOST, help="Number of messages, newest first.")] = 1,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Follow a device's last messages across all hops.

    Shows for each message, stored or rejected, its outcome and when it passed each hop, and by whose clock. Reads the tables
    and their logs, and the records from Kafka if it answers. Nothing needs to run.
    """
    from deploy.local.locate_settings import locate_settings
    from deploy.trace.trace_report import render_trace, trace_device

    found = trace_device(locate_settings(config, data, needs_run=False), device, last)
    if as_json:
        show_json(found)
    else:
        typer.echo("\n".join(render_trace(found, commands_for_options(config, data))))

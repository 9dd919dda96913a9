"""`tidegate decode`: decode messages as the gateway would, without a server."""

import json
from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import OptionalConfig, open_input_lines

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(decode)


def decode(
    file: Annotated[
        Path, typer.Argument(help="File of JSON lines: {id, topic, payload | payload_base64}; - for stdin.")
    ],
    config: OptionalConfig = None,
) -> None:
    """Decode messages as the gateway would, without a server.

    Prints one JSON line per message: {id, outcome, reason, readings, rejected}.
    """
    from deploy.settings import load_settings
    from gateway.devtools.decode_file import decode_lines
    from gateway.profiles.policy import make_policy

    settings = load_settings(config)
    policy = make_policy(settings.gateway, settings.routes, live=False)
    with open_input_lines(file) as lines:
        for found in decode_lines(lines, settings.routes, settings.gateway, policy=policy):
            typer.echo(json.dumps(found, ensure_ascii=False))

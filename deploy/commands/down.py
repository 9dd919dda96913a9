"""`tidegate down`: stop the embedded run."""

import typer

from deploy.commands.options import Data, Json, show_json

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(down)


def down(data: Data = None, as_json: Json = False) -> None:
    """Stop the embedded run and keep its data.

    Stops devices, gateway, stream, Kafka and broker in this order. Each drains first.
    """
    from deploy.local.down import stop_run
    from deploy.settings import data_dir

    outcome = stop_run(data_dir(data), notify=lambda line: typer.echo(line, err=True))
    if as_json:
        show_json(outcome)

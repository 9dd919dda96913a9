"""`tidegate make-topics`: a step of the embedded run, hidden from the help."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Config, Json, show_json

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command(hidden=True, name="make-topics")(make_topics)


def make_topics(
    config: Config,
    logins: Annotated[
        Path | None,
        typer.Option("--logins", help="Private file of a secured run: set Kafka's users and their rights first."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create missing Kafka topics, and report how existing ones differ from the settings."""
    from deploy.settings import load_settings
    from ingest.topics.setup import ensure_topics

    settings = load_settings(config)
    if logins is not None:
        from deploy.local.secured_run import set_kafka_users

        set_kafka_users(settings, logins)
    differences = ensure_topics(settings.kafka)
    for line in differences:
        typer.echo(line, err=True)
    if as_json:
        show_json({"differences": differences})

"""`tidegate make-topics`: a step of the embedded run, hidden from the help."""

import typer

from deploy.commands.options import Config, Json, show_json

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command(hidden=True, name="make-topics")(make_topics)


def make_topics(config: Config, as_json: Json = False) -> None:
    """Create missing Kafka topics, and report how existing ones differ from the settings."""
    from deploy.settings import load_settings
    from ingest.topics.setup import ensure_topics

    differences = ensure_topics(load_settings(config).kafka)
    for line in differences:
        typer.echo(line, err=True)
    if as_json:
        show_json({"differences": differences})

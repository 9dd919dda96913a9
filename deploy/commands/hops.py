"""`tidegate gateway | stream | canary`: one hop as one process. Hidden commands are steps of the embedded run."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Config, Json, show_json

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the commands to the command line."""
    parent.command()(gateway)
    parent.command()(stream)
    parent.command(hidden=True, name="make-topics")(make_topics)
    parent.command()(canary)


def gateway(config: Config) -> None:
    """Run hop 1: MQTT in, Kafka out.

    The gateway sends PUBACK after Kafka has the message. Changed routes, mappings and vendors of the settings file apply
    within seconds. SIGTERM stops it after it has drained.
    """
    from deploy.hops import run_gateway
    from deploy.settings_reload import SettingsFile

    run_gateway(SettingsFile(config))


def stream(
    config: Config,
    log_dir: Annotated[Path, typer.Option("--log-dir", help="Folder for Spark's own log.")] = Path(
        "tidegate-data/logs"
    ),
) -> None:
    """Run hop 3: Kafka in, Delta tables out.

    Writes each record exactly once. Only one stream may write to a tables root. SIGTERM stops it after it has drained.
    """
    from deploy.hops import run_stream
    from deploy.settings import load_settings

    run_stream(load_settings(config), log_dir=log_dir)


def make_topics(config: Config, as_json: Json = False) -> None:
    """Create missing Kafka topics, and report how existing ones differ from the settings."""
    from deploy.settings import load_settings
    from ingest.topic_setup import ensure_topics

    differences = ensure_topics(load_settings(config).kafka)
    for line in differences:
        typer.echo(line, err=True)
    if as_json:
        show_json({"differences": differences})


def canary(config: Config) -> None:
    """Publish a reading every few seconds and read it back from Delta.

    Its readings measure freshness. Run one next to a pipeline in production too. SIGTERM stops it.
    """
    from deploy.hops import run_canary_process
    from deploy.settings import load_settings

    run_canary_process(load_settings(config))

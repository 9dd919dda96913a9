"""`tidegate gateway`: hop 1 as one process."""

import typer

from deploy.commands.options import Config

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(gateway)


def gateway(config: Config) -> None:
    """Run hop 1: MQTT in, Kafka out.

    The gateway sends PUBACK after Kafka has the message. Changed routes, mappings and vendors of the settings file apply
    within seconds. SIGTERM stops it after it has drained.
    """
    from deploy.processes import run_gateway
    from deploy.settings_reload import SettingsFile

    run_gateway(SettingsFile(config))

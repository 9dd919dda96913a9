"""`tidegate canary`: publish a reading every few seconds and read it back."""

import typer

from deploy.commands.options import Config

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(canary)


def canary(config: Config) -> None:
    """Publish a reading every few seconds and read it back from Delta.

    Its readings measure freshness. Run one next to a pipeline in production too. SIGTERM stops it.
    """
    from deploy.processes import run_canary_process
    from deploy.settings import load_settings

    run_canary_process(load_settings(config))

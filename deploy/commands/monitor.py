"""`tidegate monitor`: the monitor with its ops page."""

import typer

from deploy.commands.options import Config

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(monitor)


def monitor(config: Config) -> None:
    """Watch all parts, check alerts, and serve the ops page.

    No part needs to run: the page shows which parts do not answer. It is on monitoring.page_port (9470).
    """
    from deploy.monitor.monitor_process import run_monitor
    from deploy.settings import load_settings

    run_monitor(load_settings(config), config)

"""`tidegate status`: parts, rates, latency, lag, objectives and alerts."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from deploy.commands.options import Data, Json, show_json

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(status)


def status(
    data: Data = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Ask the monitor of these settings, not an embedded run."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every 2 s until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Show parts, rates, latency, lag, objectives and alerts.

    The ops page shows the same.

    Exit 1 while the run is not ready, 69 when nothing runs.
    """
    from deploy.local.status import monitored_status, read_status
    from deploy.settings import data_dir, load_settings

    folder, settings = data_dir(data), load_settings(config) if config is not None else None

    def look() -> dict[str, Any]:
        return read_status(folder) if settings is None else monitored_status(settings)

    if watch:
        _follow(look, as_json=as_json)
    found = look()
    if as_json:
        show_json(found)
    else:
        _show(found)
    raise typer.Exit(0 if found["ready"] else 1)


def _show(found: dict[str, Any], *, redraw: bool = False) -> None:
    """Print the status; with `redraw` over the terminal's content, within its height."""
    import os
    import shutil
    import sys

    from deploy.local.status_text import render_status

    is_terminal = sys.stdout.isatty()
    height = shutil.get_terminal_size().lines - 1 if redraw and is_terminal else None
    text = render_status(found, colour=is_terminal and not os.environ.get("NO_COLOR"), height=height)
    # Home first, then clear what is below: a page that is drawn over itself does not flicker.
    typer.echo(("\x1b[H\x1b[2J" if redraw and is_terminal else "") + text)


def _follow(look: Callable[[], dict[str, Any]], *, as_json: bool) -> NoReturn:
    """Show the status every 2 s until interrupted; one JSON line each with `as_json`."""
    import json
    import time

    while True:
        found = look()
        if as_json:
            typer.echo(json.dumps(found))
        else:
            _show(found, redraw=True)
        time.sleep(2.0)

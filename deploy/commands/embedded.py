"""`tidegate up | down | status | logs`: the whole pipeline on this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the commands to the command line."""
    parent.command()(up)
    parent.command()(down)
    parent.command()(status)
    parent.command()(logs)


def up(
    detach: Annotated[bool, typer.Option("--detach", help="Run in the background.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="With --detach: return when the run is ready.")] = False,
    no_fleet: Annotated[bool, typer.Option("--no-fleet", help="Start no simulated devices.")] = False,
    no_prometheus: Annotated[
        bool, typer.Option("--no-prometheus", help="Start no Prometheus and Alertmanager, even if they are installed.")
    ] = False,
    data: Data = None,
    port_offset: Annotated[
        int,
        typer.Option("--port-offset", min=0, max=40000, help="Number to add to every port, for a second run."),
    ] = 0,
    config: OptionalConfig = None,
    as_json: Json = False,
) -> None:
    """Start the whole pipeline on this machine.

    Starts the broker, Kafka, the gateway, Spark, the ops page and a small simulated fleet. "ready" means that a reading
    has passed through all of them. Prometheus and Alertmanager start if they are installed.
    Ctrl-C stops everything in order. After --detach, `tidegate down` does.
    """
    from deploy.local.detach import run_detached
    from deploy.local.up import UpOptions, run_foreground
    from deploy.settings import data_dir, load_settings

    settings = load_settings(config)
    options = UpOptions(
        data=data_dir(data),
        config=config,
        port_offset=port_offset,
        fleet=not no_fleet,
        prometheus=not no_prometheus,
        as_json=as_json,
    )
    if detach:
        raise typer.Exit(run_detached(options, settings, wait=wait))
    raise typer.Exit(run_foreground(options, settings))


def down(data: Data = None, as_json: Json = False) -> None:
    """Stop the embedded run and keep its data.

    Stops devices, gateway, stream, Kafka and broker in this order. Each drains first.
    """
    from deploy.local.down import stop_run
    from deploy.settings import data_dir

    outcome = stop_run(data_dir(data), told=lambda line: typer.echo(line, err=True))
    if as_json:
        show_json(outcome)


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


def logs(
    part: Annotated[
        str | None,
        typer.Argument(
            help="Part: broker, kafka, gateway, stream, spark, canary, monitor, supervisor, … (default: all)."
        ),
    ] = None,
    data: Data = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Newest lines of each log to print first.")] = 50,
) -> None:
    """Print the logs of the parts."""
    import time

    from deploy.local.logs import follow_lines, last_lines
    from deploy.settings import data_dir

    files = _log_files(data_dir(data), part)
    for file in files:
        for line in last_lines(file, lines):
            typer.echo(_labelled(file, line, files))
    if follow:
        for found in follow_lines(files):
            if found is None:
                time.sleep(0.2)
            else:
                typer.echo(_labelled(*found, files))


def _log_files(data: Path, part: str | None) -> list[Path]:
    from ingest.contract.errors import UnavailableError

    folder = data / "logs"
    # Kafka and Spark write and limit their own logs.
    known = [*sorted(folder.glob("*.log")), *(data / "kafka" / "logs").glob("server.log")]
    chosen = [file for file in known if part is None or _part_of(file) == part]
    if not chosen:
        names = ", ".join(sorted({_part_of(file) for file in known}))
        msg = f"There is no log of {part or 'any part'} in {folder}. " + (
            f"There are: {names}."
            if names
            else "`tidegate up` started nothing there; name its folder with --data. For services outside `up`, ask their "
            "supervisor, such as `journalctl -u UNIT` or `docker logs CONTAINER`."
        )
        raise UnavailableError(msg)
    return chosen


def _part_of(file: Path) -> str:
    return "kafka" if file.name == "server.log" else file.stem


def _labelled(file: Path, line: str, files: list[Path]) -> str:
    return f"{_part_of(file):<10} {line}" if len(files) > 1 else line

"""`tidegate logs`: the logs of the parts."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Data

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(logs)


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

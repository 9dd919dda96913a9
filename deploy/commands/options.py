"""Options that several commands share, parsers of their values, and the forms of output: JSON and text tables."""

import getpass
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

__all__ = [
    "Author",
    "Brokers",
    "Config",
    "ConfigF",
    "Data",
    "Device",
    "DryRun",
    "Json",
    "KafkaConfig",
    "KeyDelimiter",
    "OptionalConfig",
    "Partition",
    "Reason",
    "Topic",
    "TopicOption",
    "given_reason",
    "one_topic",
    "open_input_lines",
    "parse_span",
    "parse_time",
    "show_json",
    "system_user",
    "text_table",
]

Data = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Folder of the embedded run (default: TIDEGATE_DATA, else ./tidegate-data).", show_default=False
    ),
]
Brokers = Annotated[
    str | None,
    typer.Option(
        "--brokers", "-b", metavar="HOST:PORT,…", help="Kafka brokers without login, in place of --config and --data.",
        show_default=False,
    ),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Config = Annotated[Path, typer.Option("--config", "-c", help="Settings file (TOML).", show_default=False)]
ConfigF = Annotated[
    Path | None,
    typer.Option(
        "--config", "-F", help="Settings file (TOML) with a [kafka] section, for login and TLS.", show_default=False
    ),
]
Topic = Annotated[str | None, typer.Argument(metavar="TOPIC", help="Kafka topic; or use -t TOPIC.", show_default=False)]
TopicOption = Annotated[
    str | None, typer.Option("-t", metavar="TOPIC", help="Kafka topic, in place of the argument.", show_default=False)
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.", show_default=False)
]
KeyDelimiter = Annotated[
    str | None,
    typer.Option("--key-delimiter", "-K", help="Text between key and value, such as : or \\t.", show_default=False),
]
OptionalConfig = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="Settings file (TOML) (default: the embedded run's, or the defaults).",
        show_default=False,
    ),
]

KafkaConfig = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        "-F",
        help="Settings file (TOML) with a [kafka] section, for login and TLS.",
        show_default=False,
    ),
]

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_WORDS: Final = ("seconds", "minutes", "hours", "days", "weeks")

Reason = Annotated[str, typer.Option("--reason", help="Reason, kept in the table's history and in the journal.")]
Author = Annotated[
    str | None, typer.Option("--author", help="Your name (default: the user of this system).", show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]
Device = Annotated[str, typer.Option("--device", "-d", help="Device id, as in the column `device`.")]


def show_json(value: object) -> None:
    """Print one JSON value to stdout, indented."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def parse_span(text: str) -> timedelta:
    """Parse a duration such as 30s, 10m, 2h, 1d, or in words such as 2 days.

    Raises:
        BadParameter: it is not a duration, or too long.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip())
    unit = _UNITS.get(match[2], match[2] if match[2].endswith("s") else f"{match[2]}s") if match else None
    if match is None or unit not in _WORDS:
        msg = f"Invalid duration {text!r}: use a number followed by s, m, h or d, such as 10m."
        raise typer.BadParameter(msg)
    try:
        return timedelta(**{unit: float(match[1])})
    except OverflowError as error:
        msg = f"Duration {text!r} is too long: use a smaller number."
        raise typer.BadParameter(msg) from error


def parse_time(text: str) -> datetime:
    """Parse a time: ISO 8601 (UTC if it does not name a zone), or a duration ago, such as 10m-ago or 2 days ago.

    Raises:
        BadParameter: it is neither, or before the year 1.
    """
    if text.endswith("ago"):
        span = parse_span(text.removesuffix("ago").rstrip("- "))
        try:
            return datetime.now(UTC) - span
        except OverflowError as error:
            msg = f"Time {text!r} is before the year 1: use a later one."
            raise typer.BadParameter(msg) from error
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        msg = f"Invalid time {text!r}: use ISO 8601 such as 2026-11-28T14:30:00Z, or a duration ago such as 10m-ago."
        raise typer.BadParameter(msg) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@contextmanager
def open_input_lines(file: Path) -> Iterator[Iterable[str]]:
    """Open the lines of a file, or of stdin for the name `-`.

    Raises:
        UnavailableError: the file cannot be read.
    """
    from ingest.contract.errors import UnavailableError

    if str(file) == "-":
        yield sys.stdin
        return
    try:
        lines = file.open(encoding="utf-8")
    except OSError as error:
        msg = f"{file} cannot be read ({error.strerror}). Give a file of JSON lines, or - for stdin."
        raise UnavailableError(msg) from error
    with lines:
        yield lines


def given_reason(reason: str) -> str:
    """Return the reason without blanks around it; an empty one is a wrong use of the command."""
    if not reason.strip():
        msg = "--reason is empty: give the reason for readers of the history."
        raise typer.BadParameter(msg)
    return reason.strip()


def system_user() -> str:
    """Return the name of the user who runs the command, for the history of the tables."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def one_topic(argument: str | None, option: str | None) -> str:
    """Return the topic that is given once, as an argument or by -t."""
    if (argument is None) == (option is None):
        msg = "Name one topic: TOPIC or -t TOPIC."
        raise typer.BadParameter(msg)
    return argument or option or ""


def text_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, names first; no line ends in spaces."""
    lines = [list(names), *map(list, rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]

"""Options that several commands share, so that they read the same everywhere."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Config", "Data", "Json", "OptionalConfig", "parse_span", "parse_time", "show_json"]

Data = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Folder of the embedded run (default ./tidegate-data, or TIDEGATE_DATA).", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Config = Annotated[Path, typer.Option("--config", "-c", help="Settings file (TOML).", show_default=False)]
OptionalConfig = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Settings file (TOML); without it the defaults.", show_default=False),
]


def show_json(value: object) -> None:
    """One JSON value to stdout, readable as it is."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def parse_span(text: str) -> timedelta:
    """A span of time such as 30s, 10m, 2h, 1d.

    Raises:
        BadParameter: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)", text.strip())
    if match is None:
        msg = f"{text!r} is no span of time; wanted a number and s, m, h or d, such as 10m"
        raise typer.BadParameter(msg)
    unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[match[2]]
    return timedelta(**{unit: float(match[1])})


def parse_time(text: str) -> datetime:
    """An instant: ISO 8601 (UTC where it names no zone), or how long ago, such as 10m-ago.

    Raises:
        BadParameter: it is neither.
    """
    if text.endswith("ago"):
        return datetime.now(UTC) - parse_span(text.removesuffix("ago").rstrip("- "))
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        msg = f"{text!r} is no time; wanted ISO 8601 such as 2026-11-28T14:30:00Z, or 10m-ago"
        raise typer.BadParameter(msg) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)

"""Options that several commands share, so that they read the same everywhere."""

import json
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Config", "Data", "Json", "OptionalConfig", "show_json"]

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

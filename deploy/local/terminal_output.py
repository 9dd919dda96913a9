"""Words to the person in front of the screen, who may have closed it: nothing that is said may end a run."""

from contextlib import suppress

import typer

__all__ = ["print_safely"]


def print_safely(text: str, *, err: bool = True) -> None:
    """Print a line; a closed terminal or a reader that stopped reading is not an error of the run."""
    # ValueError: the stream is closed.
    with suppress(OSError, ValueError):
        typer.echo(text, err=err)

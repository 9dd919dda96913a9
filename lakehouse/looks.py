"""When somebody last asked for the derived tables: their writer keeps them fresher meanwhile.

It is the time of a file next to the requests. The writer makes it, and each query touches it if its user may write there.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakehouse.paths import is_local, to_path
from lakehouse.requests import FOLDER

__all__ = ["last_look", "note_look", "watch_looks"]

FILE: Final = "looked"


def watch_looks(root: str) -> None:
    """Let queries say from now on that they asked; the writer calls it, so the file is its own."""
    if is_local(root):
        file = _file(root)
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():  # new tables count as a look, a new start of their writer does not
            file.touch()


def note_look(root: str) -> None:
    """Note that somebody asks for a derived table now, if the tables are on a local disk and this user may say so."""
    if is_local(root):
        with suppress(OSError):
            os.utime(_file(root))


def last_look(root: str) -> float:
    """Return when that was, in seconds since 1970; 0 where it is not known."""
    if is_local(root):
        with suppress(OSError):
            return _file(root).stat().st_mtime
    return 0.0


def _file(root: str) -> Path:
    return to_path(root) / FOLDER / FILE

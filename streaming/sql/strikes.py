"""SQL streams that ran when Spark's JVM ended by itself: after two such ends within ten minutes they stay stopped.

All streams share the JVM of the landing. One that needs more memory than there is ends it, and would end the next one too: then
nothing lands any more. Which of them it was is not known, so all that ran have a strike. A kill of the whole process leaves none.
"""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from lakehouse.atomic_file import write_json
from streaming.sql.applied_streams import read_json, streams_folder

__all__ = ["clear_strikes", "is_out", "note_strikes"]

NAME: Final = ".strikes.json"
"""The point distinguishes it from the file of a stream with this name."""
STRIKES: Final = 2
WINDOW_SECONDS: Final = 600.0


def note_strikes(root: str, names: Iterable[str], now: float | None = None) -> None:
    """Note that the JVM ended while these streams ran."""
    at = time.time() if now is None else now
    strikes = _read(root)
    for name in names:
        strikes[name] = [*strikes.get(name, []), at][-STRIKES:]
    _write(root, strikes)


def is_out(root: str, name: str) -> bool:
    """Return whether the stream waits for a person (`clear_strikes`): its last two strikes came within ten minutes."""
    strikes = _read(root).get(name, [])
    return len(strikes) >= STRIKES and strikes[-1] - strikes[0] <= WINDOW_SECONDS


def clear_strikes(root: str, name: str) -> None:
    """Let the stream start again: a person asked for it."""
    strikes = _read(root)
    if strikes.pop(name, None) is not None:
        _write(root, strikes)


def _read(root: str) -> dict[str, list[float]]:
    found = read_json(_file(root)) or {}
    return {str(name): [float(at) for at in strikes] for name, strikes in found.items()}


def _write(root: str, strikes: dict[str, list[float]]) -> None:
    write_json(_file(root), strikes)


def _file(root: str) -> Path:
    return streams_folder(root) / NAME

"""Logs of the parts: one file each, bounded; the last lines for `tidegate logs` and for error sentences."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["follow_lines", "last_lines", "rotate"]

TAIL_BYTES: Final = 256 * 1024


def rotate(log: Path, *, max_bytes: int) -> bool:
    """Move a log that has grown past its bound to LOG.1 and empty it in place; True where that was done.

    The writer keeps its open file (it appends), so no part has to know. Lines written between copy and cut are lost:
    that is the price of needing no cooperation.
    """
    try:
        if log.stat().st_size <= max_bytes:
            return False
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        with log.open("r+b") as handle:
            handle.truncate(0)
    except OSError:
        # A full disk must not end the supervisor; the next look tries again.
        return False
    return True


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines of a log; none where it is not there."""
    try:
        with log.open("rb") as handle:
            handle.seek(0, 2)
            handle.seek(max(0, handle.tell() - TAIL_BYTES))
            return handle.read().decode("utf-8", "replace").splitlines()[-count:]
    except OSError:
        return []


def follow_lines(logs: list[Path]) -> Iterator[tuple[Path, str] | None]:
    """Yield (log, line) without end as lines are added; None if there is nothing new. A truncated file starts again."""
    places = {log: log.stat().st_size if log.exists() else 0 for log in logs}
    while True:
        found = False
        for log in logs:
            for line in _added(log, places):
                found = True
                yield log, line
        if not found:
            yield None


def _added(log: Path, places: dict[Path, int]) -> list[str]:
    try:
        size = log.stat().st_size
        start = places[log] if size >= places[log] else 0
        with log.open("rb") as handle:
            handle.seek(start)
            block = handle.read(TAIL_BYTES)
    except OSError:
        return []
    whole = block[: block.rfind(b"\n") + 1] if len(block) < TAIL_BYTES else block
    places[log] = start + len(whole)
    return whole.decode("utf-8", "replace").splitlines()

"""Has a file, or a folder of files, changed? Asked about once a second, answered without reading any of them."""

import os
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["FolderWatch", "Stamp", "stamp_of"]


class Stamp(NamedTuple):
    """What tells one content of a file from another; links are followed, so that a mounted volume's switch is seen."""

    modified_ns: int
    size_bytes: int
    inode: int


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino)


class FolderWatch:
    """Says what there is once it has stood still from one look to the next: a file half written is not yet a change."""

    def __init__(self, look: Callable[[], dict[str, Stamp]]) -> None:
        """`look` gives each file's stamp by name, and raises OSError where it cannot."""
        self._look = look
        self._taken: dict[str, Stamp] | None = None
        self._seen: dict[str, Stamp] | None = None

    def changed(self) -> dict[str, Stamp] | None:
        """The files where they are others than at the last `take` and stood still since the last call; else None.

        Raises:
            OSError: they cannot be looked at.
        """
        now = self._look()
        is_still, self._seen = now == self._seen, now
        return now if is_still and now != self._taken else None

    def take(self, stamps: dict[str, Stamp]) -> None:
        """These have been read (or refused): they are no change any more."""
        self._taken = self._seen = stamps

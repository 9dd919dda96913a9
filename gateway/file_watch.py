"""Changes of a file or a folder of files, checked about once a second without reading any of them."""

import os
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["FileStamp", "FolderWatch", "file_stamp"]


class FileStamp(NamedTuple):
    """Stamp that differs between contents of a file. Links are followed, so that a switch of a mounted volume is noticed."""

    modified_ns: int
    size_bytes: int
    inode: int


def file_stamp(found: os.stat_result) -> FileStamp:
    """Return the stamp of a file."""
    return FileStamp(found.st_mtime_ns, found.st_size, found.st_ino)


class FolderWatch:
    """Watch that reports files once they are unchanged between two looks: a half-written file is not a change yet."""

    def __init__(self, look: Callable[[], dict[str, FileStamp]]) -> None:
        """Take `look`, which returns each file's stamp by name, and raises OSError if it cannot."""
        self._look = look
        self._taken: dict[str, FileStamp] | None = None
        self._seen: dict[str, FileStamp] | None = None

    def changed(self) -> dict[str, FileStamp] | None:
        """Return the files if they differ from the last `take` and are unchanged since the last call; else None.

        Raises:
            OSError: they cannot be checked.
        """
        now = self._look()
        is_still, self._seen = now == self._seen, now
        return now if is_still and now != self._taken else None

    def take(self, stamps: dict[str, FileStamp]) -> None:
        """Note that these have been read (or rejected): they are no longer a change."""
        self._taken = self._seen = stamps

"""Lock of a folder for one writer: a lock file with `flock`, which every process that inherits it also holds.

A local Delta table has no lock between processes: of two writers both would report success and one would lose its commit. The
kernel drops the lock when the last holder ends, so a crash needs no cleanup.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from ingest.contract.errors import FatalError

__all__ = ["LOCK_NAME", "WriterLock", "is_flocked", "is_held"]

LOCK_NAME: Final = "_writer.lock"


class WriterLock:
    """Holds `<folder>/_writer.lock` until closed; `fd` can be handed to a child process, which then holds it as well."""

    def __init__(self, folder: Path, *, what: str, patience_seconds: float = 30.0) -> None:
        """Take the lock.

        Args:
            folder: created where it is missing.
            what: how to name the folder to people, such as `tables`.
            patience_seconds: how long to wait for a holder whose process is gone: its JVM is still ending.

        Raises:
            FatalError: another process holds it; names the process.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / LOCK_NAME
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + patience_seconds
        while not self._try():
            holder = self._holder()
            if holder is not None or time.monotonic() > deadline:
                os.close(self.fd)
                raise FatalError(self._refusal(folder, what, holder))
            time.sleep(0.1)
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Give the lock up (a child that inherited it keeps it)."""
        with suppress(OSError):
            os.close(self.fd)

    def _try(self) -> bool:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _holder(self) -> int | None:
        """The living process that wrote its id into the lock; None where it is gone."""
        text = os.pread(self.fd, 32, 0).decode("ascii", "replace").strip()
        if not text.isdigit():
            return None
        try:
            os.kill(int(text), 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return int(text)

    @staticmethod
    def _refusal(folder: Path, what: str, holder: int | None) -> str:
        by = f"Process {holder}" if holder is not None else "The JVM of a process that has ended"
        then = f"Stop it first (`kill {holder}`)" if holder is not None else "Look for a java process and stop it"
        return f"{by} is writing the {what} in {folder}; a second writer would lose rows. {then}, then start again."


def is_held(folder: Path) -> bool:
    """Return whether a process is writing there now."""
    return is_flocked(folder / LOCK_NAME)


def is_flocked(path: Path) -> bool:
    """Return whether a process holds this file or folder; takes the lock for a moment to find out."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False

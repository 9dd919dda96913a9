"""Ports that a run has been promised: locks that other runs of this user see, from the choice to the end of the run.

Between the choice of a port and the moment at which its server listens lie seconds; two runs that start together would
choose the same ones. The kernel drops the locks with the process.
"""

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["PortClaims"]

TRIES: Final = 100


class PortClaims:
    """The ports of this run; `folder` is for tests."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or _folder()
        self._held: dict[Path, int] = {}

    def claim(self, port: int) -> bool:
        """Take a port; False where another run has it. A machine that lets no lock be made has no claims: True."""
        file = self._folder / f"port-{port}.lock"
        if file in self._held:
            return True
        try:
            handle = _locked(file)
        except OSError:
            return True
        if handle is not None:
            self._held[file] = handle
        return handle is not None

    def release(self) -> None:
        """Give all of them back, and leave no file."""
        for file, handle in self._held.items():
            with suppress(OSError):
                file.unlink(missing_ok=True)
            os.close(handle)
        self._held.clear()
        # It goes with the last run that needs it.
        with suppress(OSError):
            self._folder.rmdir()


def _locked(file: Path) -> int | None:
    """An open, locked file; None where another process holds its lock."""
    for _ in range(TRIES):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            continue  # a run that ends at this moment took the folder away
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its last holder may have removed the name between our open and our lock: then the lock is on nothing.
            if os.path.samestat(os.fstat(handle), file.stat()):
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except FileNotFoundError:
            pass
        os.close(handle)
    return None


def _folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    place = Path(runtime) if runtime and os.access(runtime, os.W_OK) else Path(tempfile.gettempdir())
    return place / f"tidegate-{os.getuid()}"

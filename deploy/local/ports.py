"""Ports of a run: the preferred one if it is free, else the next free one, and claims that keep them from other runs."""

import errno
import fcntl
import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from ingest.contract.errors import UnavailableError

__all__ = ["PortClaims", "choose_port", "is_free", "owner_of"]

TRIED: Final = 200
LOWEST: Final = 20_000
SYSTEM_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_SYSTEM_LOWEST: Final = 32_768
_LOCK_TRIES: Final = 100
_given: Final[set[int]] = set()
"""Ports chosen for 0 in this process; their servers may not listen yet."""


def choose_port(
    preferred: int,
    host: str = "127.0.0.1",
    *,
    taken: Collection[int] = (),
    claim: Callable[[int], bool] = lambda port: True,
) -> tuple[int, str]:
    """Choose a port that is free now, from `preferred` upwards.

    A port that no server listens on yet cannot be reserved. So `claim` keeps it from other runs until then.

    Args:
        preferred: the wanted port; 0 for any.
        host: the address to listen on.
        taken: ports of other parts of the same run.
        claim: takes the port for this run; False if another run has it. Called last.

    Returns:
        The port, and a sentence for people if it is another one than `preferred`; else an empty text.

    Raises:
        UnavailableError: none of the next 200 ports is free.
    """
    if preferred == 0:
        return next(port for port in iter(lambda: _any_port(host), None) if claim(port)), ""
    for port in range(preferred, min(preferred + TRIED, 65536)):
        if port not in taken and is_free(port, host) and claim(port):
            return port, "" if port == preferred else _note(preferred, port, host, promised=preferred in taken)
    message = (
        f"No port from {preferred} to {preferred + TRIED - 1} is free on {host}. Move the ports with --port-offset."
    )
    raise UnavailableError(message)


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a server could listen there. Connections that still close do not matter: servers reuse their ports."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            message = f"Cannot listen on {host}: {error.strerror or error}. Use an address of this machine."
            raise UnavailableError(message) from error
    return True


def owner_of(port: int) -> str | None:
    """Return name and pid of the process that listens on `port`; None if this user may not see it."""
    try:
        listening = [entry for entry in psutil.net_connections("tcp") if entry.status == psutil.CONN_LISTEN]
        pid = next((entry.pid for entry in listening if entry.laddr and entry.laddr.port == port), None)
        return None if pid is None else f"{psutil.Process(pid).name()}, pid {pid}"
    except psutil.Error:
        return None


def _note(preferred: int, port: int, host: str, *, promised: bool) -> str:
    if promised:
        return f"another part has port {preferred}; using {port}"
    if not preferred >= 1024 and not owner_of(preferred):
        return f"this user may not listen on port {preferred} of {host}; using {port}"
    owner = owner_of(preferred) or ("another process" if not is_free(preferred, host) else "another starting run")
    return f"port {preferred} is taken ({owner}); using {port}"


def _any_port(host: str) -> int:
    """Return a free port outside of the range from which the system chooses ports itself.

    The system may give a port of that range to a connection before our server listens: Kafka takes seconds to start.
    """
    room = _system_lowest() - LOWEST
    for _ in range(TRIED if room >= TRIED else 0):
        port = LOWEST + secrets.randbelow(room)
        if port not in _given and is_free(port, host):
            _given.add(port)
            return port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _system_lowest() -> int:
    """Return the lowest port that this system chooses itself."""
    with suppress(OSError, ValueError, IndexError):
        return int(SYSTEM_RANGE.read_text("ascii").split()[0])
    return USUAL_SYSTEM_LOWEST


class PortClaims:
    """Ports that this run keeps until its end, as file locks that other runs of this user see; `folder` is for tests.

    Without claims, two runs that start together would choose the same ports: a server listens only seconds after the choice.
    The kernel drops the locks with the process.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or _folder()
        self._held: dict[Path, int] = {}

    def claim(self, port: int) -> bool:
        """Take a port; False if another run has it. True also if this machine cannot make locks: it has no claims then."""
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
        """Release all ports and remove the files of the locks."""
        for file, handle in self._held.items():
            with suppress(OSError):
                file.unlink(missing_ok=True)
            os.close(handle)
        self._held.clear()
        # Only the last run can remove the folder.
        with suppress(OSError):
            self._folder.rmdir()


def _locked(file: Path) -> int | None:
    """Return a descriptor of the locked file; None if another process holds its lock."""
    for _ in range(_LOCK_TRIES):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            continue  # a run that ends at this moment has removed the folder
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last holder may have removed the file between our open and our lock; the lock is useless then.
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

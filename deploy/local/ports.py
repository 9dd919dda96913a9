"""Chooses ports: the preferred one if it is free, else the next free one, with a note about the owner of the first."""

import errno
import secrets
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from ingest.contract.errors import UnavailableError

__all__ = ["choose_port", "is_free", "owner_of"]

TRIED: Final = 200
LOWEST: Final = 20_000
SYSTEM_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_SYSTEM_LOWEST: Final = 32_768
_given: Final[set[int]] = set()
"""Chosen for 0 in this process: their servers may not listen yet."""


def choose_port(
    preferred: int,
    host: str = "127.0.0.1",
    *,
    taken: Collection[int] = (),
    claim: Callable[[int], bool] = lambda port: True,
) -> tuple[int, str]:
    """A port that is free now, from `preferred` upwards; any for 0.

    Nobody can keep a port without listening on it: `claim` keeps it from other runs until it is used.

    Args:
        preferred: the wish; 0 for any.
        host: the address to listen on.
        taken: ports already promised to other parts of the same run.
        claim: whether no other run has been promised this port; asked last, and then it is ours.

    Returns:
        The port and a sentence for people, empty when the wish came true.

    Raises:
        UnavailableError: none of the next 200 is free.
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
    """Return whether a server could listen there; connections that still close do not count, as servers reuse those."""
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
    """Name and pid of the process that listens on `port`; None where this user may not know."""
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
    """Return a port that the system does not give away by itself.

    Those that it gives to connections and to who asks for any may be gone before our server listens: a Kafka takes seconds.
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
    """Return the lowest port that this system gives away by itself."""
    with suppress(OSError, ValueError, IndexError):
        return int(SYSTEM_RANGE.read_text("ascii").split()[0])
    return USUAL_SYSTEM_LOWEST

"""Messages to systemd, if it started this process with Type=notify: ready, a sentence about its state, a sign of life.

Without `NOTIFY_SOCKET` in the environment nothing happens. A lost message is not an error: systemd gets the next one.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["notify_service_manager"]

STATUS_SECONDS: Final = 5.0
"""The state in `systemctl status` is at most so old."""
SEND_SECONDS: Final = 1.0
SIGNS: Final = 3
"""Signs of life in the time after which systemd gives up."""


@contextmanager
def notify_service_manager(
    healthy: Callable[[], tuple[bool, str]],
    alive: Callable[[], bool] = lambda: True,
    *,
    environ: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Say that the process is ready, and while the block runs how it is and that it lives; at the end, that it stops.

    The sign of life is missing while `alive` is false, so systemd restarts the process after the unit's WatchdogSec.

    Args:
        healthy: whether the process does its work, and a sentence.
        alive: whether the process could do its work without a restart.
        environ: the environment; that of the process by default.
    """
    environ = os.environ if environ is None else environ
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        yield
        return
    patience = _watchdog_seconds(environ)
    every = min(STATUS_SECONDS, patience / SIGNS) if patience else STATUS_SECONDS
    ended = threading.Event()

    def report() -> None:
        state = "READY=1\n"
        while True:
            sign = "WATCHDOG=1\n" if patience and alive() else ""
            _send(address, f"{state}{sign}STATUS={' '.join(healthy()[1].split())}\n")
            state = ""
            if ended.wait(every):
                return

    thread = threading.Thread(target=report, name="service-notify", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(SEND_SECONDS)
        _send(address, "STOPPING=1\n")


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """Return the time after which systemd ends a silent process; 0 if it waits for no sign of this process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    with suppress(ValueError):
        return max(0.0, int(environ.get("WATCHDOG_USEC", "0")) / 1e6)
    return 0.0


def _send(address: str, text: str) -> None:
    # "@" begins the name of an abstract socket.
    name = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.settimeout(SEND_SECONDS)
        sender.sendto(text.encode(), name)

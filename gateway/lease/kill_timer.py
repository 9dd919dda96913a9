"""Timer of the kernel that kills this process at a time, even while it is stopped or one of its threads hangs.

A holder of a lease that another process may take must send nothing after its end. Its own code cannot ensure that: after
SIGCONT the Kafka client's thread sends its queue before any Python runs. SIGKILL reaches a stopped process.
"""

import ctypes
import logging
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

__all__ = ["KillTimer", "lease_clock"]

logger = logging.getLogger("tidegate.gateway")

_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
_ABSOLUTE: Final = 1
_SIGNAL: Final = 0


class _SignalEvent(ctypes.Structure):
    """`struct sigevent` of Linux on 64 bits; the kernel reads 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )


class _TimerTimes(ctypes.Structure):
    """`struct itimerspec` of Linux on 64 bits."""

    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


def lease_clock() -> float:
    """Return monotonic seconds that also count while the machine is suspended, where the system has such a clock."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class KillTimer:
    """One timer of this process. Not armed at first. `available`: False on a system without such timers."""

    def __init__(self) -> None:
        self._set: Callable[[float], None] | None = None
        try:
            self._set = _make_timer()
        except (OSError, AttributeError) as error:
            logger.warning(
                "This system has no timer that could end a gateway that hangs (%s). After a hang its last records may follow "
                "those of the standby; the audit shows them.",
                error,
            )

    @property
    def available(self) -> bool:
        """Return whether the system has such timers."""
        return self._set is not None

    def arm(self, at: float) -> None:
        """Kill this process at that time of `lease_clock`; replaces the time set before."""
        if self._set is not None:
            # An absolute time of 0 would disarm it.
            self._set(max(at, 1e-9))

    def disarm(self) -> None:
        """Kill it at no time."""
        if self._set is not None:
            self._set(0.0)


def _make_timer() -> Callable[[float], None]:
    """Return the function that sets the timer to a time of CLOCK_BOOTTIME; 0 disarms it.

    Raises:
        OSError: the system does not have such timers.
    """
    if _BOOTTIME is None or not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_long) != 8:
        message = "not Linux on 64 bits"
        raise OSError(message)
    library = ctypes.CDLL(None, use_errno=True)
    timer = ctypes.c_void_p()
    event = _SignalEvent(number=signal.SIGKILL, notify=_SIGNAL)
    _check(library.timer_create(_BOOTTIME, ctypes.byref(event), ctypes.byref(timer)))

    def set_time(at: float) -> None:
        seconds, part = divmod(at, 1.0)
        times = _TimerTimes(seconds=int(seconds), nanoseconds=int(part * 1e9))
        _check(library.timer_settime(timer, _ABSOLUTE, ctypes.byref(times), None))

    return set_time


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"timer: error {number}")

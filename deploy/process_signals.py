"""Basics of every long-running process: a stop event that signals set, private files, and a log with one line per event."""

import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["configure_logging", "keep_files_private", "stop_on_signals", "terminated_as_interrupted"]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def keep_files_private() -> int:
    """Keep other users of the machine out of all files that this process and its children make; return the umask.

    The umask becomes 077. A given one that already keeps others out is kept: `UMask=0027` of a service shares its files with its
    group.
    """
    given = os.umask(0o077)
    if given & 0o007 != 0o007:
        return 0o077
    os.umask(given)
    return given


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and Ctrl-C set; a second Ctrl-C ends the process at once."""
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    return stop


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP end a command as Ctrl-C does, so that it cleans up behind itself."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _EventFormatter(logging.Formatter):
    """Only an event begins a line: what a device said in an error's text can neither forge one nor steer a terminal.

    Secrets of the settings are masked, whichever library put them into an error's text.
    """

    def format(self, record: logging.LogRecord) -> str:
        from deploy.secret_values import mask_secrets  # here, because `--help` loads this module but no settings

        text = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", mask_secrets(super().format(record)))
        return text.replace("\n", "\n    ")


def configure_logging(level: int = logging.INFO) -> None:
    """Log to stderr, times in UTC; what libraries log below a warning is left out."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = _EventFormatter("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("tidegate").setLevel(level)

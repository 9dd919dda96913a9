"""What every long-running process of ours needs: a stop event set by signals, and a log of one line per event."""

import logging
import signal
import sys
import threading
import time

__all__ = ["configure_logging", "stop_on_signals"]


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


def configure_logging(level: int = logging.INFO) -> None:
    """Log to stderr, times in UTC; what libraries log below a warning is left out."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("tidegate").setLevel(level)

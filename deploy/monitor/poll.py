"""Asks something every few seconds on a thread of its own and keeps the newest answer; who asks it never waits."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Poll"]

T = TypeVar("T")

logger = logging.getLogger("tidegate.deploy.monitor")


class Poll(Generic[T]):
    """`newest` is the last answer that is not older than three periods; `default` before and after that."""

    def __init__(self, name: str, every_seconds: float, ask: Callable[[], T], *, default: T) -> None:
        self._every_seconds, self._ask, self._default = every_seconds, ask, default
        self._answer, self._at = default, 0.0
        self._stop = threading.Event()
        self._fault = ""
        self._thread = threading.Thread(target=self._run, name=f"poll-{name}", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Ask no more; a question that hangs ends with the process."""
        self._stop.set()
        self._thread.join(0.2)

    @property
    def newest(self) -> T:
        """The newest answer."""
        fresh = time.monotonic() - self._at <= max(6.0, 3 * self._every_seconds)
        return self._answer if fresh else self._default

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._answer, self._at = self._ask(), time.monotonic()
            except Exception as error:
                if (fault := f"{type(error).__name__}: {error}") != self._fault:
                    logger.warning("%s: %s", self._thread.name, fault)
                    self._fault = fault
            self._stop.wait(self._every_seconds)

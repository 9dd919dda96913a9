"""Ask a question every few seconds on its own thread and keep the newest answer; readers never wait.

A question that hangs blocks only its own poll, and not the end of the process. An answer is dropped after three missed periods.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

__all__ = ["IncompleteError", "PeriodicQuery"]

T = TypeVar("T")

MISSED_PERIODS: Final = 3
LEAST_PATIENCE_SECONDS: Final = 6.0
LEAST_PAUSE_SECONDS: Final = 0.1

logger = logging.getLogger("tidegate.monitoring.poll")


class IncompleteError(Exception):
    """A partial answer: raised by a question, it is kept as the answer, but the question counts as failed."""

    def __init__(self, fault: str, answer: Any) -> None:
        super().__init__(fault)
        self.answer = answer


class PeriodicQuery(Generic[T]):
    """One question that is repeated. `fault` says why it has no answer; it is empty while it has one.

    Args:
        name: name of the poll, for the log.
        every_seconds: from one question to the next.
        ask: the question.
        default: the value without an answer.
        take: gets each answer at once, and `default` when the answer is dropped; an exception counts as a fault of the answer.
        done: called after each question that was answered in full.
        at_end: frees the resources of `ask` after the last question.
    """

    def __init__(
        self,
        name: str,
        every_seconds: float,
        ask: Callable[[], T],
        *,
        default: T,
        take: Callable[[T], object] = lambda _answer: None,
        done: Callable[[], object] = lambda: None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._name, self._every_seconds, self._ask, self._default = name, every_seconds, ask, default
        self._take, self._done, self._at_end = take, done, at_end
        self._answer, self._answered_at, self._forgotten = default, time.monotonic(), False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.fault = ""

    def start(self) -> None:
        """Start to ask; a second call does nothing."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Stop asking; a question that is running continues."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait for the running question, if there is one. A question that hangs longer ends with the process."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, seconds))

    @property
    def newest(self) -> T:
        """Newest answer, or `default` if it is too old."""
        self.forget_old()
        return self._answer

    def forget_old(self) -> None:
        """Drop the answer if no new one has come for too long."""
        with self._lock:
            silent = time.monotonic() - self._answered_at
            if self._forgotten or silent <= max(LEAST_PATIENCE_SECONDS, MISSED_PERIODS * self._every_seconds):
                return
            self._answer, self._forgotten = self._default, True
            self.fault = self.fault or f"no answer for {silent:.0f} s"
            self._take(self._default)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                self._turn()
                self._stop.wait(max(LEAST_PAUSE_SECONDS, self._every_seconds - (time.monotonic() - began)))
        finally:
            self._at_end()

    def _turn(self) -> None:
        try:
            try:
                answer = self._ask()
            except IncompleteError as error:
                self._keep(error.answer)
                raise
            self._keep(answer)
        except Exception as error:
            self._fail(error)
        else:
            self.fault = ""
            self._done()

    def _keep(self, answer: T) -> None:
        with self._lock:
            self._take(answer)
            self._answer, self._answered_at, self._forgotten = answer, time.monotonic(), False

    def _fail(self, error: Exception) -> None:
        fault = str(error) or type(error).__name__
        if fault != self.fault:
            what = "has an incomplete answer" if isinstance(error, IncompleteError) else "has no answer"
            logger.warning("%s %s: %s", self._name, what, fault)
        self.fault = fault

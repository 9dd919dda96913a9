"""A few threads for slow answers. A question that hangs blocks one of them, but never the server or its shutdown."""

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from monitoring.page.page_api import PageError

__all__ = ["Workers"]

T = TypeVar("T")
THREADS: Final = 3
WAITING: Final = 16


@dataclass(frozen=True, slots=True)
class _Question:
    """A question in the queue; `is_over` returns True when nobody waits for the answer any more."""

    ask: Callable[[], Any]
    tell: Callable[[Any, BaseException | None], None]
    is_over: Callable[[], bool]


class Workers:
    """Daemon threads, started with the first question; at most `WAITING` questions wait for a thread.

    Questions that must not wait for others have their own workers.
    """

    def __init__(self, name: str = "page", *, threads: int = THREADS) -> None:
        self._name, self._threads = name, threads
        self._queue: queue.Queue[_Question] = queue.Queue(WAITING)
        self._started = False

    async def run(self, question: Callable[[], T], *, patience_seconds: float) -> T:
        """Return the answer.

        Raises:
            PageError: too many questions wait already, or the answer took too long. A running question is not stopped; one
                that still waits for a thread is dropped.
        """
        if not self._started:
            self._started = True
            for number in range(self._threads):
                threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True).start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def tell(value: T, error: BaseException | None) -> None:
            if not answer.done():
                answer.set_exception(error) if error is not None else answer.set_result(value)

        try:
            self._queue.put_nowait(
                _Question(question, lambda value, error: _tell(loop, tell, value, error), answer.done)
            )
        except queue.Full:
            raise PageError(
                503, "The monitor is busy: too many requests wait for an answer. Try again in a moment."
            ) from None
        try:
            return await asyncio.wait_for(answer, patience_seconds)
        except TimeoutError:
            raise PageError(503, f"No answer within {patience_seconds:g} s. Try again later.") from None

    def _work(self) -> None:
        while True:
            question = self._queue.get()
            if question.is_over():
                continue
            try:
                value = question.ask()
            except Exception as error:
                question.tell(None, error)
            else:
                question.tell(value, None)


def _tell(loop: asyncio.AbstractEventLoop, tell: Callable[[Any, Any], None], value: Any, error: Any) -> None:
    try:
        loop.call_soon_threadsafe(tell, value, error)
    except RuntimeError:
        return  # the server has stopped

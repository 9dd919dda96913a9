"""A few threads for answers that take a while. A question that hangs holds one of them, never the server or its end."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from monitoring.page.answers import PageError

__all__ = ["Workers"]

T = TypeVar("T")
THREADS: Final = 3
WAITING: Final = 16
PATIENCE_SECONDS: Final = 30.0


class Workers:
    """Daemon threads, started when the first question comes; at most `WAITING` questions wait for one."""

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = queue.Queue(
            WAITING
        )
        self._started = False

    async def run(self, question: Callable[[], T], *, patience_seconds: float = PATIENCE_SECONDS) -> T:
        """The answer.

        Raises:
            PageError: too many wait already, or it took too long; the question itself is not broken off.
        """
        if not self._started:
            self._started = True
            for number in range(THREADS):
                threading.Thread(target=self._work, name=f"page-{number}", daemon=True).start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def tell(value: T, error: BaseException | None) -> None:
            if not answer.done():
                answer.set_exception(error) if error is not None else answer.set_result(value)

        try:
            self._queue.put_nowait((question, lambda value, error: _tell(loop, tell, value, error)))
        except queue.Full:
            raise PageError(503, "Too many questions wait for an answer; try again in a moment.") from None
        try:
            return await asyncio.wait_for(answer, patience_seconds)
        except TimeoutError:
            raise PageError(503, f"No answer within {patience_seconds:g} s; try again later.") from None

    def _work(self) -> None:
        while True:
            question, tell = self._queue.get()
            try:
                value = question()
            except Exception as error:
                tell(None, error)
            else:
                tell(value, None)


def _tell(loop: asyncio.AbstractEventLoop, tell: Callable[[Any, Any], None], value: Any, error: Any) -> None:
    try:
        loop.call_soon_threadsafe(tell, value, error)
    except RuntimeError:
        return  # the server has ended meanwhile

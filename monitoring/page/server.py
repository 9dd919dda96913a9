"""Threads of the page: the server has one thread of its own, and slow answers have workers.

The server stops within two seconds even while viewers are connected. A question that hangs blocks one worker, but never the
server or its shutdown. A client that sends no whole request takes no place from one that does.
"""

import asyncio
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from monitoring.page.page_api import PageError

__all__ = ["PageServer", "Workers"]

START_SECONDS: Final = 5.0
MOST_CONNECTIONS: Final = 256
GRACE_SECONDS: Final = 1
REQUEST_SECONDS: Final = 10.0
"""Time that a connection has for its next request, without a body."""

T = TypeVar("T")
WORKER_THREADS: Final = 3
WAITING_QUESTIONS: Final = 16


class PageServer:
    """One app on one address; `port=0` takes a free port (read it back from `port`).

    Raises:
        OSError: the address cannot be bound; `strerror` says why.
    """

    def __init__(self, app: ASGIApp, *, host: str, port: int) -> None:
        # uvicorn logs each browser that leaves during a stream; the app logs its own errors.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=128)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=GRACE_SECONDS,
            h11_max_incomplete_event_size=32 * 1024,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="page", daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.should_exit = True
        self._thread.join(GRACE_SECONDS + 0.5)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(0.3)
        self._socket.close()


class _Connection(H11Protocol):
    """A connection that ends if its request does not come, and gives way to newer ones as long as it has none."""

    _late: asyncio.TimerHandle | None = None
    _began = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the place of the oldest connection without a request if all places are taken."""
        super().connection_made(transport)
        self._began = self.loop.time()
        self._watch()
        if len(self.connections) >= MOST_CONNECTIONS:
            others = (each for each in self.connections if isinstance(each, _Connection) and each is not self)
            idle = [each for each in others if each.is_idle and not each.transport.is_closing()]
            if idle:
                min(idle, key=lambda each: each._began).transport.close()

    def data_received(self, data: bytes) -> None:
        """Start the clock with the first part of a request, and stop it with the last."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """True while no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _watch(self) -> None:
        if not self.is_idle and self._late is not None:
            self._late.cancel()
            self._late = None
        elif self.is_idle and self._late is None:
            self._late = self.loop.call_later(REQUEST_SECONDS, self._end)

    def _end(self) -> None:
        self._late = None
        if self.is_idle:
            self.transport.close()


@dataclass(frozen=True, slots=True)
class _Question:
    """A question in the queue; `is_over` returns True when nobody waits for the answer any more."""

    ask: Callable[[], Any]
    tell: Callable[[Any, BaseException | None], None]
    is_over: Callable[[], bool]


class Workers:
    """Daemon threads, started with the first question; at most `WAITING_QUESTIONS` questions wait for a thread.

    Questions that must not wait for others have their own workers.
    """

    def __init__(self, name: str = "page", *, threads: int = WORKER_THREADS) -> None:
        self._name, self._threads = name, threads
        self._queue: queue.Queue[_Question] = queue.Queue(WAITING_QUESTIONS)
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

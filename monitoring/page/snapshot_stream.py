"""Live stream of snapshots. Every viewer gets the newest one; a slow viewer skips some, a dead one is disconnected."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from prometheus_client import Gauge
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from monitoring.page.page_api import PageError
from monitoring.page.snapshot_broadcaster import SnapshotBroadcaster

__all__ = ["MOST_VIEWERS", "SnapshotViewers"]

MOST_VIEWERS: Final = 50
SEND_SECONDS: Final = 10.0
"""A viewer that accepts no data for this long has gone, even if its connection is still open."""


class SnapshotViewers:
    """All browsers that follow the stream. Use it on the server's loop only, except `close`."""

    def __init__(self, board: SnapshotBroadcaster, gauge: Gauge) -> None:
        self._board, self._gauge = board, gauge
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._count = 0
        self._closed = False

    def response(self) -> EventSourceResponse:
        """Return the stream for one more browser.

        Raises:
            PageError: MOST_VIEWERS browsers follow already.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._board.listen(self._notify_threadsafe)
        if self._count >= MOST_VIEWERS:
            raise PageError(
                503, f"{MOST_VIEWERS} browsers have this page open, which is the limit. Close one and reload."
            )
        return _Stream(self, self._follow(), ping=15, send_timeout=SEND_SECONDS)

    def entered(self, change: int) -> None:
        """Count one viewer more or less."""
        self._count += change
        self._gauge.set(self._count)

    def close(self) -> None:
        """End all streams; safe from any thread."""
        self._closed = True
        self._notify_threadsafe()

    async def _follow(self) -> AsyncIterator[bytes]:
        shown = None
        while not self._closed:
            news = self._news
            if (event := self._board.event) is not None and event is not shown:
                shown = event
                yield event
            if not self._closed and self._board.event is shown:
                await news.wait()

    def _notify_threadsafe(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class _Stream(EventSourceResponse):
    """A stream that is counted while it is open; its end because of a slow viewer is not an error."""

    def __init__(
        self, viewers: SnapshotViewers, events: AsyncIterator[bytes], *, ping: int, send_timeout: float
    ) -> None:
        super().__init__(events, ping=ping, send_timeout=send_timeout, sep="\n")
        self._viewers = viewers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._viewers.entered(1)
        try:
            with suppress(SendTimeoutError):
                await super().__call__(scope, receive, send)
        finally:
            self._viewers.entered(-1)

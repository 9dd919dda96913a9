"""The newest snapshot, encoded once for all viewers, its live stream, and half an hour of its chart points.

Every viewer of the stream gets the newest snapshot. A slow viewer skips some, and a dead one is disconnected.
"""

import asyncio
import json
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from prometheus_client import Gauge
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from monitoring.page.page_api import PageError

__all__ = ["MOST_VIEWERS", "SnapshotBroadcaster", "SnapshotViewers", "encode_ascii_json"]

KEPT_SECONDS: Final = 1800.0
MOST_VIEWERS: Final = 50
SEND_SECONDS: Final = 10.0
"""A viewer that accepts no data for this long has gone, even if its connection is still open."""


def encode_ascii_json(value: object) -> bytes:
    """Encode as ASCII JSON, so that texts from devices are always escaped. A number that JSON cannot express becomes null."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    return text.encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class SnapshotBroadcaster:
    """The newest snapshot; the look's thread writes it, the server's thread reads it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points: deque[tuple[float, Mapping[str, float | None]]] = deque()
        self._listeners: list[Callable[[], None]] = []
        self._encoded: bytes | None = None
        self._event: bytes | None = None

    def publish(self, snapshot: Mapping[str, Any]) -> None:
        """Replace the snapshot and wake its listeners."""
        encoded, at = encode_ascii_json(snapshot), float(snapshot["at"])
        with self._lock:
            self._encoded, self._event = encoded, b"event: snapshot\ndata: " + encoded + b"\n\n"
            self._points.append((at, snapshot["point"]))
            while self._points[0][0] < at - KEPT_SECONDS:
                self._points.popleft()
            listeners = list(self._listeners)
        for wake in listeners:
            wake()

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` after each snapshot, on the thread that published it."""
        with self._lock:
            self._listeners.append(wake)

    @property
    def encoded(self) -> bytes | None:
        """Newest snapshot as JSON; None before the first look."""
        return self._encoded

    @property
    def event(self) -> bytes | None:
        """Newest snapshot as an event of the stream."""
        return self._event

    def history(self) -> dict[str, Any]:
        """Return the points of the last half hour, one list per figure."""
        with self._lock:
            points = list(self._points)
        names = points[-1][1].keys() if points else ()
        return {
            "at": [at for at, _ in points],
            "series": {name: [point.get(name) for _, point in points] for name in names},
        }


class SnapshotViewers:
    """All browsers that follow the stream. Use it on the server's loop only, except `close`."""

    def __init__(self, board: SnapshotBroadcaster, gauge: Gauge) -> None:
        self._board, self._gauge = board, gauge
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._count = 0
        self._closed = False

    def response(self, may_read: Callable[[], bool]) -> EventSourceResponse:
        """Return the stream for one more browser, which ends before the first event that the browser may not read.

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
        return _Stream(self, self._follow(may_read), ping=15, send_timeout=SEND_SECONDS)

    def entered(self, change: int) -> None:
        """Count one viewer more or less."""
        self._count += change
        self._gauge.set(self._count)

    def close(self) -> None:
        """End all streams; safe from any thread."""
        self._closed = True
        self._notify_threadsafe()

    async def _follow(self, may_read: Callable[[], bool]) -> AsyncIterator[bytes]:
        shown = None
        while not self._closed:
            news = self._news
            if (event := self._board.event) is not None and event is not shown:
                if not may_read():
                    return
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

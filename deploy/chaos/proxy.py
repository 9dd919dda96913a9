"""TCP proxy between two parts that makes their link bad: slow, late, silent, cut, reset.

Loopback has no other way to imitate a firewall or a dead router: a link that transports nothing and reports nothing.
"""

import contextlib
import random
import selectors
import socket
import struct
import threading
import time
from collections import deque
from typing import Final

__all__ = ["LinkProxy"]

_CHUNK: Final = 16 * 1024
_HELD_BYTES: Final = 256 * 1024
"""Bytes that one direction holds before it stops reading, so that a slow link pushes back as a real one does."""


class _Way:
    """One direction of one connection: what came and when it may go on."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.held = 0
        self.free_at = 0.0
        self.ended = False


class LinkProxy:
    """Listens on a free port of loopback and forwards to `target`, in a thread of its own until `close`.

    Attributes:
        delay_seconds: from, to: each piece is late by a random time between; the order stays.
        bytes_per_second: of each direction of each connection; 0 = as fast as it goes.
        connections: how many were accepted so far.
    """

    def __init__(self, target: tuple[str, int], *, seed: int = 1) -> None:
        self.delay_seconds = 0.0, 0.0
        self.bytes_per_second = 0
        self.connections = 0
        self._target, self._random = target, random.Random(seed)  # noqa: S311 - a fault must repeat
        self._silent, self._closed = False, False
        self._ways: list[_Way] = []
        self._mute: list[_Way] = []
        self._lock = threading.RLock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="link-proxy", daemon=True)
        self._thread.start()

    def silence(self) -> None:
        """Pass nothing from now on, without FIN or RST; new connections are accepted and stay mute."""
        with self._lock:
            self._silent = True

    def restore(self, *, forget: bool = True) -> None:
        """Let new connections pass again; with `forget` the old ones stay mute for ever, as behind a new router."""
        with self._lock:
            self._silent = False
            if forget:
                # Kept, since an unreferenced socket is closed, and the other end would notice.
                self._mute += self._ways
                self._ways = []

    def reset(self) -> int:
        """Cut each connection with RST to both ends; returns how many there were."""
        with self._lock:
            count = len(self._ways) // 2
            for way in self._ways:
                _reset(way.source)
            self._ways = []
            return count

    def half_open(self) -> None:
        """Cut the far ends only: the near one still believes in its connection, whose packets go nowhere."""
        with self._lock:
            for way in self._ways[::2]:
                way.target.close()
            self._mute += self._ways
            self._ways = []

    def close(self) -> None:
        """End the thread and every connection."""
        self._closed = True
        self._thread.join()
        self._listener.close()
        for way in (*self._ways, *self._mute):
            way.source.close()

    def _run(self) -> None:
        while not self._closed:
            with self._lock:
                self._accept()
                readable = (
                    [] if self._silent else [way for way in self._ways if way.held < _HELD_BYTES and not way.ended]
                )
            ready = _select({way.source: way for way in readable}, self._listener, 0.002 if self._busy() else 0.02)
            with self._lock:
                for way in ready:
                    if way in self._ways and not self._silent:
                        self._read(way)
                if not self._silent:
                    for way in list(self._ways):
                        self._forward(way)

    def _busy(self) -> bool:
        return any(way.waiting for way in self._ways)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            near, _ = self._listener.accept()
            self.connections += 1
            try:
                far = socket.create_connection(self._target, timeout=1.0)
            except OSError:
                near.close()
                return
            for sock in (near, far):
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ways += [_Way(near, far), _Way(far, near)]

    def _read(self, way: _Way) -> None:
        try:
            data = way.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            way.ended = True
        last = way.waiting[-1][0] if way.waiting else 0.0
        way.waiting.append((max(last, time.monotonic() + self._random.uniform(*self.delay_seconds)), data))
        way.held += len(data)

    def _forward(self, way: _Way) -> None:
        now = time.monotonic()
        while way.waiting and way.waiting[0][0] <= now and way.free_at <= now:
            due, data = way.waiting.popleft()
            if not data:
                self._end(way)
                return
            piece = data if not self.bytes_per_second else data[: max(1, self.bytes_per_second // 50)]
            try:
                sent = way.target.send(piece)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._end(way)
                return
            way.held -= sent
            if sent < len(data):
                way.waiting.appendleft((due, data[sent:]))
            if self.bytes_per_second:
                way.free_at = now + sent / self.bytes_per_second
            if sent < len(piece):
                return

    def _end(self, way: _Way) -> None:
        """One side closed: close the other, too, and forget both directions."""
        self._ways = [one for one in self._ways if way.source not in (one.source, one.target)]
        way.source.close()
        way.target.close()


def _select(ways: dict[socket.socket, _Way], listener: socket.socket, seconds: float) -> list[_Way]:
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        for sock in ways:
            with contextlib.suppress(ValueError, OSError):  # another thread has closed it
                selector.register(sock, selectors.EVENT_READ)
        return [ways[key.fileobj] for key, _ in selector.select(seconds) if key.fileobj in ways]


def _reset(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()

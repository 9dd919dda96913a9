"""`/metrics`, `/healthz` and `/livez` of one process, on loopback by default.

Each process has one registry and one exporter. `/healthz` asks a callable of the process, so that a stuck loop is reported as
unhealthy (503) even though the port still answers. A process that waits for a server is unhealthy too, and a restart would
not help it: `/livez` is 503 only if a restart helps. Clients that send or read slowly take no place from a scraper, and no answer
names the software or shows an error of the process.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

__all__ = ["CollectorRegistry", "Exporter"]

MOST_CONNECTIONS: Final = 64
"""A new connection ends the oldest one beyond this number: who holds many connections open ends only their own."""
LONGEST_SECONDS: Final = 15.0
"""Life of a connection, however slowly its client sends or reads. Prometheus gives up earlier."""


class Exporter:
    """HTTP server of one registry on a daemon thread; `port=0` takes a free port (read it back from `port`).

    Args:
        registry: the metrics.
        host: address to listen on.
        port: port to listen on.
        healthy: whether the process does its work, and a sentence; for `/healthz`.
        alive: whether the process could do its work without a restart; for `/livez`.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        healthy: Callable[[], tuple[bool, str]],
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            # A peer that sends half a request must not block its thread forever.
            timeout = 10

            def do_GET(self) -> None:
                path = self.path.split("?", 1)[0]
                if path == "/metrics":
                    self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
                elif path in ("/healthz", "/livez"):
                    ok, detail = healthy()
                    ok = ok if path == "/healthz" else alive()
                    self._answer(200 if ok else 503, "text/plain; charset=utf-8", f"{detail}\n".encode())
                else:
                    self._answer(404, "text/plain; charset=utf-8", b"Not found: use /metrics, /healthz or /livez.\n")

            def _answer(self, status: int, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                self.wfile.write(body)

            def version_string(self) -> str:
                """Name neither Python nor its version."""
                return "tidegate"

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: scrapes are routine."""

        self._server = _Server(host, port, Handler)
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, name="exporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """A thread per connection, with a bound on their number and on the life of each."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._host = host
        self._lock = threading.Lock()
        self._began: dict[Any, float] = {}
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Bind without looking up the host's name, which is not needed and may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self._host, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own; end the oldest connection if there are too many."""
        with self._lock:
            self._began[request] = time.monotonic()
            oldest = next(iter(self._began)) if len(self._began) > MOST_CONNECTIONS else None
        _end(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection whose thread has done its work."""
        with self._lock:
            self._began.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that last too long. The server calls this twice a second."""
        now = time.monotonic()
        with self._lock:
            slow = [each for each, began in self._began.items() if now - began > LONGEST_SECONDS]
        for each in slow:
            _end(each)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a peer that gave up waiting; report all other errors as usual."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def _end(connection: Any | None) -> None:
    """Wake the thread that waits for this client; it then closes the connection itself."""
    if connection is not None:
        with suppress(OSError):  # it has just ended
            connection.shutdown(socket.SHUT_RDWR)

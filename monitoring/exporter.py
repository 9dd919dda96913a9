"""`/metrics` and `/healthz` of one process, on loopback by default.

Each process has one registry and one exporter. `/healthz` asks a callable of the process, so that a stuck loop is reported as
unhealthy (503) even though the port still answers.
"""

import socket
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

__all__ = ["CollectorRegistry", "Exporter"]


class Exporter:
    """HTTP server of one registry on a daemon thread; `port=0` takes a free port (read it back from `port`)."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        healthy: Callable[[], tuple[bool, str]],
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            # A peer that sends half a request must not block its thread forever.
            timeout = 10

            def do_GET(self) -> None:
                path = self.path.split("?", 1)[0]
                if path == "/metrics":
                    self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
                elif path == "/healthz":
                    ok, detail = healthy()
                    self._answer(200 if ok else 503, "text/plain; charset=utf-8", f"{detail}\n".encode())
                else:
                    self._answer(404, "text/plain; charset=utf-8", b"Not found: use /metrics or /healthz.\n")

            def _answer(self, status: int, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: scrapes are routine."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

            def server_bind(self) -> None:
                """Bind without looking up the host's name, which is not needed and may take seconds."""
                TCPServer.server_bind(self)
                self.server_name, self.server_port = host, self.server_address[1]

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Ignore a peer that gave up waiting; report all other errors as usual."""
                if not isinstance(sys.exception(), ConnectionError | TimeoutError):
                    super().handle_error(request, client_address)

        self._server = Server((host, port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, name="exporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

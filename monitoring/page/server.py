"""Page server on its own thread. It stops within two seconds even while viewers are connected."""

import logging
import socket
import threading
import time
from typing import Final

import uvicorn
from starlette.types import ASGIApp

__all__ = ["PageServer"]

START_SECONDS: Final = 5.0
MOST_CONNECTIONS: Final = 256
GRACE_SECONDS: Final = 1


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
            http="h11",
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

"""When certificates of real TLS servers end: valid, ended, soon, of another name; and servers that cannot tell."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.certificates.issue import LeafRequest, create_authority, sign_leaf
from deploy.local.ports import choose_port
from deploy.monitor.certificate_probe import certificate_end

Serve = Callable[..., int]

LIMIT_SECONDS = 5.5
"""It promises 3 s; a busy machine gets a little more."""


class TlsServer:
    """Shows a certificate; keeps what clients say after the handshake."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self.heard = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._kept: list[socket.socket] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._kept.append(sock)
                if self._context is not None:
                    with suppress(OSError), self._context.wrap_socket(sock, server_side=True) as secure:
                        self.heard += secure.recv(1000)

    def close(self) -> None:
        for sock in (self._listener, *self._kept):
            sock.close()


@pytest.fixture
def made() -> Iterator[list[TlsServer]]:
    servers: list[TlsServer] = []
    yield servers
    for server in servers:
        server.close()


def sign(folder: Path, end: datetime) -> ssl.SSLContext:
    """Signed by an authority that nobody knows, for a name that nobody asks for, ending then."""
    begin = end - timedelta(days=1)
    authority = create_authority("unknown", now=begin, days=1)
    (folder / "server.pem").write_text(
        sign_leaf(authority, LeafRequest.server("another.example", days=1), now=begin).pem
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


@pytest.mark.parametrize("days", [365, 5, -30, 20_000])
def test_the_end_is_told_whatever_else_is_wrong(tmp_path: Path, made: list[TlsServer], days: int) -> None:
    end = (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)
    made.append(TlsServer(sign(tmp_path, end)))
    for host in ("127.0.0.1", "localhost"):
        assert certificate_end(host, made[0].port) == end.timestamp()
    assert made[0].heard == b"", "nothing is sent, credentials above all"


def test_nobody_there_plain_text_and_silence_end_in_time(
    made: list[TlsServer], mqtt_broker: Callable[..., TlsServer]
) -> None:
    made.append(TlsServer(None))
    for port in (choose_port(0)[0], mqtt_broker().port, made[0].port):
        begun = time.monotonic()
        with pytest.raises(OSError):
            certificate_end("127.0.0.1", port)
        assert time.monotonic() - begun < LIMIT_SECONDS


def test_another_protocol_is_no_certificate(made: list[TlsServer]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            sock, _ = listener.accept()
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            sock.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(OSError):
            certificate_end("127.0.0.1", listener.getsockname()[1])

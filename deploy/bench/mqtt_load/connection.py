"""Connection of one client to the broker of a load, with a check for arrived bytes."""

import select
import socket
import ssl
import time
from contextlib import suppress
from typing import Any, Final

from deploy.bench.load_publisher import connect_packet

__all__ = ["LoadConnection"]

_WAIT_SECONDS: Final = 10.0
_READ_BYTES: Final = 1024 * 1024
_SUBACK_BYTES: Final = 5


class LoadConnection:
    """Connected and let in.

    Args:
        address: the fields of `MqttAddress`.
        client_id: another one for each connection.

    Raises:
        ConnectionError: the broker refuses this client.
    """

    def __init__(self, address: dict[str, Any], client_id: str) -> None:
        host = address["host"]
        self._socket = socket.create_connection((host, address["port"]), _WAIT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = _Tls(self._socket, host, address["ca_file"]) if address["ca_file"] else None
        answer = self.ask(connect_packet(client_id, address["username"], address["password"]), 4)
        if answer[:1] != b"\x20" or answer[3:] != b"\0":
            message = f"the broker refuses a client of the load: {answer.hex()}"
            raise ConnectionError(message)

    def ask(self, packet: bytes, answer_bytes: int) -> bytes:
        """Send a packet and take its answer."""
        self.send(packet)
        answer, until = b"", time.monotonic() + _WAIT_SECONDS
        with suppress(ConnectionError):
            while len(answer) < answer_bytes and time.monotonic() < until:
                answer += self.receive(_WAIT_SECONDS)
        return answer

    def subscribe(self, packet: bytes) -> None:
        """SUBSCRIBE, and wait until it holds.

        Raises:
            ConnectionError: the broker refuses it.
        """
        answer = self.ask(packet, _SUBACK_BYTES)
        if answer[:1] != b"\x90" or answer[4:] != b"\1":
            message = f"the broker refuses the subscription of the load: {answer.hex()}"
            raise ConnectionError(message)

    def send(self, data: bytes) -> None:
        """All of it."""
        self._socket.sendall(data if self._tls is None else self._tls.encrypted(data))

    def receive(self, seconds: float) -> bytes:
        """Return the bytes that are there, or come within these seconds; empty if none come.

        Raises:
            ConnectionError: the broker closed the connection.
        """
        if not select.select([self._socket], [], [], seconds)[0]:
            return b""
        data = self._socket.recv(_READ_BYTES)
        if not data:
            message = "the broker closed a connection of the load"
            raise ConnectionError(message)
        return data if self._tls is None else self._tls.decrypted(data)

    def close(self) -> None:
        """DISCONNECT."""
        self.send(b"\xe0\0")
        self._socket.close()


class _Tls:
    """TLS of many records at once.

    A broker sends each packet as a record of its own, and an SSLSocket reads one record a call: a client of blocks would
    handle single messages, and measure itself.
    """

    def __init__(self, plain: socket.socket, host: str, ca_file: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=ca_file)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                plain.sendall(self._outgoing.read())
                if not (data := plain.recv(_READ_BYTES)):
                    message = "the broker closed a connection of the load during the TLS handshake"
                    raise ConnectionError(message) from None
                self._incoming.write(data)
            else:
                plain.sendall(self._outgoing.read())
                return

    def encrypted(self, data: bytes) -> bytes:
        """All of it as records."""
        self._tls.write(data)
        return self._outgoing.read()

    def decrypted(self, data: bytes) -> bytes:
        """Return the content of all complete records."""
        self._incoming.write(data)
        parts = []
        with suppress(ssl.SSLWantReadError):
            while part := self._tls.read(_READ_BYTES):
                parts.append(part)
        return b"".join(parts)

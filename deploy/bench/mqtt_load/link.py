"""One client's connection to the broker of a load, and how to see whether anything came."""

import select
import socket
import ssl
from typing import Any, Final

from deploy.bench.load import connect_packet

__all__ = ["Link"]

_WAIT_SECONDS: Final = 10.0
_READ_BYTES: Final = 1024 * 1024
_SUBACK_BYTES: Final = 5


class Link:
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
        if address["ca_file"]:
            context = ssl.create_default_context(cafile=address["ca_file"])
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        answer = self.ask(connect_packet(client_id, address["username"], address["password"]), 4)
        if answer[:1] != b"\x20" or answer[3:] != b"\0":
            message = f"the broker refuses a client of the load: {answer.hex()}"
            raise ConnectionError(message)

    def ask(self, packet: bytes, answer_bytes: int) -> bytes:
        """Send a packet and take its answer."""
        self._socket.sendall(packet)
        answer = b""
        while len(answer) < answer_bytes:
            data = self._socket.recv(answer_bytes - len(answer))
            if not data:
                break
            answer += data
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
        self._socket.sendall(data)

    def receive(self, seconds: float) -> bytes:
        """What is there, or comes within these seconds; nothing where none comes.

        Raises:
            ConnectionError: the broker closed the connection.
        """
        encrypted = self._socket if isinstance(self._socket, ssl.SSLSocket) else None
        if (
            not (encrypted is not None and encrypted.pending())
            and not select.select([self._socket], [], [], seconds)[0]
        ):
            return b""
        data = self._socket.recv(_READ_BYTES)
        if not data:
            message = "the broker closed a connection of the load"
            raise ConnectionError(message)
        return data

    def close(self) -> None:
        """DISCONNECT."""
        self._socket.sendall(b"\xe0\0")
        self._socket.close()

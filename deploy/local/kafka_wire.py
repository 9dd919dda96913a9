"""Asks the embedded Kafka for its cluster id, before any client exists."""

import socket
import struct
from typing import Final

__all__ = ["cluster_id"]

ANSWER_BYTES: Final = 65536


def cluster_id(connection: socket.socket) -> str | None:
    """Return the id of the cluster that answers; None if it is not a Kafka.

    Asks for the metadata of no topic (key 3, version 2).

    Raises:
        OSError: the connection ended or is too slow.
        ValueError: the answer has another form.
    """
    connection.sendall(struct.pack(">ihhihi", 14, 3, 2, 1, -1, 0))
    length, correlation = struct.unpack(">ii", _read(connection, 8))
    if correlation != 1 or not 8 < length < ANSWER_BYTES:
        return None
    try:
        return _named(_read(connection, length - 4))
    except struct.error as error:
        message = "the answer is truncated"
        raise ValueError(message) from error


def _named(answer: bytes) -> str:
    """Past each broker (id, host, port, rack) to the cluster's id."""
    (brokers,) = struct.unpack_from(">i", answer)
    at = 4
    for _ in range(brokers):
        at = _after_text(answer, at + 4) + 4
        at = _after_text(answer, at)
    return answer[at + 2 : _after_text(answer, at)].decode()


def _after_text(answer: bytes, at: int) -> int:
    (length,) = struct.unpack_from(">h", answer, at)
    return int(at + 2 + max(0, length))


def _read(connection: socket.socket, count: int) -> bytes:
    answer = b""
    while len(answer) < count:
        piece = connection.recv(count - len(answer))
        if not piece:
            message = "the connection was closed"
            raise ConnectionError(message)
        answer += piece
    return answer

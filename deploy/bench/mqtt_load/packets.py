"""MQTT 3.1.1 for many messages at once: all packets of a load have one length, so whole blocks are built and read as tables."""

import struct
from typing import Final

import numpy
from numpy.typing import NDArray

from deploy.bench.load import publish_packet

__all__ = ["LEAST_BYTES", "MOST_IN_FLIGHT", "Acknowledged", "PacketForm", "Rest", "subscribe_packet"]

LEAST_BYTES: Final = 16
"""A payload begins with the time at which the message was due (microseconds since 1970) and the message's number."""
_PUBACK_BYTES: Final = 4
_PUBACK: Final = (0x40, 2)
_DUPLICATE: Final = 0x08
MOST_IN_FLIGHT: Final = 65_535

Block = NDArray[numpy.uint8]
Numbers = NDArray[numpy.int64]


class PacketForm:
    """The one form of all PUBLISH packets to topics of this length, with payloads of this size.

    Raises:
        ValueError: the payload is too small for time and number.
    """

    def __init__(self, topic: str, message_bytes: int) -> None:
        if message_bytes < LEAST_BYTES:
            message = f"message_bytes is {message_bytes}, wanted {LEAST_BYTES} or more: a message carries its time and its number"
            raise ValueError(message)
        padding = bytes(33 + index * 7 % 94 for index in range(message_bytes - LEAST_BYTES))
        self._one = numpy.frombuffer(publish_packet(topic, bytes(LEAST_BYTES) + padding, mid=1), numpy.uint8)
        self._payload = len(self._one) - message_bytes
        self._head = self._payload - 4 - len(topic.encode())
        """Fixed header: type, flags, length."""

    @property
    def packet_bytes(self) -> int:
        """Size of each."""
        return len(self._one)

    def build(self, due_us: Numbers, numbers: Numbers, mids: Numbers) -> bytes:
        """Packets one after the other."""
        block = numpy.tile(self._one, (len(mids), 1))
        payload = self._payload
        block[:, payload - 2 : payload] = _big(mids, ">u2")
        block[:, payload : payload + 8] = _big(due_us, ">i8")
        block[:, payload + 8 : payload + 16] = _big(numbers, ">i8")
        return block.tobytes()

    def read(self, data: bytes) -> tuple[Numbers, Numbers, bytes]:
        """When each message was due, its number, and the PUBACKs for all of them.

        Raises:
            ConnectionError: a packet is no PUBLISH of this form.
        """
        block = numpy.frombuffer(data, numpy.uint8).reshape(-1, self.packet_bytes)
        head, payload = self._head, self._payload
        if not (
            ((block[:, 0] & ~numpy.uint8(_DUPLICATE)) == self._one[0]).all()
            and (block[:, 1:head] == self._one[1:head]).all()
        ):
            message = "the broker sends the subscriber something other than the messages of this load"
            raise ConnectionError(message)
        answers = numpy.empty((len(block), _PUBACK_BYTES), numpy.uint8)
        answers[:, :2] = _PUBACK
        answers[:, 2:] = block[:, payload - 2 : payload]
        due, numbers = (
            numpy.ascontiguousarray(block[:, at : at + 8]).view(">i8").reshape(-1).astype(numpy.int64)
            for at in (payload, payload + 8)
        )
        return due, numbers, answers.tobytes()


class Rest:
    """Cuts what comes from a socket into whole packets of one length; what is left waits for more."""

    def __init__(self, packet_bytes: int) -> None:
        self._bytes, self._left = packet_bytes, b""

    def whole(self, data: bytes) -> bytes:
        """All whole packets so far."""
        data = self._left + data
        cut = len(data) - len(data) % self._bytes
        self._left = data[cut:]
        return data[:cut]


class Acknowledged:
    """Reads PUBACKs of one connection."""

    def __init__(self) -> None:
        self._rest = Rest(_PUBACK_BYTES)

    def mids(self, data: bytes) -> Numbers:
        """Packet identifiers.

        Raises:
            ConnectionError: a packet is no PUBACK.
        """
        block = numpy.frombuffer(self._rest.whole(data), numpy.uint8).reshape(-1, _PUBACK_BYTES)
        if not (block[:, :2] == _PUBACK).all():
            message = "the broker sends the publisher something other than PUBACKs"
            raise ConnectionError(message)
        return block[:, 2].astype(numpy.int64) * 256 + block[:, 3]


def subscribe_packet(topics: str) -> bytes:
    """SUBSCRIBE at QoS 1."""
    encoded = topics.encode()
    body = struct.pack(">HH", 1, len(encoded)) + encoded + b"\1"
    return bytes([0x82, len(body)]) + body


def _big(values: Numbers, kind: str) -> Block:
    """Big-endian bytes, a row for each value."""
    found: Block = values.astype(kind).view(numpy.uint8).reshape(len(values), numpy.dtype(kind).itemsize)
    return found

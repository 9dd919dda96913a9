"""MQTT 3.1.1 for many messages at once: all packets of a load have one length, so they are built and read in blocks."""

import struct
from collections.abc import Sequence
from itertools import repeat
from typing import Final

from deploy.bench.load_publisher import publish_packet

__all__ = ["LEAST_BYTES", "MOST_IN_FLIGHT", "PacketForm", "PacketSplitter", "PubackReader", "subscribe_packet"]

LEAST_BYTES: Final = 16
"""A payload begins with the time at which the message was due (microseconds since 1970) and the message's number."""
_PUBACK: Final = struct.Struct(">2sH")
_PUBACK_HEAD: Final = b"\x40\x02"
_DUPLICATE: Final = 0x08
MOST_IN_FLIGHT: Final = 65_535


class PacketForm:
    """The one form of all PUBLISH packets to topics of this length, with payloads of this size.

    Raises:
        ValueError: the payload is too small for time and number.
    """

    def __init__(self, topic: str, message_bytes: int) -> None:
        if message_bytes < LEAST_BYTES:
            message = f"message_bytes is {message_bytes}, wanted {LEAST_BYTES} or more for the time and the number of a message"
            raise ValueError(message)
        padding = bytes(33 + index * 7 % 94 for index in range(message_bytes - LEAST_BYTES))
        one = publish_packet(topic, bytes(LEAST_BYTES) + padding, mid=1)
        self._start = one[: len(one) - message_bytes - 2]
        """All before the packet identifier: type, flags, length, topic."""
        self._padding = padding
        self._struct = struct.Struct(f">{len(self._start)}sHqq{len(padding)}s")
        head = len(self._start) - 2 - len(topic.encode())
        self._read = struct.Struct(f">{head}s{len(self._start) - head}xHqq{len(padding)}x")
        fixed = self._start[:head]
        self._heads = {fixed, bytes([fixed[0] | _DUPLICATE]) + fixed[1:]}

    @property
    def packet_bytes(self) -> int:
        """Size of each."""
        return self._struct.size

    def build(self, due_us: Sequence[int], numbers: Sequence[int], mids: Sequence[int]) -> bytes:
        """Packets one after the other."""
        pack = self._struct.pack
        return b"".join(map(pack, repeat(self._start), mids, due_us, numbers, repeat(self._padding)))

    def read(self, data: bytes) -> tuple[Sequence[int], Sequence[int], bytes]:
        """Read the time at which each message was due, its number, and the PUBACKs for all of them.

        Raises:
            ConnectionError: a packet is not a PUBLISH of this form.
        """
        if not data:
            return (), (), b""
        heads, mids, due, numbers = zip(*self._read.iter_unpack(data), strict=True)
        if not self._heads.issuperset(heads):
            message = "the broker sent the subscriber other packets than the messages of this load"
            raise ConnectionError(message)
        return due, numbers, b"".join(map(_PUBACK.pack, repeat(_PUBACK_HEAD), mids))


class PacketSplitter:
    """Cuts what comes from a socket into whole packets of one length; what is left waits for more."""

    def __init__(self, packet_bytes: int) -> None:
        self._bytes, self._left = packet_bytes, b""

    def whole(self, data: bytes) -> bytes:
        """All whole packets so far."""
        data = self._left + data
        cut = len(data) - len(data) % self._bytes
        self._left = data[cut:]
        return data[:cut]


class PubackReader:
    """Reads PUBACKs of one connection."""

    def __init__(self) -> None:
        self._rest = PacketSplitter(_PUBACK.size)

    def mids(self, data: bytes) -> Sequence[int]:
        """Packet identifiers.

        Raises:
            ConnectionError: a packet is not a PUBACK.
        """
        whole = self._rest.whole(data)
        if not whole:
            return ()
        heads, mids = zip(*_PUBACK.iter_unpack(whole), strict=True)
        if set(heads) != {_PUBACK_HEAD}:
            message = "the broker sent the publisher other packets than PUBACKs"
            raise ConnectionError(message)
        return mids


def subscribe_packet(topics: str) -> bytes:
    """SUBSCRIBE at QoS 1."""
    encoded = topics.encode()
    body = struct.pack(">HH", 1, len(encoded)) + encoded + b"\1"
    return bytes([0x82, len(body)]) + body

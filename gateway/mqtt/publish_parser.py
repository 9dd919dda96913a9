"""Parser of PUBLISH packets. Pure.

The client library rejects characters that MQTT and brokers allow in properties (the broker would then send the same
packet forever), takes more than linear time for many properties, and makes an object for each. Here the properties are
one range of known length. The parser looks for four of them, and an unreadable property does not reject a message.
"""

from typing import Final

from gateway.mqtt.session_events import Incoming, Received

__all__ = ["BadPacket", "read_publish", "split_packets"]

MAX_PROPERTIES: Final = 256
"""Most properties of a packet that are read."""
_PUBLISH: Final = 0x30
_PLAIN: Final = 0x32
"""First byte of a PUBLISH at QoS 1 without flags."""
_USER_PROPERTY: Final = 0x26
_RESPONSE_TOPIC: Final = 0x08
_CORRELATION: Final = 0x09
_FIXED: Final = {0x01: 1, 0x02: 4, 0x23: 2}
_PREFIXED: Final = frozenset({0x03, _RESPONSE_TOPIC, _CORRELATION})
_SUBSCRIPTION: Final = 0x0B


class BadPacket(ValueError):
    """These bytes are not a PUBLISH that this session may get: the connection is unusable."""


def split_packets(
    data: bytes, at: int, publishes: list[Incoming], *, is_5: bool
) -> tuple[int, int, tuple[int, bytes] | None]:
    """Cut received bytes into packets, from byte `at` on: each PUBLISH is added to `publishes`.

    Returns:
        Where the rest begins; how many bytes of it are needed before trying again; and the first packet of another kind,
        (first byte, body), after which the rest begins, or None if no whole packet is left.

    Raises:
        BadPacket: an invalid length, or a packet that `read_publish` rejects.
    """
    end, add = len(data), publishes.append
    while end - at >= 2:
        head, size, begin = data[at], data[at + 1], at + 2
        if size > 127:
            if begin < end and data[begin] < 128:
                size, begin = size - 128 | data[begin] << 7, begin + 1
            elif (longer := _remaining_length(data, at + 1)) is not None:
                size, begin = longer
            else:
                return at, end - at + 1, None
        stop = begin + size
        if stop > end:
            return at, stop - at, None
        if head == _PLAIN and size > 2:
            after_topic = begin + 2 + (data[begin] << 8 | data[begin + 1])
            body = after_topic + 3 if is_5 else after_topic + 2
            if body <= stop and (not is_5 or not data[body - 1]):
                add((data[begin + 2 : after_topic], data[body:stop], data[after_topic : after_topic + 2]))
                at = stop
                continue
        if head & 0xF0 == _PUBLISH:
            add(read_publish(head, data[begin:stop], is_5=is_5))
            at = stop
            continue
        return stop, 2, (head, data[begin:stop])
    return at, 2, None


def _remaining_length(data: bytes, at: int) -> tuple[int, int] | None:
    """Return (length, where the body begins); None if the length is incomplete."""
    size = 0
    for place, byte in enumerate(data[at : at + 4]):
        size |= (byte & 127) << 7 * place
        if byte < 128:
            return size, at + place + 1
    if len(data) - at < 4:
        return None
    message = "a packet whose length takes more than four bytes"
    raise BadPacket(message)


def read_publish(command: int, packet: bytes | bytearray, *, is_5: bool) -> Received:
    """Read a packet; `command` is its first byte, `packet` what follows the remaining length.

    Raises:
        BadPacket: topic, identifier or properties reach past the end, or QoS is not 0 or 1 (we subscribe at 1).
    """
    qos = command >> 1 & 3
    if qos > 1:
        message = f"the broker sent a PUBLISH at QoS {qos}, but this session subscribes at QoS 1"
        raise BadPacket(message)
    topic, at = _text(packet, 0)
    mid = 0
    if qos:
        mid = int.from_bytes(packet[at : at + 2], "big")
        at += 2
    names: dict[bytes | int, bytes] = {}
    if is_5:
        size, at = _varint(packet, at)
        names = _properties(packet, at, min(at + size, len(packet)))
        at += size
    if at > len(packet):
        message = f"a PUBLISH of {len(packet)} bytes ends before its payload begins"
        raise BadPacket(message)
    return Received(
        topic, bytes(packet[at:]), mid, qos, bool(command & 8), bool(command & 1),
        _decoded(names.get(b"message-id")), _decoded(names.get(b"traceparent")),
        _decoded(names.get(_RESPONSE_TOPIC)), names.get(_CORRELATION),
    )  # fmt: skip


def _properties(packet: bytes | bytearray, at: int, end: int) -> dict[bytes | int, bytes]:
    """Return user properties by their name, the other texts by their kind."""
    found: dict[bytes | int, bytes] = {}
    try:
        for _ in range(MAX_PROPERTIES):
            if at >= end:
                break
            kind, at = packet[at], at + 1
            if kind == _USER_PROPERTY:
                name, at = _text(packet, at)
                value, at = _text(packet, at)
                if at <= end:
                    found[name] = value
            elif kind in _PREFIXED:
                value, at = _text(packet, at)
                if at <= end:
                    found[kind] = value
            elif kind == _SUBSCRIPTION:
                _, at = _varint(packet, at)
            elif kind in _FIXED:
                at += _FIXED[kind]
            else:
                break
    except BadPacket:
        pass
    return found


def _text(packet: bytes | bytearray, at: int) -> tuple[bytes, int]:
    begin = at + 2
    end = begin + int.from_bytes(packet[at:begin], "big")
    if max(begin, end) > len(packet):
        message = f"a length at byte {at} reaches past the end of a PUBLISH of {len(packet)} bytes"
        raise BadPacket(message)
    return bytes(packet[begin:end]), end


def _varint(packet: bytes | bytearray, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(packet[at : at + 4]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    message = f"no valid length of properties at byte {at} of a PUBLISH"
    raise BadPacket(message)


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None

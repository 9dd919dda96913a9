"""The bytes of a PUBLISH, as brokers send them and as nobody should."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.publish_packet import MAX_PROPERTIES, BadPacket, read_publish
from gateway.session_events import Received


def text(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def user(name: bytes, value: bytes) -> bytes:
    return b"\x26" + text(name) + text(value)


def packet(properties: bytes, payload: bytes = b"p") -> bytes:
    size = len(properties)
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
    return text(b"a/b") + b"\x00\x07" + length + properties + payload


def test_the_head_and_what_follows_it() -> None:
    assert read_publish(0x3B, packet(b""), is_5=True) == Received(b"a/b", b"p", 7, 1, True, True)
    assert read_publish(0x30, text(b"t") + b"p", is_5=False) == Received(b"t", b"p", 0, 0)
    assert read_publish(0x32, text(b"t") + b"\x01\x00", is_5=False) == Received(b"t", b"", 256, 1)


def test_all_kinds_of_properties_are_stepped_over() -> None:
    others = b"\x01\x01" + b"\x02" + b"\0" * 4 + b"\x23\0\x01" + b"\x0b\x80\x01"
    others += b"".join(bytes([kind]) + text(b"\xef\xbb\xbfx") for kind in (3, 8, 9))
    read = read_publish(0x32, packet(others + user(b"message-id", b"m") + user(b"traceparent", b"t")), is_5=True)
    assert (read.message_id, read.trace, read.payload) == ("m", "t", b"p")


@pytest.mark.parametrize(
    "properties",
    [b"\x7f", user(b"message-id", b"\xff"), b"\x26" + text(b"message-id") + b"\x00\x09m", b"\x26", b"\x0b\xff"],
    ids=["unknown", "no UTF-8", "value past the end", "cut", "cut number"],
)
def test_properties_that_cannot_be_read_cost_themselves(properties: bytes) -> None:
    assert read_publish(0x32, packet(properties), is_5=True) == Received(b"a/b", b"p", 7, 1)


def test_only_so_many_properties_are_looked_at() -> None:
    filler = user(b"", b"") * (MAX_PROPERTIES - 1)
    assert read_publish(0x32, packet(filler + user(b"message-id", b"m")), is_5=True).message_id == "m"
    assert read_publish(0x32, packet(filler + user(b"", b"") + user(b"message-id", b"m")), is_5=True).message_id is None


@pytest.mark.parametrize(
    ("command", "body"),
    [(0x30, b""), (0x30, b"\0"), (0x30, b"\0\x09t"), (0x32, text(b"t") + b"\0"), (0x32, text(b"t") + b"\0\1"),
     (0x32, text(b"t") + b"\0\1\x05\x26"), (0x32, text(b"t") + b"\0\1\xff\xff\xff\xff\x01"), (0x34, packet(b"")),
     (0x36, packet(b""))],
)  # fmt: skip
def test_a_packet_that_is_none_is_refused(command: int, body: bytes) -> None:
    with pytest.raises(BadPacket, match="PUBLISH"):
        read_publish(command, body, is_5=True)


@given(st.integers(0x30, 0x3F), st.binary(max_size=60), st.booleans())
def test_whatever_the_bytes_are(command: int, body: bytes, is_5: bool) -> None:
    try:
        read = read_publish(command, body, is_5=is_5)
    except BadPacket:
        return
    assert len(read.topic) + len(read.payload) <= len(body)

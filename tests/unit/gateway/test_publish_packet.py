"""The bytes of a PUBLISH, as brokers send them and as nobody should."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.publish_parser import MAX_PROPERTIES, BadPacket, read_publish, split_packets
from gateway.mqtt.session_events import Incoming, Received


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
    assert (read.response_topic, read.correlation) == ("\ufeffx", b"\xef\xbb\xbfx")


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


def framed(command: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while True:
        length += bytes([size & 127 | (128 if size > 127 else 0)])
        size >>= 7
        if not size:
            return bytes([command]) + length + body


def plain(mid: int, payload: bytes, *, is_5: bool) -> bytes:
    return framed(0x32, text(b"a/b") + mid.to_bytes(2, "big") + (b"\0" if is_5 else b"") + payload)


def cut(data: bytes, chunk: int, *, is_5: bool) -> list[Incoming | tuple[int, bytes]]:
    """All packets of a stream that comes in chunks, as a connection takes them."""
    found: list[Incoming | tuple[int, bytes]] = []
    held, needed, place = b"", 2, 0
    while place < len(data):
        held += data[place : place + chunk]
        place += chunk
        if len(held) < needed:
            continue
        at = 0
        while True:
            publishes: list[Incoming] = []
            at, needed, control = split_packets(held, at, publishes, is_5=is_5)
            found += publishes
            if control is None:
                break
            found.append(control)
        held = held[at:]
    assert held == b""
    return found


@pytest.mark.parametrize("is_5", [False, True])
@given(chunk=st.integers(1, 700), sizes=st.lists(st.sampled_from([0, 1, 100, 119, 120, 121, 130, 20_000]), max_size=8))
def test_a_stream_is_the_same_packets_however_it_is_cut(is_5: bool, chunk: int, sizes: list[int]) -> None:
    stream, expected = b"", []
    for mid, size in enumerate(sizes, start=1):
        payload = b"x" * size
        stream += plain(mid, payload, is_5=is_5) + b"\xd0\x00"
        expected += [(b"a/b", payload, mid.to_bytes(2, "big")), (0xD0, b"")]
        body = text(b"c") + b"\x00\x09" + (b"\x05" + user(b"", b"") if is_5 else b"") + payload
        stream += framed(0x3B, body)
        expected.append(Received(b"c", payload, 9, 1, True, True))
    assert cut(stream, chunk, is_5=is_5) == expected


def test_a_length_that_is_none_is_refused() -> None:
    with pytest.raises(BadPacket, match="four bytes"):
        split_packets(b"\x32\xff\xff\xff\xff\x01", 0, [], is_5=True)
    assert split_packets(b"\x32\xff\xff", 0, [], is_5=True) == (0, 4, None)


@given(st.binary(max_size=80), st.booleans())
def test_whatever_the_stream_is(data: bytes, is_5: bool) -> None:
    publishes: list[Incoming] = []
    at = 0
    try:
        while at < len(data):
            at, needed, control = split_packets(data, at, publishes, is_5=is_5)
            if control is None:
                assert needed > len(data) - at, "it asks for more than it has, else it would never go on"
                break
    except BadPacket:
        return
    assert sum(len(one[0]) + len(one[1]) for one in publishes) <= len(data)

"""The CBOR reader: examples of RFC 8949 appendix A, and bytes that must cost neither time nor memory."""

import contextlib
import math
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoders.cbor import MAX_ITEMS, BadCbor, read_cbor
from gateway.json_text import BadNumber


def read(data: str | bytes, max_depth: int = 8) -> Any:
    return read_cbor(bytes.fromhex(data) if isinstance(data, str) else data, max_depth=max_depth)[0]


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0), ("17", 23), ("1818", 24), ("1903e8", 1000), ("1a000f4240", 1_000_000),
        ("1bffffffffffffffff", 2**64 - 1), ("20", -1), ("3903e7", -1000), ("3bffffffffffffffff", -(2**64)),
        ("f93c00", 1.0), ("f90001", 5.960464477539063e-8), ("fa47c35000", 100000.0), ("fb3ff199999999999a", 1.1),
        ("f4", False), ("f5", True), ("f6", None), ("f7", None),
        ("40", b""), ("4401020304", b"\x01\x02\x03\x04"), ("62c3bc", "ü"),
        ("80", []), ("8301820203820405", [1, [2, 3], [4, 5]]), ("a201020304", {1: 2, 3: 4}),
        ("a26161016162820203", {"a": 1, "b": [2, 3]}),
        ("5f42010243030405ff", b"\x01\x02\x03\x04\x05"), ("7f657374726561646d696e67ff", "streaming"),
        ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]), ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
        ("c48221196ab3", 273.15), ("d9d9f78101", [1]), ("c4823903e701", 0.0),
    ],
)  # fmt: skip
def test_the_rfcs_examples_are_read(data: str, value: object) -> None:
    found = read(data)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("data", ["f97e00", "f97c00", "faff800000", "fb7ff0000000000000", "c4821903e801"])
def test_what_is_not_finite_stands_as_no_number(data: str) -> None:
    assert isinstance(read(data), BadNumber)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "byte 0: cut off"),
        ("18", "byte 0: 1 bytes wanted, but 0 are left"),
        ("6261", "byte 0: 2 bytes wanted, but 1 are left"),
        ("7bffffffffffffffff", "byte 0: 18446744073709551615 bytes wanted, but 0 are left"),
        ("9bffffffffffffffff00", "byte 0: 18446744073709551615 items wanted, but 1 bytes are left"),
        ("bbffffffffffffffff0000", "byte 11: cut off"),
        ("8201", "byte 0: 2 items wanted, but 1 bytes are left"),
        ("9f01", "byte 2: cut off"),
        ("0000", "byte 1: 1 bytes after the end of the document"),
        ("1c", "byte 0: 0x1c does not begin an item"),
        ("1f", "byte 0: 0x1f does not begin an item"),
        ("ff", "byte 0: 0xff begins an item that is not supported"),
        ("f8ff", "byte 0: 0xf8 begins an item that is not supported"),
        ("c001", "byte 0: tag 0 is not supported"),
        ("c240", "byte 0: tag 2 is not supported"),
        ("c482f501", "byte 0: a decimal fraction that is not a pair of exponent and mantissa"),
        ("a1f401", "byte 0: a map with a key that is neither integer nor text"),
        ("a18000", "byte 0: a map with a key that is neither integer nor text"),
        ("61ff", "byte 0: text that is not UTF-8"),
        ("5f6161ff", "byte 1: 0x61 does not begin a piece of the string"),
        ("5f5fffff", "byte 1: 0x5f does not begin a piece of the string"),
        ("8181818181818181818100", "byte 8: nested too deep"),
    ],
)
def test_what_is_not_read_is_told_with_its_place(data: str, why: str) -> None:
    with pytest.raises(BadCbor) as told:
        read(data)
    assert str(told.value) == why


def test_a_key_that_stands_twice_is_told_and_the_last_one_wins() -> None:
    assert read_cbor(bytes.fromhex("a2000100020"[:-1]), max_depth=8) == ({0: 2}, True)
    assert read_cbor(bytes.fromhex("a201020304"), max_depth=8)[1] is False


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x81" * 262_144,
        b"\xc4" * 262_144,
        b"\x9f" * 262_144,
        b"\xbf\x00" * 131_072,
        b"\x9f" + b"\x80" * 262_143,
        b"\x9f" + b"\xa0" * 262_143,
        b"\x5f" + b"\x40" * 262_143,
        b"\x9f" + b"\x60" * 262_143,
        b"\x9a\x7f\xff\xff\xff" + b"\x00" * 262_139,
    ],
    ids=lambda bomb: bomb[:4].hex(),
)
def test_bombs_are_refused_within_bounded_memory(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadCbor):
            read(bomb)
        assert tracemalloc.get_traced_memory()[1] < 200 * MAX_ITEMS
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=300))
def test_random_bytes_are_a_document_or_one_error(data: bytes) -> None:
    with contextlib.suppress(BadCbor):
        read(data)


def head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    size = next(size for size in (1, 2, 4, 8) if number < 1 << (8 * size))
    return bytes([major << 5 | 24 + size.bit_length() - 1]) + number.to_bytes(size, "big")


def encode(value: Any) -> bytes:
    if value is None or isinstance(value, bool):
        return b"\xf6" if value is None else bytes([0xF4 + value])
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, str | bytes):
        content = value.encode() if isinstance(value, str) else value
        return head(2 + isinstance(value, str), len(content)) + content
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(encode(item) for item in value)
    return head(5, len(value)) + b"".join(encode(key) + encode(item) for key, item in value.items())


_KEYS = st.integers(-(2**64), 2**64 - 1) | st.text(max_size=5)
_SCALARS = st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.text() | st.binary()
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_DOCUMENTS = st.recursive(
    _SCALARS | _FLOATS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=15,
)


@given(_DOCUMENTS)
def test_what_was_written_is_read_back(document: Any) -> None:
    found, key_twice = read_cbor(encode(document), max_depth=40)
    assert found == document
    assert key_twice is False
    assert not isinstance(found, float) or math.isfinite(found)

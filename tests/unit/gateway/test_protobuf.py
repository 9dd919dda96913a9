"""The protobuf wire reader: the documentation's own examples, and bytes that are no protobuf."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoders.protobuf import (
    WIRE_BYTES,
    WIRE_FIXED32,
    WIRE_FIXED64,
    WIRE_VARINT,
    BadProtobuf,
    Field,
    as_bytes,
    as_double,
    as_float,
    as_int,
    as_text,
    read_fields,
    zigzag,
)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def test_the_documentations_examples_are_read() -> None:
    assert list(read_fields(bytes.fromhex("089601"))) == [(1, WIRE_VARINT, 150)]
    assert list(read_fields(bytes.fromhex("120774657374696e67"))) == [(2, WIRE_BYTES, b"testing")]
    [nested] = read_fields(bytes.fromhex("1a03089601"))
    assert list(read_fields(as_bytes(nested))) == [(1, WIRE_VARINT, 150)]


def test_repeated_and_fixed_fields_come_in_order() -> None:
    data = b"\x0d" + struct.pack("<f", 1.5) + b"\x09" + struct.pack("<d", -2.25) + b"\x08\x01\x08\x02"
    one, two, *rest = read_fields(data)
    assert (one[1], as_float(one)) == (WIRE_FIXED32, 1.5)
    assert (two[1], as_double(two)) == (WIRE_FIXED64, -2.25)
    assert [value for _, _, value in rest] == [1, 2]
    assert (as_int(one, 32), as_int((1, WIRE_FIXED64, b"\xfe" + b"\xff" * 7))) == (0x3FC00000, -2)


@pytest.mark.parametrize(
    ("raw", "bits", "number"),
    [
        (2**32 - 12, 32, -12),
        (2**64 - 12, 32, -12),
        (2**64 - 3, 64, -3),
        (200, 8, -56),
        (5, 16, 5),
        (2**31, 32, -(2**31)),
    ],
)
def test_twos_complement_is_undone(raw: int, bits: int, number: int) -> None:
    assert as_int((1, WIRE_VARINT, raw), bits) == number
    assert as_int((1, WIRE_VARINT, raw), bits, signed=False) == raw & (2**bits - 1)


@pytest.mark.parametrize(("raw", "number"), [(0, 0), (1, -1), (2, 1), (0xFFFFFFFE, 0x7FFFFFFF), (0xFFFFFFFF, -(2**31))])
def test_zigzag_is_undone(raw: int, number: int) -> None:
    assert zigzag(raw) == number


def test_the_largest_number_is_read_and_a_longer_one_is_cut_to_64_bits() -> None:
    assert [value for _, _, value in read_fields(b"\x08" + b"\xff" * 9 + b"\x01")] == [2**64 - 1]
    assert [value for _, _, value in read_fields(b"\x08" + b"\xff" * 9 + b"\x7f")] == [2**64 - 1]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("08", "the number at byte 1 is cut off"),
        ("0896", "the number at byte 1 is cut off"),
        ("08" + "80" * 10, "the number at byte 1 is longer than 10 bytes"),
        ("1207746573", "field 2 at byte 0 needs 7 bytes, but 3 are left"),
        ("12ffffffffffffffff7f00", "field 2 at byte 0 needs 9223372036854775807 bytes, but 1 are left"),
        ("0d0000", "field 1 at byte 0 needs 4 bytes, but 2 are left"),
        ("0b", "a group at byte 0"),
        ("0801" + "0f", "wire type 7 at byte 2"),
        ("00", "field number 0 at byte 0"),
        ("f8ffffffff7f", "field number 549755813887 at byte 0"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(data: str, why: str) -> None:
    with pytest.raises(BadProtobuf) as told:
        list(read_fields(bytes.fromhex(data)))
    assert str(told.value) == why


def test_a_field_of_another_type_is_refused() -> None:
    number, text = (3, WIRE_VARINT, 1), (3, WIRE_BYTES, b"\xff")
    for read in (as_float, as_double, as_bytes, as_text):
        with pytest.raises(BadProtobuf, match="field 3 has wire type 0"):
            read(number)
    with pytest.raises(BadProtobuf, match="field 3 has wire type 2, but a number"):
        as_int(text)
    with pytest.raises(BadProtobuf, match="not UTF-8 text: byte 0xff at 0"):
        as_text(text)
    assert as_text((3, WIRE_BYTES, "µ".encode())) == "µ"


@given(st.binary(max_size=200))
def test_random_bytes_are_fields_or_one_error(data: bytes) -> None:
    try:
        fields = list(read_fields(data))
    except BadProtobuf:
        return
    # Every field took at least two bytes: nothing can make more of a message than it is long.
    assert len(fields) * 2 <= len(data)


_NUMBERS = st.integers(1, 2**29 - 1)
_FIELDS = st.one_of(
    st.tuples(_NUMBERS, st.just(WIRE_VARINT), st.integers(0, 2**64 - 1)),
    st.tuples(_NUMBERS, st.just(WIRE_BYTES), st.binary(max_size=300)),
    st.tuples(_NUMBERS, st.just(WIRE_FIXED32), st.binary(min_size=4, max_size=4)),
    st.tuples(_NUMBERS, st.just(WIRE_FIXED64), st.binary(min_size=8, max_size=8)),
)


@given(st.lists(_FIELDS, max_size=20))
def test_what_was_written_is_read_back(fields: list[Field]) -> None:
    data = b""
    for number, wire, value in fields:
        data += varint(number << 3 | wire)
        if isinstance(value, int):
            data += varint(value)
        else:
            data += (varint(len(value)) if wire == WIRE_BYTES else b"") + value
    assert list(read_fields(data)) == fields

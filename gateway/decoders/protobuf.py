"""Reader of the protobuf wire format, field by field and without a schema: only the parts that Kura and Sparkplug need.

Our own reader keeps the bounds visible: every step consumes bytes, lengths never pass the end, and it copies only what the
caller asks for. Nested messages are bytes until the caller reads them, so the caller controls depth.
Source: Protocol Buffers documentation, "Encoding".
"""

import struct
from collections.abc import Iterator
from typing import Final

__all__ = [
    "WIRE_BYTES",
    "WIRE_FIXED32",
    "WIRE_FIXED64",
    "WIRE_VARINT",
    "BadProtobuf",
    "Field",
    "as_bytes",
    "as_double",
    "as_float",
    "as_int",
    "as_text",
    "read_fields",
    "zigzag",
]

WIRE_VARINT: Final = 0
WIRE_FIXED64: Final = 1
WIRE_BYTES: Final = 2
WIRE_FIXED32: Final = 5
_WITH_NUMBER: Final = (WIRE_VARINT, WIRE_BYTES)
_FIXED: Final = {WIRE_FIXED64: 8, WIRE_FIXED32: 4}
_GROUPS: Final = (3, 4)
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_MAX_VARINT_BYTES: Final = 10
_MAX_FIELD: Final = 2**29 - 1


class BadProtobuf(ValueError):
    """These bytes are not a protobuf message, or not the wanted one; the text says where and why."""


Field = tuple[int, int, int | bytes]
"""One field on the wire: its number, its wire type, its value. A plain tuple, because there are many.

The value is an unsigned integer below 2^64 for WIRE_VARINT, little-endian bytes for WIRE_FIXED64 (8) and WIRE_FIXED32
(4), and the content for WIRE_BYTES.
"""


def read_fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of one message in their order; repeated ones come repeatedly.

    Raises:
        BadProtobuf: while iterating, at the first invalid byte. Groups (deprecated) are rejected.
    """
    at, end = 0, len(data)
    while at < end:
        start = at
        # Most keys, numbers and lengths are one byte: a call for each would cost more than everything else.
        key = data[at]
        at += 1
        if key > 0x7F:
            key, at = _read_varint(data, start)
        number, wire = key >> 3, key & 7
        if not 0 < number <= _MAX_FIELD:
            message = f"field number {number} at byte {start}"
            raise BadProtobuf(message)
        if wire in _WITH_NUMBER:
            length = data[at] if at < end else 0x80
            if length > 0x7F:
                length, at = _read_varint(data, at)
            else:
                at += 1
        elif wire in _FIXED:
            length = _FIXED[wire]
        else:
            what = "a group" if wire in _GROUPS else f"wire type {wire}"
            message = f"{what} at byte {start}"
            raise BadProtobuf(message)
        if wire == WIRE_VARINT:
            yield number, wire, length
            continue
        if length > end - at:
            message = f"field {number} at byte {start} needs {length} bytes, but {end - at} are left"
            raise BadProtobuf(message)
        yield number, wire, data[at : at + length]
        at += length


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number (cut to 64 bits, as in every implementation) and the place after it."""
    number = shift = 0
    for byte in data[at : at + _MAX_VARINT_BYTES]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at + shift // 7
    what = "is cut off" if len(data) - at < _MAX_VARINT_BYTES else "is longer than 10 bytes"
    message = f"the number at byte {at} {what}"
    raise BadProtobuf(message)


def as_int(field: Field, bits: int = 64, *, signed: bool = True) -> int:
    """Return a varint or fixed integer of `bits` (8 to 64), two's complement if `signed`; higher bits are cut off.

    So an int32 of -12 is right whether its sender wrote it sign-extended to 64 bits, as protobuf requires, or as uint32.

    Raises:
        BadProtobuf: the field holds bytes.
    """
    _, wire, value = field
    if wire == WIRE_BYTES:
        raise _wrong(field, "a number")
    raw = value if isinstance(value, int) else int.from_bytes(value, "little")
    number = raw & ((1 << bits) - 1)
    return number - (1 << bits) if signed and number >> (bits - 1) else number


def zigzag(number: int) -> int:
    """Return the sint32 or sint64 that is `number` on the wire."""
    return (number >> 1) ^ -(number & 1)


def as_float(field: Field) -> float:
    """Return a 32-bit float, widened; may be NaN or infinite. Raises BadProtobuf if the field is not one."""
    _, wire, value = field
    if wire != WIRE_FIXED32 or isinstance(value, int):
        raise _wrong(field, "a 32-bit float")
    number: float = _FLOAT.unpack(value)[0]
    return number


def as_double(field: Field) -> float:
    """Return a 64-bit float; may be NaN or infinite. Raises BadProtobuf if the field is not one."""
    _, wire, value = field
    if wire != WIRE_FIXED64 or isinstance(value, int):
        raise _wrong(field, "a 64-bit float")
    number: float = _DOUBLE.unpack(value)[0]
    return number


def as_bytes(field: Field) -> bytes:
    """Return bytes, or a nested message. Raises BadProtobuf if the field is not one."""
    _, wire, value = field
    if wire != WIRE_BYTES or isinstance(value, int):
        raise _wrong(field, "bytes")
    return value


def as_text(field: Field) -> str:
    """Return UTF-8 text. Raises BadProtobuf if the field is not text."""
    try:
        return as_bytes(field).decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"field {field[0]} is not UTF-8 text: byte 0x{error.object[error.start]:02x} at {error.start}"
        raise BadProtobuf(message) from error


def _wrong(field: Field, wanted: str) -> BadProtobuf:
    return BadProtobuf(f"field {field[0]} has wire type {field[1]}, but {wanted} was wanted")

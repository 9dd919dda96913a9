"""Raw value of a Sparkplug metric to the value of its datatype, or why it is not one.

Integers travel as unsigned: Int8 to Int32 in a uint32 and Int64 in a uint64, as two's complement. Senders differ in how
wide they extend the sign; every width is read, and a number that fits none is rejected, never cut.
Source: Sparkplug 3.0.0, section 6.4.16 (datatypes), and the array datatypes of 6.4.17.
"""

import struct
import sys
from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.decoders.sparkplug.payload import SparkplugMetric
from gateway.json_text import BadNumber
from gateway.safe_text import show_text
from ingest.contract.reasons import Reason

__all__ = ["BOOLEAN", "BOOLEAN_FIELD", "PLAIN_BELOW", "REALS", "TEMPLATE", "DatatypeMismatch", "read_datatype_value"]

BOOLEAN: Final = 11
DATETIME: Final = 13
TEMPLATE: Final = 19
_SIGNED: Final = {1: 8, 2: 16, 3: 32, 4: 64}
_UNSIGNED: Final = {5: 8, 6: 16, 7: 32, 8: 64}
REALS: Final = (9, 10)
PLAIN_BELOW: Final[dict[int | None, int]] = {
    **{datatype: 1 << bits - 1 for datatype, bits in _SIGNED.items() if bits < 64},
    **{datatype: 1 << bits for datatype, bits in _UNSIGNED.items() if bits < 64},
    4: 1 << 53,
    8: 1 << 53,
}
"""Datatype of an integer to the first number that needs a closer look: a sign, a range, or more digits than a double."""
_TEXTS: Final = (12, 14, 15)
_ARRAYS: Final = {22: "b", 23: "h", 24: "i", 25: "q", 26: "B", 27: "H", 28: "I", 29: "Q", 30: "f", 31: "d", 34: "q"}
"""Datatype of an array to the struct format of its items, little-endian."""
_BOOLEANS: Final = 32
_STRINGS: Final = 33
_INT8_ARRAY: Final = 22
_DATETIME_ARRAY: Final = 34
BOOLEAN_FIELD: Final = 14
_TEXT_FIELD: Final = 15
_BYTES_FIELD: Final = 16
_UNREAD_FIELDS: Final = (16, 17, 18)
_LARGEST: Final = sys.float_info.max
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES: Final = """
    Unknown Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float Double Boolean String DateTime Text UUID DataSet
    Bytes File Template PropertySet PropertySetList Int8Array Int16Array Int32Array Int64Array UInt8Array UInt16Array
    UInt32Array UInt64Array FloatArray DoubleArray BooleanArray StringArray DateTimeArray
    """.split()  # noqa: SIM905 - a table of names reads better than quotes and commas
_FIELDS: Final = {
    10: "an int", 11: "a long", 12: "a float", 13: "a double", 14: "a boolean", 15: "a string",
    16: "bytes", 17: "a dataset", 18: "a template",
}  # fmt: skip

Scalar = float | int | bool | str | BadNumber
"""BadNumber: a NaN or infinity, which is rejected when the reading is made."""


class DatatypeMismatch(Exception):
    """A metric's value does not fit its datatype; `stale`: its birth may be outdated, so ask for a new one."""

    def __init__(self, reason: Reason, got: str, wanted: str, *, stale: bool = False) -> None:
        super().__init__(got)
        self.reason, self.got, self.wanted, self.stale = reason, show_text(got), wanted, stale


def read_datatype_value(datatype: int | None, metric: SparkplugMetric) -> Scalar | list[Scalar]:
    """Return the value; a list for an array.

    Raises:
        Misfit: the value does not fit this datatype, or gives no reading (a dataset, bytes, a file).
    """
    field, raw = metric.field, metric.raw
    if isinstance(raw, float):
        if datatype is None or datatype in REALS:
            return raw if abs(raw) <= _LARGEST else BadNumber(repr(raw))
    elif isinstance(raw, bytes):
        if field == _TEXT_FIELD and (datatype is None or datatype in _TEXTS):
            return _text(raw)
        if field == _BYTES_FIELD and datatype is not None and _INT8_ARRAY <= datatype <= _DATETIME_ARRAY:
            return _read_array(datatype, raw)
    elif field != BOOLEAN_FIELD:
        return _read_integer(datatype, field, raw)
    elif datatype is None or datatype == BOOLEAN:
        return raw != 0
    raise _misfit(datatype, field)


def _misfit(datatype: int | None, field: int) -> DatatypeMismatch:
    got = _FIELDS.get(field, f"field {field}")
    if field in _UNREAD_FIELDS:
        return DatatypeMismatch(Reason.UNDECODED, got, "a number, boolean, text, array or template")
    return DatatypeMismatch(Reason.WRONG_TYPE, got, f"a value of datatype {_name(datatype)}", stale=True)


def _name(datatype: int | None) -> str:
    if datatype is None:
        return "unknown"
    return _NAMES[datatype] if datatype < len(_NAMES) else str(datatype)


def _read_integer(datatype: int | None, field: int, raw: int) -> Scalar:
    bits = _UNSIGNED.get(datatype or 0)
    if bits is not None:
        if raw < 1 << bits:
            return raw
    elif datatype in _SIGNED:
        bits = _SIGNED[datatype]
        least, limit = -(1 << bits - 1), 1 << bits - 1
        for number in (raw, raw - (1 << bits), raw - (1 << 32), raw - (1 << 64)):
            if least <= number < limit and (number >= 0) == (number == raw):
                return number
    elif datatype == DATETIME:
        return _time_text(raw)
    elif datatype is None:
        wanted = "a birth with its datatype: without it the sign is unknown"
        raise DatatypeMismatch(Reason.ALIAS_UNKNOWN, "an integer", wanted, stale=True)
    else:
        raise _misfit(datatype, field)
    raise DatatypeMismatch(Reason.OUT_OF_RANGE, str(raw), f"a value of datatype {_name(datatype)}", stale=True)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        got = f"byte 0x{raw[error.start]:02x} at position {error.start}"
        raise DatatypeMismatch(Reason.BAD_ENCODING, got, "text in UTF-8") from None


def _time_text(since_epoch_ms: int) -> str:
    """Return a time as text, because a time as a value needs no unit then."""
    try:
        at = _EPOCH + timedelta(milliseconds=since_epoch_ms)
    except OverflowError:
        wanted = "epoch milliseconds before the year 10000"
        raise DatatypeMismatch(Reason.BAD_TIMESTAMP, str(since_epoch_ms), wanted) from None
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _read_array(datatype: int, raw: bytes) -> list[Scalar]:
    if datatype == _BOOLEANS:
        return _read_booleans(raw)
    if datatype == _STRINGS:
        parts = raw.split(b"\0")
        if parts.pop():
            raise DatatypeMismatch(Reason.WRONG_TYPE, "a last text without its NUL", "texts that end in NUL")
        return [_text(part) for part in parts]
    form = "<" + _ARRAYS[datatype]
    if len(raw) % struct.calcsize(form):
        raise DatatypeMismatch(Reason.WRONG_TYPE, f"{len(raw)} bytes", f"whole items of {struct.calcsize(form)} bytes")
    items = [item for (item,) in struct.iter_unpack(form, raw)]
    if datatype == _DATETIME_ARRAY:
        return [_time_text(item) for item in items]
    return [BadNumber(repr(item)) if isinstance(item, float) and abs(item) > _LARGEST else item for item in items]


def _read_booleans(raw: bytes) -> list[Scalar]:
    """Read a count in four bytes, then bits, the first one highest."""
    count = int.from_bytes(raw[:4], "little")
    bits = raw[4:]
    if len(raw) < 4 or len(bits) != (count + 7) // 8:
        raise DatatypeMismatch(Reason.WRONG_TYPE, f"{len(raw)} bytes", "a count of four bytes and as many bits")
    return [bool(bits[place // 8] >> (7 - place % 8) & 1) for place in range(count)]

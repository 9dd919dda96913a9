"""Subset of CBOR for sensor data: bounded in depth, items and bytes, and without tags that run code.

It reads integers, floats of all sizes, texts, byte strings, arrays and maps (of known or indefinite length), true, false,
null, the decimal fraction (tag 4) and the mark of CBOR itself (tag 55799). It rejects everything else by name.
Source: RFC 8949.
"""

import math
import struct
from collections.abc import Callable
from typing import Any, Final

from gateway.json_text import BadNumber

__all__ = ["MAX_ITEMS", "BadCbor", "read_cbor"]

MAX_ITEMS: Final = 50_000
"""Most items of one document, including keys and containers: it bounds the time, at about a microsecond each."""
_BYTES, _TEXT, _ARRAY, _MAP = 2, 3, 4, 5
_OPEN: Final = 31
_BREAK: Final = 0xFF
_LENGTHS: Final = {24: 1, 25: 2, 26: 4, 27: 8}
_FLOATS: Final = {25: struct.Struct(">e"), 26: struct.Struct(">f"), 27: struct.Struct(">d")}
_CONSTANTS: Final = {20: False, 21: True, 22: None, 23: None}
_DECIMAL_FRACTION: Final = 4
_SELF_DESCRIBED: Final = 55799


class BadCbor(ValueError):
    """These bytes are not a supported CBOR document; the text says where and why."""


def _bad(at: int, what: str) -> BadCbor:
    return BadCbor(f"byte {at}: {what}")


def read_cbor(data: bytes, *, max_depth: int) -> tuple[Any, bool]:
    """Read one document, as dict (keys int or str), list, str, bytes, int, float, bool, None or BadNumber, nested.

    Returns:
        The document, and whether a map had a key twice (the last one wins). NaN and infinities are BadNumber.

    Raises:
        BadCbor: cut off, bytes after the document, too deep, more than MAX_ITEMS, or an item that is not supported.
    """
    reader = _Reader(data)
    value = reader.read(max_depth)
    if reader.at != len(data):
        raise _bad(reader.at, f"{len(data) - reader.at} bytes after the end of the document")
    return value, reader.key_twice


class _Reader:
    """Reader at a place in the bytes. `depth` bounds the recursion."""

    __slots__ = ("_data", "_items", "at", "key_twice")

    def __init__(self, data: bytes) -> None:
        self._data, self.at, self._items, self.key_twice = data, 0, 0, False

    def read(self, depth: int) -> Any:
        """Read the item that begins here."""
        start = self.at
        try:
            head = self._data[start]
        except IndexError:
            raise _bad(start, "cut off") from None
        self.at = start + 1
        return head if head < 24 else _READ[head >> 5](self, head & 31, start, depth)

    def _int(self, low: int, start: int, depth: int) -> int:
        return self._number(low, start)

    def _negative(self, low: int, start: int, depth: int) -> int:
        return -1 - (low if low < 24 else self._number(low, start))

    def _number(self, low: int, start: int) -> int:
        """Read the number of the head: a value or a length; -1 for an indefinite length."""
        if low == _OPEN and self._data[start] >> 5 in (_BYTES, _TEXT, _ARRAY, _MAP):
            return -1
        size = _LENGTHS.get(low)
        if size is None:
            raise _bad(start, f"0x{self._data[start]:02x} does not begin an item")
        return int.from_bytes(self._take(size, start), "big")

    def _take(self, size: int, start: int) -> bytes:
        end = self.at + size
        if end > len(self._data):
            raise _bad(start, f"{size} bytes wanted, but {len(self._data) - self.at} are left")
        taken = self._data[self.at : end]
        self.at = end
        return taken

    def _simple(self, low: int, start: int, depth: int) -> float | bool | BadNumber | None:
        if low in _CONSTANTS:
            return _CONSTANTS[low]
        packed = _FLOATS.get(low)
        if packed is None:
            raise _bad(start, f"0x{self._data[start]:02x} begins an item that is not supported")
        number: float = packed.unpack(self._take(packed.size, start))[0]
        return number if math.isfinite(number) else BadNumber(str(number))

    def _bytes(self, low: int, start: int, depth: int) -> bytes:
        size = low if low < 24 else self._number(low, start)
        return self._take(size, start) if size >= 0 else self._chunks(_BYTES)

    def _text(self, low: int, start: int, depth: int) -> str:
        size = low if low < 24 else self._number(low, start)
        content = self._take(size, start) if size >= 0 else self._chunks(_TEXT)
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _bad(start, "text that is not UTF-8") from error

    def _chunks(self, major: int) -> bytes:
        """Read a string of indefinite length: pieces of the same kind up to the break."""
        pieces = []
        while not self._ended():
            start = self.at
            self._count(1)
            head = self._data[start]
            if head >> 5 != major or head & 31 == _OPEN:
                raise _bad(start, f"0x{head:02x} does not begin a piece of the string")
            self.at = start + 1
            low = head & 31
            pieces.append(self._take(low if low < 24 else self._number(low, start), start))
        return b"".join(pieces)

    def _ended(self) -> bool:
        """Skip the break that ends an indefinite length, if it is there."""
        if self.at >= len(self._data):
            raise _bad(self.at, "cut off")
        ended = self._data[self.at] == _BREAK
        self.at += ended
        return ended

    def _count(self, items: int) -> None:
        """Count items that are about to be read; single items need no bound."""
        self._items += items
        if self._items > MAX_ITEMS:
            raise _bad(self.at, f"more than {MAX_ITEMS} items")

    def _inside(self, depth: int, start: int) -> int:
        if depth <= 0:
            raise _bad(start, "nested too deep")
        return depth - 1

    def _array(self, low: int, start: int, depth: int) -> list[Any]:
        depth = self._inside(depth, start)
        size = low if low < 24 else self._number(low, start)
        if size > len(self._data) - self.at:
            raise _bad(start, f"{size} items wanted, but {len(self._data) - self.at} bytes are left")
        if size >= 0:
            self._count(size)
            return [self.read(depth) for _ in range(size)]
        items = []
        while not self._ended():
            self._count(1)
            items.append(self.read(depth))
        return items

    def _map(self, low: int, start: int, depth: int) -> dict[int | str, Any]:
        depth = self._inside(depth, start)
        size = low if low < 24 else self._number(low, start)
        found: dict[int | str, Any] = {}
        count = 0
        while count < size or (size < 0 and not self._ended()):
            self._count(2)
            key = self.read(depth)
            if type(key) is not int and type(key) is not str:
                raise _bad(start, "a map with a key that is neither integer nor text")
            found[key] = self.read(depth)
            count += 1
        self.key_twice = self.key_twice or len(found) != count
        return found

    def _tagged(self, low: int, start: int, depth: int) -> Any:
        tag = low if low < 24 else self._number(low, start)
        self._count(1)
        content = self.read(self._inside(depth, start))
        if tag == _SELF_DESCRIBED:
            return content
        if tag != _DECIMAL_FRACTION:
            raise _bad(start, f"tag {tag} is not supported")
        if type(content) is list and [type(part) for part in content] == [int, int]:
            exponent, mantissa = content
            # As text, so that the float is the nearest one; a longer exponent only gives zero or infinity.
            number = float(f"{mantissa}e{exponent}")
            return number if math.isfinite(number) else BadNumber(f"{mantissa}e{exponent}")
        raise _bad(start, "a decimal fraction that is not a pair of exponent and mantissa")


_READ: Final[tuple[Callable[[_Reader, int, int, int], Any], ...]] = (
    _Reader._int,
    _Reader._negative,
    _Reader._bytes,
    _Reader._text,
    _Reader._array,
    _Reader._map,
    _Reader._tagged,
    _Reader._simple,
)
"""Readers by major type."""

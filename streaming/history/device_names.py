"""Search for a device's id in bytes that are not a column: payloads, texts, files.

An id counts only if no ASCII letter or digit is next to it, so `pump-1` is not found in `pump-10`. A very short id counts only
between quotes or slashes. In bytes that are not text, an id also counts after its own length, as CBOR, MessagePack and Protobuf
write it, because that length may look like a letter. It is also found as JSON and URLs escape it, in UTF-16, in hex, inside
base64, and inside gzip and zlib, plain or in base64.
"""

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from streaming.history.journal import device_hash

__all__ = ["SHORT", "DeviceNames"]

LEAST_BASE64: Final = 8
"""Fewer characters of base64 or hex are found in any payload by chance."""
MOST_INFLATED: Final = 16 * 1024**2
SHORT: Final = 3
"""An id of fewer characters is a name only between quotes or slashes, or alone: else each number 1 would name device 1."""
_BY_LETTERS: Final = rb"(?<![A-Za-z0-9])", rb"(?![A-Za-z0-9])"
_BY_SIGNS: Final = rb"(?:(?<=[\"'/])|(?<=\A))", rb"(?=[\"'/\\\\]|\Z)"
_PACKED: Final = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
"""First bytes of gzip and zlib data."""
_PACKED_BASE64: Final = re.compile(rb"(?:H4sI|eA[E-H]|eF[4-7]|eJ[w-z]|eN[o-r])[A-Za-z0-9+/_-]{12,}")
"""First characters of gzip and zlib data in base64."""
_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1f\x80-\xff]")
_PARQUET: Final = b"PAR1"


class DeviceNames:
    """The ways in which one device is named."""

    def __init__(self, device: str) -> None:
        self.device = device
        plain = {device, json.dumps(device)[1:-1], json.dumps(device, ensure_ascii=False)[1:-1]}
        plain |= {each.replace("/", "\\/") for each in plain}
        plain |= {quote(device, safe=safe) for safe in ("", "/") if "%" in quote(device, safe=safe)}
        words = b"|".join(re.escape(each.encode("utf-8", "surrogatepass")) for each in sorted(plain))
        left, right = _BY_SIGNS if len(device) < SHORT else _BY_LETTERS
        found = left + rb"(?:" + words + rb")" + right
        raw = device.encode("utf-8", "surrogatepass")
        if coded := sorted({*_in_base64(raw), *_in_hex(raw)}):
            found += b"|" + b"|".join(map(re.escape, coded))
        # JSON may write its escapes in capitals.
        self._pattern = re.compile(found if device.isascii() else b"(?i:" + found + b")")
        wide = [device.encode(code, "surrogatepass") for code in ("utf-16-le", "utf-16-be")]
        self._binary = re.compile(
            b"|".join(map(re.escape, [*_with_length(raw), *(each for each in wide if len(each) > 4)]))
        )
        self._stands_in = f"sha256:{device_hash(device)[:16]}"

    def in_bytes(self, content: bytes | None) -> bool:
        """Return whether these bytes name the device, as they are or inflated."""
        if not content:
            return False
        return self._is_in(content) or any(map(self._is_in, _unpacked(content)))

    def _is_in(self, content: bytes) -> bool:
        if self._pattern.search(content):
            return True
        return self._binary.search(content) is not None and _NO_TEXT.search(content) is not None

    def in_text(self, text: str | None) -> bool:
        """Return whether a text names the device."""
        return bool(text) and self.in_bytes(str(text).encode("utf-8", "surrogatepass"))

    def in_row(self, row: Mapping[str, Any]) -> bool:
        """Return whether any value of a row names the device."""
        return any(self._in_value(value) for value in row.values())

    def in_file(self, path: Path) -> bool:
        """Return whether a file names the device; a Parquet file by its column values. An unreadable file counts as yes."""
        try:
            content = path.read_bytes()
            if content[:4] != _PARQUET:
                return self.in_bytes(content)
            return self.in_bytes(content) or self._in_parquet(path)
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            return True

    def hidden(self, value: Any) -> Any:
        """The value with the device's hash in place of its id, in texts at any depth."""
        if isinstance(value, str):
            if not self.in_text(value):
                return value
            text = self._pattern.sub(self._stands_in.encode(), value.encode("utf-8", "surrogatepass"))
            return self._stands_in if self.in_bytes(text) else text.decode()  # packed text has no place for the hash
        if isinstance(value, Mapping):
            return {self.hidden(key): self.hidden(each) for key, each in value.items()}
        return [self.hidden(each) for each in value] if isinstance(value, list) else value

    def _in_value(self, value: Any) -> bool:
        if isinstance(value, bytes):
            return self.in_bytes(value)
        if isinstance(value, str):
            return self.in_text(value)
        if isinstance(value, Mapping):
            return any(map(self._in_value, (*value.keys(), *value.values())))
        return isinstance(value, list | tuple) and any(map(self._in_value, value))

    def _in_parquet(self, path: Path) -> bool:
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            return any(self.in_row(row) for batch in file.iter_batches() for row in batch.to_pylist())


def _in_base64(word: bytes) -> Iterator[bytes]:
    """Return the constant part of the id in base64, at each of three places; nothing if it is too short to be a name."""
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + word)
        first, last = -(-before * 8 // 6), (before + len(word)) * 8 // 6
        for alphabet in (coded, coded.replace(b"+", b"-").replace(b"/", b"_")):
            if len(part := alphabet[first:last]) >= LEAST_BASE64:
                yield part


def _in_hex(word: bytes) -> Iterator[bytes]:
    if 2 * len(word) >= LEAST_BASE64:
        yield from (word.hex().encode(), word.hex().upper().encode())


def _with_length(word: bytes) -> Iterator[bytes]:
    """The id behind its length: as CBOR, MessagePack and Protobuf write a text."""
    if len(word) < 24:
        yield bytes([0x60 + len(word)]) + word
    if len(word) < 32:
        yield bytes([0xA0 + len(word)]) + word
    if len(word) < 256:
        yield from (head + bytes([len(word)]) + word for head in (b"\x78", b"\xd9"))
    if len(word) < 128:
        yield bytes([len(word)]) + word


def _unpacked(content: bytes) -> Iterator[bytes]:
    """Return the content of gzip or zlib data, if the whole is such data, or a text has some in base64."""
    if content.startswith(_PACKED):
        yield _inflated(content)
    for found in _PACKED_BASE64.finditer(content):
        coded = found[0].translate(bytes.maketrans(b"-_", b"+/"))
        yield _inflated(base64.b64decode(coded[: len(coded) // 4 * 4]))


def _inflated(content: bytes) -> bytes:
    try:
        return zlib.decompressobj(32 + zlib.MAX_WBITS).decompress(content, MOST_INFLATED)
    except zlib.error:
        return b""

"""Finds a device's id in bytes that are not a column: payloads, texts, files.

An id counts where no letter or digit of ASCII is next to it, so `pump-1` is not found in `pump-10`. It is also found as
JSON escapes it, inside base64, and inside gzip.
"""

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from streaming.history.journal import device_hash

__all__ = ["Names"]

LEAST_BASE64: Final = 8
"""Fewer characters of base64 are found in any payload by chance."""
MOST_INFLATED: Final = 16 * 1024**2
_GZIP: Final = b"\x1f\x8b"
_PARQUET: Final = b"PAR1"


class Names:
    """The ways in which one device is named."""

    def __init__(self, device: str) -> None:
        self.device = device
        plain = {device, json.dumps(device)[1:-1], json.dumps(device, ensure_ascii=False)[1:-1]}
        plain |= {each.replace("/", "\\/") for each in plain}
        words = b"|".join(re.escape(each.encode()) for each in sorted(plain))
        found = rb"(?<![A-Za-z0-9])(?:" + words + rb")(?![A-Za-z0-9])"
        if coded := sorted(set(_in_base64(device.encode()))):
            found += b"|" + b"|".join(map(re.escape, coded))
        # JSON may write its escapes in capitals.
        self._pattern = re.compile(found if device.isascii() else b"(?i:" + found + b")")
        self._stands_in = f"sha256:{device_hash(device)[:16]}"

    def in_bytes(self, content: bytes | None) -> bool:
        """Whether these bytes name it, as they are or inflated."""
        if not content:
            return False
        if self._pattern.search(content):
            return True
        return content[:2] == _GZIP and self._pattern.search(_inflated(content)) is not None

    def in_text(self, text: str | None) -> bool:
        """Whether a text names it."""
        return bool(text) and self.in_bytes(str(text).encode("utf-8", "surrogatepass"))

    def in_row(self, row: Mapping[str, Any]) -> bool:
        """Whether any value of a row does."""
        return any(self._in_value(value) for value in row.values())

    def in_file(self, path: Path) -> bool:
        """Whether a file does; a Parquet file by the values of its columns, and one that cannot be read is taken to."""
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
            return self._pattern.sub(self._stands_in.encode(), value.encode("utf-8", "surrogatepass")).decode()
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
    """What stays the same of the id in base64, at each of three places; nothing where that is too short to mean it."""
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + word)
        first, last = -(-before * 8 // 6), (before + len(word)) * 8 // 6
        for alphabet in (coded, coded.replace(b"+", b"-").replace(b"/", b"_")):
            if len(part := alphabet[first:last]) >= LEAST_BASE64:
                yield part


def _inflated(content: bytes) -> bytes:
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(content, MOST_INFLATED)
    except zlib.error:
        return b""

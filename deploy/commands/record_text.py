"""Text forms of Kafka records: output of `tail` and input of `produce`, with kcat's letters."""

import base64
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import typer

from deploy.commands.options import parse_time
from ingest.manual_producer import OutgoingRecord
from ingest.read.tail import TailRecord, TailStart

__all__ = [
    "argument_bytes",
    "compile_format",
    "json_line",
    "parse_delimiter",
    "parse_headers",
    "parse_start",
    "split_records",
]

Render = Callable[[TailRecord], bytes]

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_TOKEN: Final = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+)|(.)", re.DOTALL)
_NULL_LENGTH: Final = -1
_READ_BYTES: Final = 1 << 16
MOST_RECORD_BYTES: Final = 64 * 1024 * 1024


def _length(content: bytes | None) -> bytes:
    return str(_NULL_LENGTH if content is None else len(content)).encode()


_FIELDS: Final[dict[str, Render]] = {
    "s": lambda record: record.value or b"",
    "S": lambda record: _length(record.value),
    "k": lambda record: record.key or b"",
    "K": lambda record: _length(record.key),
    "t": lambda record: record.topic.encode(),
    "p": lambda record: str(record.partition).encode(),
    "o": lambda record: str(record.offset).encode(),
    "T": lambda record: str(record.at_ms).encode(),
    "h": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
    "%": lambda record: b"%",
}


def compile_format(text: str) -> Render:
    r"""Compile a format such as `%t %p %o %k %s\n`; kcat's letters s S k K t p o T h, `\n`, `\t`, `\xHH`.

    Raises:
        BadParameter: it has an unknown letter.
    """
    parts: list[Render] = []
    for match in _TOKEN.finditer(text):
        field, code, escape, plain, lone = match.groups()
        if field is not None and field not in _FIELDS:
            msg = f"-f {text!r}: %{field} is unknown; use one of %{' %'.join(_FIELDS)}."
            raise typer.BadParameter(msg)
        if field is not None:
            parts.append(_FIELDS[field])
            continue
        fixed = bytes([int(code, 16)]) if code else _ESCAPES.get(escape or "")
        if fixed is None:
            fixed = argument_bytes(plain or lone or f"\\{escape}")
        parts.append(_constant(fixed))
    return lambda record: b"".join(part(record) for part in parts)


def argument_bytes(text: str) -> bytes:
    """Return the bytes of an argument, even if they are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _constant(content: bytes) -> Render:
    return lambda _record: content


def parse_delimiter(text: str) -> bytes:
    r"""Return the bytes of a typed delimiter: `\n`, `\t`, `\xHH` are the characters that they name.

    Raises:
        BadParameter: it is empty.
    """
    found = compile_format(text.replace("%", "%%"))(TailRecord("", 0, 0, -1, "", None, None))
    if not found:
        msg = "The delimiter is empty: use at least one character."
        raise typer.BadParameter(msg)
    return found


def json_line(record: TailRecord) -> str:
    """Return a record as one line of JSON with kcat's names; bytes that are not UTF-8 are `key_base64`, `payload_base64`."""
    found: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": record.time_type,
        "ts": record.at_ms,
        "headers": [part for name, value in record.headers for part in (name, _shown(value))],
    }
    for name, content in (("key", record.key), ("payload", record.value)):
        try:
            found[name] = None if content is None else content.decode()
        except UnicodeDecodeError:
            found[f"{name}_base64"] = base64.b64encode(content or b"").decode()
    return json.dumps(found, ensure_ascii=False)


def _shown(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "backslashreplace")


def parse_start(text: str, option: str = "-o") -> TailStart:
    """Parse `beginning`, `end`, `-10` (the last ten), `1234` (an offset), `s@TIME` (ISO 8601, epoch ms, or 10m-ago).

    Raises:
        BadParameter: it is none of these.
    """
    if text in ("beginning", "earliest"):
        return TailStart("beginning")
    if text in ("end", "latest"):
        return TailStart("end")
    if re.fullmatch(r"-\d{1,18}", text):
        return TailStart("last", int(text[1:]))
    if re.fullmatch(r"\d{1,18}", text):
        return TailStart("offset", int(text))
    if text.startswith("s@"):
        at_ms = _epoch_ms(text[2:])
        if at_ms > time.time() * 1000:
            msg = f"{option} {text[2:]!r} is in the future: use a time that has passed, or leave {option} out."
            raise typer.BadParameter(msg)
        return TailStart("time", at_ms)
    msg = f"{option} {text!r}: use beginning, end, an offset such as 1234, -10 for the last ten, or s@TIME."
    raise typer.BadParameter(msg)


def _epoch_ms(text: str) -> int:
    if re.fullmatch(r"\d{1,15}", text):
        return int(text)
    return int(parse_time(text).timestamp() * 1000)


def parse_headers(texts: Iterable[str]) -> list[tuple[str, bytes | None]]:
    """Parse headers such as `name=value`; `name` alone has no value.

    Raises:
        BadParameter: a name is missing, or not printable.
    """
    found: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not name.isprintable():
            msg = f"-H {text!r}: use NAME=VALUE, with a name of printable characters in UTF-8."
            raise typer.BadParameter(msg)
        found.append((name, argument_bytes(value) if equals else None))
    return found


def split_records(
    read: Callable[[int], bytes],
    *,
    delimited_by: bytes = b"\n",
    key: bytes | None = None,
    key_delimiter: bytes | None = None,
    empty_is_null: bool = False,
) -> Iterator[OutgoingRecord]:
    """Yield the records of a stream of bytes, each one when its delimiter has come; empty records are left out.

    Args:
        read: returns some bytes, none at the end.
        delimited_by: text that ends a record.
        key: key of all records.
        key_delimiter: text between key and value of a record; a record without it has the key `key`.
        empty_is_null: send an empty key or value as null (a null value deletes its key).

    Raises:
        BadParameter: a record is larger than 64 MiB, so the delimiter is probably wrong.
    """
    rest = bytearray()
    while piece := read(_READ_BYTES):
        # Only new bytes can complete a delimiter: do not search a large record again with each piece.
        new_from = max(0, len(rest) - len(delimited_by) + 1)
        rest += piece
        if rest.find(delimited_by, new_from) >= 0:
            *whole, last = bytes(rest).split(delimited_by)
            rest = bytearray(last)
            for text in whole:
                yield from _outgoing(text, key, key_delimiter, empty_is_null=empty_is_null)
        if len(rest) > MOST_RECORD_BYTES:
            msg = f"No delimiter {delimited_by!r} within {MOST_RECORD_BYTES} bytes: name the right one with -D."
            raise typer.BadParameter(msg)
    yield from _outgoing(bytes(rest), key, key_delimiter, empty_is_null=empty_is_null)


def _outgoing(
    text: bytes, key: bytes | None, key_delimiter: bytes | None, *, empty_is_null: bool
) -> Iterator[OutgoingRecord]:
    if not text:
        return
    value: bytes | None = text
    if key_delimiter is not None and key_delimiter in text:
        own, _, value = text.partition(key_delimiter)
        key = own
    if empty_is_null:
        key, value = key or None, value or None
    yield OutgoingRecord(value, key)

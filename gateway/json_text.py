"""Strict JSON: bytes to a Python document with flags, or a rejection. Never an exception, whatever the bytes are.

The usual document goes through one fast parse (msgspec, C). Only if that fails, or if a key may occur twice or digits may
be lost, a second, exact parse decides: good input rarely needs it. A key that occurs twice shows in the colons: encoded
again, the document has fewer of them.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import msgspec

from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["BadNumber", "Document", "parse_json", "strip_byte_order_mark"]

DUPLICATE_KEY: Final = "duplicate_key"
JSON_IN_TEXT: Final = "json_in_text"
"""Flag of a message that is a JSON string containing the JSON document."""
UNDERFLOW: Final = "underflow"
_MAX_DIGITS: Final = 309
"""More digits than this exceed every double. Rejecting by length also avoids quadratic int parsing."""
_LARGEST: Final = 2**1024
_SMALL_EXPONENT = re.compile(rb"e-\d{3}")
_SMALL_EXPONENT_UPPER = re.compile(rb"E-\d{3}")
"""Two patterns that begin with fixed bytes: searching for a class of bytes is much slower."""
_MANY_ZEROS: Final = b"0" * 300
"""A fraction below every double needs more leading zeros than these."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARK: Final = b"\xef\xbb\xbf"
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class BadNumber:
    """Stand-in in a document for NaN, Infinity or a number beyond every double; it spoils only its field."""

    __slots__ = ("text", "wanted")

    def __init__(self, text: str, wanted: str = "a finite number") -> None:
        self.text, self.wanted = show_text(text), wanted

    def __repr__(self) -> str:
        return self.text


class Document(msgspec.Struct, frozen=True):
    """Parsed document: dict, list, str, int, float, bool, None or BadNumber, nested; `flags` name oddities.

    Floats are finite; integers may be larger than any float.
    """

    value: Any
    flags: tuple[str, ...] = ()


def parse_json(payload: bytes, *, max_bytes: int, max_depth: int) -> Document | Reject:
    """Parse one JSON document.

    Guarantee: never raises; time and memory are bounded by `max_bytes`, at any nesting.
    """
    if len(payload) > max_bytes:
        return Reject(Reason.TOO_LARGE, got=f"{len(payload)} bytes", wanted=f"at most {max_bytes} bytes")
    document = _parse(payload, max_depth)
    if isinstance(document, Document) and type(document.value) is str:
        return _unpack(document, document.value, max_depth)
    return document


def _unpack(outer: Document, text: str, max_depth: int) -> Document | Reject:
    """Return the document in a text, if the whole message is a JSON string with JSON inside."""
    text = text.strip()
    if not text.startswith(("{", "[")):
        return outer
    inner = _parse(text.encode(), max_depth)
    if isinstance(inner, Document):
        return Document(inner.value, (*outer.flags, *inner.flags, JSON_IN_TEXT))
    if text.startswith("[") and inner.reason is Reason.BAD_JSON:
        return outer
    return replace(inner, path="$", wanted=f"{inner.wanted} inside the JSON string")


def _parse(payload: bytes, max_depth: int) -> Document | Reject:
    try:
        value = _decode(payload)
    except RecursionError:
        return _too_deep(max_depth)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _parse_exactly(strip_byte_order_mark(payload), max_depth)
    brackets = payload.count(b"{") + payload.count(b"[")
    if brackets > max_depth and _depth(value) > max_depth:
        return _too_deep(max_depth)
    if brackets == 1 and type(value) is dict and payload.count(b":") == len(value):
        # The usual object contains no other object, and no colons in its texts.
        is_whole = not _may_underflow(payload)
    else:
        is_whole = _is_whole(payload, value)
    return Document(value) if is_whole else _parse_exactly(payload, max_depth)


def strip_byte_order_mark(payload: bytes) -> bytes:
    """Return the payload without a UTF-8 byte order mark, which editors and .NET put in front."""
    return payload.removeprefix(_MARK)


def _is_whole(payload: bytes, value: object) -> bool:
    """Return whether the parsed document has certainly lost no key and no digits.

    Encoded again it has the same colons, those of its keys and those in its texts; one fewer for each lost key.
    """
    again = _encode(value)
    if again == payload:
        return True
    if b"\\" in payload and (b"\\u003a" in payload or b"\\u003A" in payload):
        # An escaped colon.
        return False
    return payload.count(b":") == again.count(b":") and not (b"0.0" in again and _may_underflow(payload))


def _may_underflow(payload: bytes) -> bool:
    """Return whether a number that is not 0 may have become 0."""
    if b"-" in payload and _has_small_exponent(payload):
        return True
    return len(payload) > len(_MANY_ZEROS) and _MANY_ZEROS in payload


def _has_small_exponent(payload: bytes) -> bool:
    if b"e-" in payload and _SMALL_EXPONENT.search(payload) is not None:
        return True
    return b"E-" in payload and _SMALL_EXPONENT_UPPER.search(payload) is not None


def _depth(value: object) -> int:
    """Return how deep objects and arrays are nested; a scalar has 0. By levels: recursion could go too deep."""
    depth = 0
    level: list[Any] = [value] if type(value) is dict or type(value) is list else []
    while level:
        depth += 1
        deeper: list[Any] = []
        for node in level:
            members: Iterable[Any] = node.values() if type(node) is dict else node
            for item in members:
                if type(item) is dict or type(item) is list:
                    deeper.append(item)
        level = deeper
    return depth


def _too_deep(max_depth: int) -> Reject:
    return Reject(Reason.TOO_DEEP, path="$", got="deeper nesting", wanted=f"at most {max_depth} levels")


def _parse_exactly(payload: bytes, max_depth: int) -> Document | Reject:
    """Parse slowly: the same documents as the fast parse, plus what JSON does not allow but devices send."""
    text = _decode_text(payload)
    if isinstance(text, Reject):
        return text
    flags: dict[str, None] = {}
    try:
        value = _exact_decoder(flags).decode(text)
    except RecursionError:
        return _too_deep(max_depth)
    except json.JSONDecodeError as error:
        return Reject(Reason.BAD_JSON, got=show_text(_fault(error, text)), wanted="one JSON document")
    if _depth(value) > max_depth:
        return _too_deep(max_depth)
    if "\\u" in text and _holds_surrogate(value):
        return Reject(Reason.BAD_ENCODING, got="half of a surrogate pair", wanted="whole characters")
    return Document(value, tuple(flags))


def _fault(error: json.JSONDecodeError, text: str) -> str:
    """Return what is wrong, where, and what is there; some messages of the standard library end with "at" or a colon."""
    what = error.msg.rstrip(": ").removesuffix(" at")
    there = text[error.pos : error.pos + 40]
    return f"{what} at character {error.pos}" + (f": {there}" if there.strip() else "" if there else ", the end")


def _decode_text(payload: bytes) -> str | Reject:
    wanted = "UTF-8"
    # No JSON document has NUL as its first or second byte: this is UTF-16 or UTF-32.
    if (zero := payload.find(b"\0", 0, 4)) >= 0:
        got = f"byte 0x00 at position {zero}, as in UTF-16 or UTF-32"
        return Reject(Reason.BAD_ENCODING, got=got, wanted=wanted)
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError as error:
        got = f"byte 0x{payload[error.start]:02x} at position {error.start}"
        return Reject(Reason.BAD_ENCODING, got=got, wanted=wanted)


def _exact_decoder(flags: dict[str, None]) -> json.JSONDecoder:
    """Make a decoder of the standard library (C scanner) that reports into `flags`."""

    def read_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            flags[DUPLICATE_KEY] = None
        return found

    def read_float(text: str) -> float | BadNumber:
        number = float(text)
        if number == 0.0 and any(digit in "123456789" for digit in re.split("[eE]", text, maxsplit=1)[0]):
            flags[UNDERFLOW] = None
        return number if abs(number) != float("inf") else BadNumber(text)

    def read_int(text: str) -> int | BadNumber:
        if len(text) > _MAX_DIGITS + 1:
            return BadNumber(text)
        number = int(text)
        return number if abs(number) < _LARGEST else BadNumber(text)

    return json.JSONDecoder(
        object_pairs_hook=read_object, parse_float=read_float, parse_int=read_int, parse_constant=BadNumber
    )


def _holds_surrogate(value: object) -> bool:
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            if _SURROGATE.search(node):
                return True
        elif isinstance(node, dict):
            waiting.extend(node)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return False

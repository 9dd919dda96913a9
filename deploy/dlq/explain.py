"""A rejected payload for people: its text with the wrong place marked, or its bytes. Pure."""

import json
import re
from typing import Final

__all__ = ["find_place", "mark_payload"]

BEFORE, AFTER = 60, 60
"""Characters shown around the place."""
HEX_BYTES: Final = 128
_SEGMENT = re.compile(r'\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')
_AT = re.compile(r"\bat character (\d+)")
_AT_BYTE = re.compile(r"^byte 0x[0-9a-f]{2} at position (\d+)(?! of the topic)\b")
_SPACE = re.compile(r"[ \t\r\n]*")
_decoder: Final = json.JSONDecoder()


def mark_payload(payload: bytes, path: str | None, got: str | None) -> list[str]:
    """Return lines to print: the text around the failing place and carets below it; a hex dump if it is not text."""
    if not payload:
        return ["(no bytes)"]
    at = _AT_BYTE.search(got or "")
    if at is not None and int(at[1]) < len(payload) and path in (None, "$"):
        return _hex_lines(payload, int(at[1]))
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        return _hex_lines(payload, error.start)
    place = find_place(text, path, got)
    begin, end = (0, 0) if place is None else place
    first, last = max(0, begin - BEFORE), min(len(text), end + AFTER)
    head, tail = "…" if first else "", "…" if last < len(text) else ""
    before, marked, after = (_visible(part) for part in (text[first:begin], text[begin:end], text[end:last]))
    line = f"{head}{before}{marked}{after}{tail}"
    return [line] if place is None else [line, " " * len(head + before) + "^" * max(1, len(marked))]


def find_place(text: str, path: str | None, got: str | None) -> tuple[int, int] | None:
    """Return the place of the fault as [begin, end) in characters; None if it is not known, or is the whole text."""
    at = _AT.search(got or "")
    if at is not None and int(at[1]) <= len(text):
        return int(at[1]), min(len(text), int(at[1]) + 1)
    if not (path or "").startswith("$"):
        return None
    try:
        found = _value_at(text, _SPACE.match(text, 0).end(), _segments(path or ""))  # type: ignore[union-attr]
    except (ValueError, IndexError, RecursionError, StopIteration):
        return None
    return None if found == (0, len(text)) else found


def _segments(path: str) -> list[str | int]:
    found: list[str | int] = []
    for name, index, quoted in _SEGMENT.findall(path.removeprefix("$")):
        found.append(int(index) if index else quoted or name)
    return found


def _value_at(text: str, at: int, segments: list[str | int]) -> tuple[int, int]:
    """The span of the value; of the nearest one around it where the path leads no further."""
    here = at, _end(text, at)
    if not segments:
        return here
    wanted, found = segments[0], None
    for name, begin in _members(text, at):
        if name == wanted:
            found = begin  # the last of equal keys is the one that counts
    return here if found is None else _value_at(text, found, segments[1:])


def _members(text: str, at: int) -> list[tuple[str | int, int]]:
    """Name or index of each member of the object or array that begins here, and where its value begins."""
    opening, members, index = text[at], list[tuple[str | int, int]](), 0
    if opening not in "{[":
        return members
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        name: str | int = index
        if opening == "{":
            name, at = json.decoder.scanstring(text, at + 1)  # type: ignore[attr-defined]
            at = _skip(text, _skip(text, at) + 1)
        members.append((name, at))
        at, index = _skip(text, _end(text, at)), index + 1
        at = _skip(text, at + 1) if text[at] == "," else at
    return members


def _end(text: str, at: int) -> int:
    return _decoder.raw_decode(text, at)[1]


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _hex_lines(payload: bytes, place: int) -> list[str]:
    first = max(0, place // 16 * 16 - 32)
    shown = payload[first : first + HEX_BYTES]
    lines = []
    for at in range(0, len(shown), 16):
        row = shown[at : at + 16]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        mark = f"   <- here: 0x{payload[place]:02x} at {place}" if 0 <= place - first - at < 16 else ""
        lines.append(f"{first + at:08x}  {row.hex(' '):<47}  {plain}{mark}")
    return lines + ([f"… {len(payload) - first - len(shown)} more bytes"] if first + len(shown) < len(payload) else [])

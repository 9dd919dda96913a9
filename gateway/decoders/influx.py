"""Influx line protocol: lines of text to a document in the shape of Telegraf's JSON, which a mapping then reads.

`{"metrics": [{"name", "tags": {}, "fields": {}, "timestamp"}]}`. A line that cannot be read is in it as a `Reject`, so
only that line is lost. The mapping decides which tag is the device and how metrics are named (presets/influx.toml).
Source: InfluxData, "Line protocol" (v1 and v2 agree).
"""

import re
from typing import Any, Final

from gateway.json_text import DUPLICATE_KEY, BadNumber, Document, strip_byte_order_mark
from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["parse_influx"]

# Possessive (++), so that text that does not match fails at once. A backslash includes the next character.
_HEAD = re.compile(r"(?:[^ \t\r\n\\]|\\[^\n])++")
_MEASUREMENT = re.compile(r"(?:[^, \t\r\n\\]|\\[^\n])++")
_KEY: Final = r"((?:[^,= \t\r\n\\]|\\[^\n])++)="
_TAG = re.compile(rf",{_KEY}((?:[^,= \t\r\n\\]|\\[^\n])++)")
_FIELD = re.compile(rf'{_KEY}(?:([^, \t\r\n"]++)|"((?:[^"\\]|\\.)*+)")', re.DOTALL)
_BLANK = re.compile(r"[ \t]*+")
_TIME = re.compile(r"-?[0-9]{1,20}")
_END = re.compile(r"[ \t]*+\r?(?:\n|\Z)")
_REST = re.compile(r"[^\n]*+\n?")
_SKIPPED = re.compile(r"[ \t\r\n]*+(?:#[^\n]*+\n?[ \t\r\n]*+)*+")
_ESCAPED = re.compile(r"\\([,= ])")
_ESCAPED_IN_TEXT = re.compile(r'\\(["\\])')
_INTEGER = re.compile(r"([+-]?\d{1,20})([iu])", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_MAX_NUMBER: Final = 400
_MAX_TAGS: Final = 200
_BOOLEANS: Final = {
    **dict.fromkeys(("t", "T", "true", "True", "TRUE"), True),
    **dict.fromkeys(("f", "F", "false", "False", "FALSE"), False),
}
_RANGES: Final = {"i": (-(2**63), 2**63), "u": (0, 2**64)}

_MAX_SERIES: Final = 10_000
_MAX_SERIES_CHARACTERS: Final = 300
_series: dict[str, tuple[str, dict[str, str]]] = {}
"""Measurement and tags of a line, as text and parsed: the same recur with every message. Bounded; never changed."""
_TOLD: Final = 100
"""Most lines whose fault is described; a description takes longer than reading, and nobody reads more."""
_FAULT: Final = Reject(Reason.UNDECODED, None, "one more line that cannot be read", "line protocol")


class _BadLine(ValueError):
    """The line is not valid: where, and what was wanted."""

    def __init__(self, at: int, wanted: str) -> None:
        super().__init__(at, wanted)
        self.at, self.wanted = at, wanted


class _TooMany(ValueError):
    """More fields than a message may have readings."""


def parse_influx(payload: bytes, *, max_bytes: int, max_readings: int) -> Document | Reject:
    """Parse all lines of one message; comments and empty lines are skipped. Never raises. Of a repeated field the last wins."""
    if len(payload) > max_bytes:
        return Reject(Reason.TOO_LARGE, got=f"{len(payload)} bytes", wanted=f"at most {max_bytes} bytes")
    try:
        text = strip_byte_order_mark(payload).decode("utf-8")
    except UnicodeDecodeError as error:
        got = f"byte 0x{payload[error.start]:02x} at position {error.start}"
        return Reject(Reason.BAD_ENCODING, got=got, wanted="lines of UTF-8 text")
    reader = _Reader(text, max_readings)
    try:
        lines = reader.read()
    except _TooMany:
        return Reject(Reason.TOO_LARGE, "$", "more fields", f"at most {max_readings} readings in a message")
    return Document({"metrics": lines}, (DUPLICATE_KEY,) if reader.field_twice else ())


class _Reader:
    """Reader of lines of text; the methods take the place to read from and return the next one."""

    __slots__ = ("_left", "_text", "field_twice")

    def __init__(self, text: str, max_readings: int) -> None:
        self._text, self._left, self.field_twice = text, max_readings, False

    def read(self) -> list[Any]:
        """Return every line, as an object or as a rejection."""
        lines: list[Any] = []
        faults = 0
        at = _past(_SKIPPED, self._text, 0)
        while at < len(self._text):
            try:
                line, end = self._line(at)
                lines.append(line)
            except _BadLine as bad:
                faults += 1
                lines.append(self._fault(bad) if faults <= _TOLD else _FAULT)
                # Continue at the next line: a missing quote must not spoil the lines after it.
                end = _past(_REST, self._text, at)
                self._spend(1)
            at = _past(_SKIPPED, self._text, end)
        return lines

    def _fault(self, bad: _BadLine) -> Reject:
        rest = self._text[bad.at : bad.at + 40].partition("\n")[0].rstrip("\r")
        return Reject(Reason.UNDECODED, None, show_text(rest or "the line's end"), bad.wanted)

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise _TooMany

    def _line(self, at: int) -> tuple[dict[str, Any], int]:
        text = self._text
        head = _HEAD.match(text, at)
        series = None if head is None else _series.get(head[0])
        if head is None or series is None:
            series, at = self._series(at)
        else:
            at = head.end()
        blank = _BLANK.match(text, at)
        if blank is None or not blank[0]:
            raise _BadLine(at, "a space before the fields")
        fields, at = self._fields(blank.end())
        line: dict[str, Any] = {"name": series[0], "tags": series[1], "fields": fields}
        at = _past(_BLANK, text, at)
        time = _TIME.match(text, at)
        if time is not None:
            line["timestamp"] = int(time[0])
            at = time.end()
        end = _END.match(text, at)
        if end is None:
            raise _BadLine(at, "a timestamp (an integer) or the line's end")
        return line, end.end()

    def _series(self, start: int) -> tuple[tuple[str, dict[str, str]], int]:
        """Read measurement and tags."""
        found = _MEASUREMENT.match(self._text, start)
        if found is None:
            raise _BadLine(start, "a measurement")
        tags, at = self._tags(found.end())
        series = (_unescape(found[0]), tags)
        if len(_series) < _MAX_SERIES and at - start <= _MAX_SERIES_CHARACTERS:
            _series[self._text[start:at]] = series
        return series, at

    def _tags(self, at: int) -> tuple[dict[str, str], int]:
        tags: dict[str, str] = {}
        for _ in range(_MAX_TAGS):
            if not self._text.startswith(",", at):
                return tags, at
            found = _TAG.match(self._text, at)
            if found is None:
                raise _BadLine(at + 1, "a tag: key=value")
            tags[_unescape(found[1])] = _unescape(found[2])
            at = found.end()
        raise _BadLine(at, f"fewer than {_MAX_TAGS} tags")

    def _fields(self, at: int) -> tuple[dict[str, Any], int]:
        fields: dict[str, Any] = {}
        while True:
            found = _FIELD.match(self._text, at)
            if found is None:
                raise _BadLine(at, 'a field: key=1.5, key=1i, key=1u, key=true or key="text"')
            self._spend(1)
            name = _unescape(found[1])
            self.field_twice = self.field_twice or name in fields
            text = found[2]
            fields[name] = _ESCAPED_IN_TEXT.sub(r"\1", found[3]) if text is None else _read_value(text)
            at = found.end()
            if not self._text.startswith(",", at):
                return fields, at
            at += 1


def _past(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _read_value(text: str) -> float | int | bool | BadNumber:
    """Return a field's value that is not text. One of an unknown type spoils only its field."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if len(text) <= _MAX_NUMBER:
        integer = _INTEGER.fullmatch(text)
        if integer is not None:
            number = int(integer[1])
            least, beyond = _RANGES[integer[2]]
            return number if least <= number < beyond else BadNumber(text)
        if _FLOAT.fullmatch(text):
            value = float(text)
            return value if abs(value) != float("inf") else BadNumber(text)
    return BadNumber(text)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text

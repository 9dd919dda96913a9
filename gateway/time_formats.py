"""Times in a written format from the settings: `%d.%m.%Y %H:%M`, with the directives of strptime that name an instant.

    %Y year  %y its last two digits (20yy)  %m month  %b %B its English name, short or long  %d day  %j day of the year
    %H hour  %I of twelve, with %p (AM, PM)  %M minute  %S second  %f its fraction, 1 to 9 digits (past the microsecond cut)
    %z Z, UTC, GMT, +02:00 or +0200  %Z Z, UTC or GMT  %a %A the English weekday, which must fit  %s epoch seconds
    %F %T %R %D for %Y-%m-%d, %H:%M:%S, %H:%M, %m/%d/%y  %% a percent sign  a blank: one to four of them
    rfc1123 for `Sun, 29 Nov 2026 12:00:00 GMT`

A format without an offset needs a zone: its own, the route's, or that of [gateway]. The order of day and month is never
guessed. Names of months and weekdays do not depend on the machine's language. Each directive matches a bounded number of
characters, so no text takes long.
"""

import re
from datetime import datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from gateway.safe_text import show_text, show_value
from gateway.time_rules import Instant, local_instant, read_time
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["BadFormat", "CompiledTimeFormat", "compile_time_format", "read_any_time"]

_MAX_TEXT: Final = 80
_MONTHS: Final = "january february march april may june july august september october november december".split()  # noqa: SIM905
_DAYS: Final = "monday tuesday wednesday thursday friday saturday sunday".split()  # noqa: SIM905
_LONG: Final = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%R": "%H:%M", "%D": "%m/%d/%y", "%h": "%b", "%e": "%d"}
_NAMES: Final = {"rfc1123": "%a, %d %b %Y %H:%M:%S %z"}
_ONE_OR_TWO: Final = r"[ ]?\d{1,2}"
_PATTERNS: Final = {
    "Y": r"\d{4}", "y": r"\d{2}", "m": _ONE_OR_TWO, "d": _ONE_OR_TWO, "H": _ONE_OR_TWO, "I": _ONE_OR_TWO, "M": _ONE_OR_TWO,
    "S": _ONE_OR_TWO, "j": r"\d{1,3}", "f": r"\d{1,9}", "s": r"\d{1,12}", "p": r"[AaPp]\.?[Mm]\.?", "b": r"[A-Za-z]{3,9}\.?",
    "a": r"[A-Za-z]{3,9}\.?", "z": r"Z|z|UTC|GMT|[+-]\d\d:?\d\d", "Z": r"Z|UTC|GMT",
}  # fmt: skip
_EXACT: Final = {
    "m": r"\d{2}",
    "d": r"\d{2}",
    "H": r"\d{2}",
    "I": r"\d{2}",
    "M": r"\d{2}",
    "S": r"\d{2}",
    "j": r"\d{3}",
}
"""Patterns with full width, for digits next to other digits."""
_SAME: Final = {"B": "b", "A": "a"}
_KNOWN: Final = sorted([*_PATTERNS, *_SAME, *(short[1] for short in ("%F", "%T", "%R", "%D"))])
_TOKEN: Final = re.compile(r"%[-_0]?([A-Za-z%])|(\s+)|([^%\s]+)|(%)")


class BadFormat(ValueError):
    """A format cannot be read, or does not name an instant; the text says what is missing."""


class CompiledTimeFormat:
    """One compiled format."""

    __slots__ = ("_fields", "_pattern", "text")

    def __init__(self, text: str) -> None:
        """Compile.

        Raises:
            BadFormat: a directive is unknown or occurs twice, or the format does not name an instant.
        """
        self.text = text
        self._fields: list[str] = []
        self._pattern = re.compile(self._compile(_NAMES.get(text, text)), re.ASCII)
        self._check()

    def _compile(self, text: str) -> str:
        for short, long in _LONG.items():
            text = text.replace(short, long)
        tokens = list(_TOKEN.finditer(text))
        numeric = [token[1] is not None and token[1] in "YymdHIMSfjs" for token in tokens]
        parts: list[str] = []
        for place, token in enumerate(tokens):
            if token[4]:
                message = f"{self.text!r}: a % without a letter behind it; write %% for a percent sign"
                raise BadFormat(message)
            if token[1] is None:
                parts.append(r"\s{1,4}" if token[2] else re.escape(token[3]))
            elif token[1] == "%":
                parts.append("%")
            else:
                near = [side for side in (place - 1, place + 1) if 0 <= side < len(tokens)]
                parts.append(self._field(_SAME.get(token[1], token[1]), glued=any(numeric[side] for side in near)))
        return "".join(parts)

    def _field(self, name: str, *, glued: bool) -> str:
        if name not in _PATTERNS:
            message = f"{self.text!r}: %{name} is not a directive; known are %{' %'.join(_KNOWN)}"
            raise BadFormat(message)
        if name in self._fields:
            message = f"{self.text!r}: %{name} occurs twice"
            raise BadFormat(message)
        self._fields.append(name)
        pattern = _EXACT.get(name, _PATTERNS[name]) if glued else _PATTERNS[name]
        return f"({pattern})"

    def _check(self) -> None:
        fields = set(self._fields)
        missing = []
        if "s" not in fields:
            missing += [] if fields & {"Y", "y"} else ["a year (%Y)"]
            missing += (
                [] if "j" in fields or (fields & {"m", "b"} and "d" in fields) else ["a month and a day (%m or %b, %d)"]
            )
            missing += [] if "H" in fields or {"I", "p"} <= fields else ["an hour (%H, or %I with %p)"]
        if missing:
            message = f"{self.text!r} does not name an instant: it lacks {', '.join(missing)}"
            raise BadFormat(message)
        if len(fields & {"Y", "y"}) > 1 or len(fields & {"m", "b", "j"}) > 1 or {"H", "I"} <= fields:
            message = f"{self.text!r} names the year, the month or the hour twice"
            raise BadFormat(message)

    def read(self, value: object, path: str, zone: ZoneInfo | None) -> Instant | Reject:
        """Return the instant, or why the value is not a time; `zone` is that of texts without an offset."""
        if isinstance(value, int) and not isinstance(value, bool):
            # Such as %Y%m%d%H%M%S, which JSON may hold as a number.
            value = str(value) if value.bit_length() < 80 else None
        if not isinstance(value, str):
            return Reject(Reason.WRONG_TYPE, path, show_value(value), f"text such as {self.text}")
        text = value.strip()
        found = self._pattern.fullmatch(text) if len(text) <= _MAX_TEXT else None
        if found is None:
            return Reject(Reason.BAD_TIMESTAMP, path, show_value(value), show_text(f"a time written as {self.text}"))
        given = dict(zip(self._fields, found.groups(), strict=True))
        if "s" in given:
            return Instant(int(given["s"]) * 1_000_000 + _micros(given))
        try:
            local = _date_time(given)
        except ValueError as error:
            return Reject(Reason.BAD_TIMESTAMP, path, show_value(value), show_text(f"a time that exists ({error})"))
        offset = given.get("z") or given.get("Z")
        read = local_instant(local, _offset_minutes(offset) if offset else None, zone)
        if read is None:
            wanted = "an offset (%z) in the format, or `zone` next to it, in the route or in [gateway]"
            return Reject(Reason.AMBIGUOUS_TIME, path, show_value(value), wanted)
        return read


def _date_time(given: dict[str, str]) -> datetime:
    year = int(given["Y"]) if "Y" in given else 2000 + int(given["y"])
    if "j" in given:
        found = datetime.strptime(f"{year:04} {int(given['j']):03}", "%Y %j")  # noqa: DTZ007 - its zone is found out later
        month, day = found.month, found.day
    else:
        month = _named(given["b"], _MONTHS, "month") if "b" in given else int(given["m"])
        day = int(given["d"])
    hour = int(given["H"]) if "H" in given else _of_twelve(int(given["I"]), given["p"])
    local = datetime(year, month, day, hour, int(given.get("M", 0)), int(given.get("S", 0)), _micros(given))  # noqa: DTZ001 - its zone is found out later
    if "a" in given and _named(given["a"], _DAYS, "weekday") != local.isoweekday():
        message = f"{local:%Y-%m-%d} is not a {given['a']}"
        raise ValueError(message)
    return local


def _named(text: str, names: list[str], what: str) -> int:
    lower = text.lower().rstrip(".")
    for place, name in enumerate(names, start=1):
        if lower in (name, name[:3]) or (len(lower) == 4 and lower == name[:4]):
            return place
    message = f"{text} is not an English name of a {what}"
    raise ValueError(message)


def _of_twelve(hour: int, half: str) -> int:
    if not 1 <= hour <= 12:
        message = f"hour {hour} on a 12-hour clock"
        raise ValueError(message)
    return hour % 12 + (12 if half[0] in "Pp" else 0)


def _micros(given: dict[str, str]) -> int:
    return int(given["f"][:6].ljust(6, "0")) if "f" in given else 0


def _offset_minutes(text: str) -> int:
    if text[0] not in "+-":
        return 0
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    return minutes if text[0] == "+" else -minutes


@lru_cache(maxsize=1024)
def compile_time_format(text: str) -> CompiledTimeFormat:
    """Return the compiled format, the same object for the same text.

    Raises:
        BadFormat: it cannot be read.
    """
    return CompiledTimeFormat(text)


_CLEAR: Final = (
    CompiledTimeFormat("rfc1123"),
    *(
        CompiledTimeFormat(f"{date} %H:%M{rest}")
        for date in ("%Y-%b-%d", "%d-%b-%Y", "%d %b %Y")
        for rest in (":%S", ":%S.%f", "")
    ),
)
"""Formats with only one meaning: the month is a word, and the year has four digits."""


def read_any_time(value: object, path: str, zone: ZoneInfo | None) -> Instant | Reject:
    """Read like `read_time`, and also the written formats with only one meaning."""
    read = read_time(value, path, zone)
    if isinstance(read, Reject) and read.reason is Reason.BAD_TIMESTAMP and isinstance(value, str):
        for known in _CLEAR if len(value) <= _MAX_TEXT and any(map(str.isalpha, value)) else ():
            found = known.read(value, path, zone)
            if isinstance(found, Instant) or found.reason is Reason.AMBIGUOUS_TIME:
                return found
    return read

"""Which field is the time of measurement, and how it is written."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from gateway.suggest.fields import Field
from gateway.suggest.words import TIME
from gateway.time_formats import named_time
from gateway.times import Instant, read_time, read_time_as

__all__ = ["FoundTime", "find_times", "looks_like_time", "time_format"]

_EPOCHS = (("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000))
_FROM_S, _UNTIL_S = 1_262_304_000, 2_366_841_600
"""2010 to 2045: a number in this window, under a key that says time, is a time."""
_DATE = re.compile(
    r"\d{1,4}[./-](?:\d{1,2}|[A-Za-z]{3,9})[./-]\d{2,4}|\d{1,2} [A-Za-z]{3,9} \d{4}|[A-Za-z]{3} \d{1,2},? (?:\d{4}|\d\d:)"
)
_DATES = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y-%b-%d", "%d-%b-%Y", "%d %b %Y",
    "%b %d %Y", "%b %d, %Y", "%a %b %d %Y",
)  # fmt: skip
_CLOCKS = ("%H:%M:%S", "%H:%M:%S.%f", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
_WRITTEN = (
    "rfc1123",
    "%a %b %d %H:%M:%S %Y",
    *(
        f"{date}{mark}{clock}{zone}"
        for date in _DATES
        for clock in _CLOCKS
        for mark in (" ", ", ", "T")
        for zone in ("", "%z", " %z")
    ),
)
_MOST_TEXT = 60
_UTC = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True)
class FoundTime:
    """A field that holds times in one format; `local` where the text names no offset."""

    field: Field
    format: str

    @property
    def zone(self) -> str | None:
        """The zone that the name of the field says."""
        return "UTC" if self._is_local and any(word in self.field.key for word in ("utc", "gmt")) else None

    @property
    def local(self) -> bool:
        """Whether a zone must be named to read it."""
        return self._is_local and self.zone is None

    @property
    def _is_local(self) -> bool:
        return self.format == "local" or ("%" in self.format and "%z" not in self.format)


def looks_like_time(one: Field) -> bool:
    """Whether a text may be a date in a spelling that is not read by itself."""
    return isinstance(one.first, str) and _DATE.search(one.first) is not None


def find_times(fields: Iterable[Field]) -> list[FoundTime]:
    """All fields that hold times, the nearest to the measurement first."""
    found = [
        (rank, FoundTime(one, how)) for one in fields if (rank := _rank(one)) is not None and (how := _format_of(one))
    ]
    return [time for _rank_, time in sorted(found, key=lambda pair: (pair[0], len(pair[1].field.steps)))]


def _rank(one: Field) -> int | None:
    words = [TIME.index(word) for word in one.words if word in TIME]
    if words:
        return min(words)
    # A date and time in full under any key is a time, if not the first to choose.
    return len(TIME) if all(isinstance(value, str) for value in one.values.values()) and _format_of(one) else None


def _format_of(one: Field) -> str | None:
    formats = {time_format(value) for value in one.values.values()}
    if formats == {None}:
        return _written_format([value for value in one.values.values() if isinstance(value, str)])
    return formats.pop() if len(formats) == 1 else None


def _written_format(texts: list[str]) -> str | None:
    """The one written format that reads all texts; None where two of them read another time, as day and month may."""
    if not texts or not all(len(text) <= _MOST_TEXT and _DATE.search(text) for text in texts):
        return None
    found: dict[tuple[int, ...], str] = {}
    for form in _WRITTEN:
        read = [named_time(form).read(text.strip(), "", _UTC) for text in texts]
        instants = tuple(one.us for one in read if isinstance(one, Instant))
        if len(instants) == len(texts):
            found.setdefault(instants, form)
    return next(iter(found.values())) if len(found) == 1 else None


def time_format(value: Any) -> str | None:
    """The format of a time as the mapping language names it, None where this is no time."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        if not text.replace(".", "", 1).isdigit():
            if isinstance(read_time_as(text, "rfc3339", "", None), Instant):
                return "rfc3339"
            return "local" if isinstance(read_time(text, "", _UTC), Instant) else None
        value = float(text)
    if not isinstance(value, int | float):
        return None
    return next((unit for unit, per_second in _EPOCHS if _FROM_S <= value / per_second < _UNTIL_S), None)

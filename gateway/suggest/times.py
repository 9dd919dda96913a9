"""Which field is the time of measurement, and how it is written."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from gateway.suggest.fields import Field
from gateway.suggest.words import TIME
from gateway.times import Instant, read_time, read_time_as

__all__ = ["FoundTime", "find_times", "looks_like_time", "time_format"]

_EPOCHS = (("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000))
_FROM_S, _UNTIL_S = 1_262_304_000, 4_102_444_800
"""2010 to 2100: a number in this window, under a key that says time, is a time."""
_DATE = re.compile(
    r"\d{1,4}[./-](?:\d{1,2}|[A-Za-z]{3,9})[./-]\d{2,4}|\d{1,2} [A-Za-z]{3,9} \d{4}|[A-Za-z]{3} \d{1,2},? (?:\d{4}|\d\d:)"
)
_UTC = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True)
class FoundTime:
    """A field that holds times in one format; `local` where the text names no offset."""

    field: Field
    format: str

    @property
    def local(self) -> bool:
        """Whether a zone must be known to read it."""
        return self.format == "local"


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
    return len(TIME) if all(isinstance(value, str) and time_format(value) for value in one.values.values()) else None


def _format_of(one: Field) -> str | None:
    formats = {time_format(value) for value in one.values.values()}
    return formats.pop() if len(formats) == 1 else None


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

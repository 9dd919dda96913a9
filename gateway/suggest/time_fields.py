"""Times of a message: fields that hold them, how they are written, and which one is that of the measurement."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from gateway.suggest.fields import SampleField, key_words
from gateway.suggest.vocabulary import EVENTS, TIME, TIME_WORDS
from gateway.time_formats import compile_time_format
from gateway.time_rules import Instant, read_time, read_time_as

__all__ = ["FoundTime", "choose_time", "find_times", "may_be_time", "no_time_note", "time_format", "time_note"]

_EPOCHS = (("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000))
_NUMBERS = tuple(unit for unit, _per_second in _EPOCHS)
_FROM_S, _UNTIL_S = 1_262_304_000, 2_366_841_600
"""2010 to 2045: a number in this window, under a key of a time, is a time."""
_NEAR_S = 86_400
_MINUTES = ("min", "mins", "minute", "minutes")
_DATE = re.compile(
    r"20\d{6}[T ]?\d{4}(?:\d\d)?|\d{1,4}[./-](?:\d{1,2}|[A-Za-z]{3,9})[./-]\d{2,4}|\d{1,2} [A-Za-z]{3,9} \d{4}"
    r"|[A-Za-z]{3} \d{1,2},? (?:\d{4}|\d\d:)"
)
_DATES = (
    "%d.%m.%Y", "%Y-%m-%d", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d",
    "%Y.%m.%d", "%Y-%b-%d", "%d-%b-%Y", "%d %b %Y", "%b %d %Y", "%b %d, %Y", "%a %b %d %Y",
)  # fmt: skip
_SOLID = tuple(f"%Y%m%d{mark}{clock}" for mark in ("T", " ") for clock in ("%H%M%S%z", "%H%M%S.%f%z", "%H%M%S", "%H%M"))
_DIGITS = ("%Y%m%d%H%M%S", "%Y%m%d%H%M", "%y%m%d%H%M%S")
"""Formats without separators: only under a key of a time."""
_DAY = re.compile(r"\d{1,4}[./-](?:\d{1,2}|[A-Za-z]{3,9})[./-]\d{2,4}|20\d{6}")
_CLOCK = re.compile(r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,6})?)?(?: ?[AaPp][Mm])?|(?:[01]\d|2[0-3])[0-5]\d[0-5]\d")
_LEAST_CLAIM = 1_000_000
"""A whole number from here on under a short key such as `t` is not a usual measurement."""
_CLOCKS = ("%H:%M:%S", "%H:%M:%S.%f", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
_WRITTEN = (
    "rfc1123",
    "%a %b %d %H:%M:%S %Y",
    *_SOLID,
    *(
        f"{date}{mark}{clock}{zone}"
        for date in _DATES
        for clock in _CLOCKS
        for mark in (" ", ", ", "T")
        for zone in ("", "%z", " %z")
    ),
)
_MOST_TEXT = 60
_MOST_TEXTS = 50
"""Most texts of a field that are read in every way."""
_UTC = ZoneInfo("UTC")
_FORMAT_WORDS: Final = {
    "s": "epoch seconds",
    "ms": "epoch milliseconds",
    "us": "epoch microseconds",
    "ns": "epoch nanoseconds",
    "min": "epoch minutes",
    "rfc3339": "ISO 8601 with an offset",
    "local": "ISO 8601 without an offset",
}


@dataclass(frozen=True, slots=True)
class FoundTime:
    """Field that holds times in one format; `local` if the text has no offset.

    `clock` holds the time of day if the field holds only the day. `of_event`: the key says that something else happened
    then, such as a start or the day's highest value. Such a time is never that of the measurement.
    """

    field: SampleField
    format: str
    clock: SampleField | None = None
    of_event: bool = False

    @property
    def ends(self) -> bool:
        """Return whether it is the end of an interval."""
        return any(word in ("end", "ends", "to", "until", "stop") for word in key_words(self.field))

    @property
    def begins(self) -> bool:
        """Return whether it is the beginning of an interval."""
        return any(word in ("start", "from", "begin", "begins", "since") for word in key_words(self.field))

    @property
    def fields(self) -> tuple[SampleField, ...]:
        """The one or two fields that it uses."""
        return (self.field,) if self.clock is None else (self.field, self.clock)

    @property
    def path(self) -> str:
        """Place in the mapping language."""
        if self.clock is None:
            return self.field.path
        return " ".join(f"{{{one.reference}}}" for one in self.fields)

    @property
    def name(self) -> str:
        """Name for people."""
        return " and ".join(one.name for one in self.fields)

    @property
    def zone(self) -> str | None:
        """Zone in the name of the field."""
        said = any(word in one.key for one in self.fields for word in ("utc", "gmt"))
        return "UTC" if self._is_local and said else None

    @property
    def local(self) -> bool:
        """Return whether a zone must be named to read it."""
        return self._is_local and self.zone is None

    @property
    def _is_local(self) -> bool:
        return self.format == "local" or ("%" in self.format and "%z" not in self.format)


def _looks_like_time(one: SampleField) -> bool:
    """Return whether a text may be a date in a form that is not read by itself."""
    return isinstance(one.first, str) and _DATE.search(one.first) is not None


def may_be_time(one: SampleField) -> bool:
    """Return whether a field has the name of a time but no readable time: a count since some start, or only a time of day."""
    last = next(iter(key_words(one)[-1:]), "")
    if one.key not in TIME:
        return last in ("timestamp", "ts", "epoch") and type(one.first) is int and one.first >= _LEAST_CLAIM
    if isinstance(one.first, str):
        return (
            _CLOCK.fullmatch(one.first.strip()) is not None or re.fullmatch(r"\d\d(?:-\d\d){2}", one.first) is not None
        )
    sure = one.key in ("ts", "timestamp", "epoch", "unixtime")
    return type(one.first) in (int, float) and (sure or one.first >= _LEAST_CLAIM)


def find_times(fields: Iterable[SampleField], received_s: float | None = None) -> list[FoundTime]:
    """Return all fields that hold times, the nearest to the measurement first; those of other events are last.

    A number near the receive time of the message (`received_s`) is a time whatever its key.
    """
    known = list(fields)
    found: list[tuple[bool, int, FoundTime]] = []
    for one in known:
        rank = _rank(one)
        if rank is None and received_s is not None and _is_near(one, received_s):
            rank = len(TIME) + 2
        how = None if rank is None else _format_of(one, sure=rank < len(TIME))
        if rank is not None and how:
            of_event = how != "min" and _is_event(one)
            found.append((of_event, rank, FoundTime(one, how, of_event=of_event)))
    taken = {one.field.steps for _event, _rank, one in found}
    found += [(False, len(TIME) - 1, one) for one in _joined([one for one in known if one.steps not in taken])]
    ranked = sorted(found, key=lambda entry: (entry[0], entry[1], len(entry[2].field.steps)))
    return [time for _event, _rank, time in ranked]


def _joined(fields: list[SampleField]) -> Iterator[FoundTime]:
    """Yield a day and a time of day in two neighbouring fields."""
    texts = [one for one in fields if all(isinstance(value, str) for value in one.values.values()) and one.can_be_named]
    days = [one for one in texts if all(_DAY.fullmatch(value.strip()) for value in one.values.values())]
    for day in days:
        for clock in texts:
            beside = clock.steps[:-1] == day.steps[:-1] and clock.values.keys() >= day.values.keys()
            if beside and all(_CLOCK.fullmatch(clock.values[number].strip()) for number in day.values):
                form = _written_format(
                    [f"{text} {clock.values[number]}" for number, text in day.values.items()], sure=True
                )
                if form is not None:
                    yield FoundTime(day, form, clock)
                    return


def _rank(one: SampleField) -> int | None:
    words = [TIME.index(word) for word in one.words if word in TIME]
    if words:
        return min(words)
    texts = [value for value in one.values.values() if isinstance(value, str) and time_format(value) not in _NUMBERS]
    said = key_words(one)
    if not texts:
        # A number in the window of epochs counts if any word of the key says time.
        return len(TIME) + 1 if any(word in TIME_WORDS or word in EVENTS for word in said) else None
    # A full date and time under any key is a time, but not the first choice.
    dated = len(texts) == len(one.values) and all(_DATE.search(text) and not text.strip().isdigit() for text in texts)
    return len(TIME) if dated and _format_of(one, sure=False) else None


def _is_near(one: SampleField, received_s: float) -> bool:
    """Return whether all values are epochs of the day of reception."""
    for value in one.values.values():
        unit = time_format(value) if type(value) in (int, float) else None
        per_second = dict(_EPOCHS).get(unit or "")
        if per_second is None or abs(value / per_second - received_s) > _NEAR_S:
            return False
    return True


def _is_event(one: SampleField) -> bool:
    words = key_words(one)
    return one.key not in TIME and "epoch" not in words and any(word in EVENTS for word in words)


def _format_of(one: SampleField, *, sure: bool) -> str | None:
    """Return the format of its values; `sure`: the key says that they are times."""
    formats = {time_format(value) for value in one.values.values()}
    if formats != {None}:
        return formats.pop() if len(formats) == 1 else None
    values = list(one.values.values())
    if any(word in _MINUTES for word in key_words(one)) and all(_in_window(value, 1 / 60) for value in values):
        return "min"
    return _written_format([str(value) for value in values if type(value) in (str, int)], sure=sure)


def _written_format(texts: Iterable[str], *, sure: bool) -> str | None:
    """Return the one written format that reads all texts; None if two of them give different times, as with day and month."""
    known = tuple(dict.fromkeys(text.strip() for text in texts))[:_MOST_TEXTS]
    if not known or not all(len(text) <= _MOST_TEXT and (sure or _DATE.search(text)) for text in known):
        return None
    digits = all(text.isdigit() for text in known)
    return None if digits and not sure else _only_format(known, _DIGITS if digits else _WRITTEN)


@lru_cache(maxsize=512)
def _only_format(texts: tuple[str, ...], forms: tuple[str, ...]) -> str | None:
    found: dict[tuple[int, ...], str] = {}
    # Most forms do not even read the first text.
    for form in [form for form in forms if isinstance(compile_time_format(form).read(texts[0], "", _UTC), Instant)]:
        read = [compile_time_format(form).read(text, "", _UTC) for text in texts]
        instants = tuple(one.us for one in read if isinstance(one, Instant))
        if len(instants) == len(texts) and all(_FROM_S <= us / 1e6 < _UNTIL_S for us in instants):
            found.setdefault(instants, form)
    return next(iter(found.values())) if len(found) == 1 else None


def _in_window(value: Any, per_second: float) -> bool:
    return type(value) in (int, float) and _FROM_S <= value / per_second < _UNTIL_S


def time_format(value: Any) -> str | None:
    """Return the format of a time in the mapping language, None if this is not a time."""
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


def choose_time(times: Iterable[FoundTime], zone: str | None) -> FoundTime | None:
    """Return the first time of no other event; one without an offset only if its zone is known or there is no other.

    Of an interval with both ends it is the end, when the values were known.
    """
    known = list(times)
    usual = [one for one in known if not one.of_event]
    if not usual and any(one.begins for one in known):
        usual = [one for one in known if one.ends]
    return next((one for one in usual if zone is not None or not one.local), next(iter(usual), None))


def time_note(chosen: FoundTime, zone: str | None) -> str:
    """Return the note on a chosen time."""
    if chosen.local and zone is None:
        shown = " ".join(str(one.first) for one in chosen.fields)
        return f"time: {chosen.name} has no offset ({shown}); name its zone with --zone, else the receive time is used"
    where = f", in zone {zone if chosen.local else chosen.zone}" if chosen.local or chosen.zone else ""
    return f"time: {chosen.name} ({_FORMAT_WORDS.get(chosen.format, f'written {chosen.format}')}{where})"


def no_time_note(free: Iterable[SampleField], times: Iterable[FoundTime]) -> str:
    """Return the note on the time that counts if none was chosen; `times` are those of other events."""
    said = {one.steps for time in times for one in time.fields}
    for one in free:
        if one.steps not in said and (_looks_like_time(one) or may_be_time(one)):
            return (
                f"time: {one.name} ({one.first}) looks like a time in an unknown format; "
                "the receive time is used until `time` names it"
            )
    return "time: the receive time for values without their own time, because the message has no time field"

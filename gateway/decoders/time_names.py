"""Fields that hold times, by name and by value: used by generic JSON and mappings if no setting names the time.

A value counts as a time only if it reads as one since 2000: epoch in s, ms, µs or ns by its magnitude, or RFC 3339 text
and its common spellings. A number of another meaning rarely falls in that window; if it may, the name decides.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from gateway.decoders.series_signs import may_be_series
from gateway.time_formats import read_any_time
from gateway.time_rules import YEAR_2000_S, Instant

__all__ = [
    "USUAL_NAMES",
    "TimeNames",
    "is_clock_text",
    "is_date_text",
    "is_epoch_text",
    "is_recent_time",
    "is_time",
    "is_time_text",
    "named_like_time",
    "names_schedule",
    "names_thing",
    "offset_unit_us",
    "schedule_member",
    "time_key",
    "time_names",
]

_UTC: Final = ZoneInfo("UTC")
_SURE: Final = (
    ("ts",), ("time",), ("timestamp",), ("time", "stamp"), ("datetime",), ("date", "time"), ("ts", "ms"), ("time", "ms"),
    ("timestamp", "ms"), ("unix", "time"), ("unix", "timestamp"), ("epoch", "ms"), ("tst",), ("measured", "at"),
    ("recorded", "at"), ("observed", "at"), ("sampled", "at"), ("sample", "time"), ("measurement", "time"),
)  # fmt: skip
"""Words of names that mean the time of what is next to them, whatever their value."""
_LIKELY: Final = (
    ("t",), ("tm",), ("dt",), ("at",), ("when",), ("epoch",), ("utc",), ("date",), ("utc", "time"), ("time", "utc"),
    ("date", "utc"),    ("captured", "at"), ("taken", "at"), ("read", "at"), ("reported", "at"), ("generated", "at"),
    ("logged", "at"), ("collected", "at"), ("event", "time"), ("reading", "time"), ("device", "time"), ("log", "time"),
    ("source", "timestamp"), ("sensor", "time"), ("phenomenon", "time"), ("result", "time"), ("obs", "time"), ("local", "time"),
    ("update", "time"), ("effective", "date", "time"), ("reading", "date", "time"), ("collect", "time"), ("acquisition", "time"),
    ("capture", "time"), ("record", "time"), ("gps", "time"), ("fix", "time"), ("measure", "time"), ("meter", "time"),
    ("dateutc",),    ("time", "instant"), ("epoch", "time"), ("tstamp",), ("timestamp", "utc"), ("datetime", "utc"),
    ("timestamp", "s"),
    ("timestamp", "us"), ("timestamp", "ns"), ("ts", "s"), ("ts", "us"), ("ts", "ns"), ("time", "us"), ("time", "ns"),
    ("sampling", "time"), ("sample", "at"), ("report", "time"), ("observation", "date", "time"), ("obs", "timestamp"), ("tsi",),
    ("updated",), ("updated", "at"), ("last", "update"), ("last", "updated"), ("lastupdate",), ("lastupdated",),
    ("time", "unix", "nano"), ("time", "unix"),
    ("zeitstempel",), ("zeit",), ("fecha",), ("fecha", "hora"), ("horodatage",), ("tijdstip",), ("data", "ora"), ("czas",),
    ("aika",), ("tidpunkt",), ("tidspunkt",), ("tidsstempel",),
    ("reading", "timestamp"), ("event", "timestamp"), ("observation", "time"), ("sample", "timestamp"), ("device", "timestamp"),
)  # fmt: skip
"""Words of names that mean it if their value is a time."""
USUAL_NAMES: Final = tuple("".join(words) for words in (*_SURE, *_LIKELY))
"""All usual names, without case and separators."""
_OFFSETS: Final = re.compile(
    r"\$_time|(?:(?:time|t|ts)_?)?(?:offset|delta|elapsed|rel(?:ative)?_?time)s?(?:_?(ns|us|ms|s|sec|seconds|millis|milliseconds))?"
    r"|(?:offset|elapsed|rel(?:ative)?_?time)s?_?(?P<long>h|hours|minutes)",
    re.IGNORECASE,
)
_SCHEDULE: Final = re.compile(
    r"(?:^|[^a-z])(?:schedul|timer|alarm|program|plan|slot|switch|weekly|timetable|calendar|zeitplan|heating_?times)",
    re.IGNORECASE,
)
_ACTIONS: Final = frozenset(
    (
        "action", "enabled", "enable", "days", "weekdays", "repeat", "setpoint", "target", "sp", "on", "off", "cmd", "command",
        "recurrence", "dow", "weekday",
    )
)  # fmt: skip
_UNITS_US: Final = {
    "us": 1.0,
    "ms": 1e3,
    "millis": 1e3,
    "milliseconds": 1e3,
    "s": 1e6,
    "sec": 1e6,
    "seconds": 1e6,
    "ns": 1e-3,
    "minutes": 6e7,
    "h": 3.6e9,
    "hours": 3.6e9,
}
_ENDING: Final = re.compile(r".*(?:time|timestamp|date|epoch|seen|updated|_at|_ts|_utc|[a-z]At)", re.DOTALL)
_IDS: Final = frozenset(
    (
        "id", "ID", "Id", "ch", "Ch", "channel", "Channel", "addr", "address", "node", "sensor", "port", "slot", "index", "idx",
        "unit_id", "device", "meter", "phase",
    )
)  # fmt: skip
"""Names of numbers that identify the thing that an object of an array is about."""
_DATE: Final = r"(?:\d{4}[-./]\w{1,9}[-./]\d{1,2}|\d{1,2}[-./ ]\w{1,9}[-./ ]\d{2,4}|\d{8}T)"
_CLOCK: Final = r"\d{1,2}:\d\d(?::\d\d)?"
_WRITTEN: Final = re.compile(
    rf"(?:\w{{3,9}},? )?{_DATE}.{{0,40}}|{_CLOCK}(?:[.,]\d+)?(?: ?[AaPp]\.?[Mm]\.?)?", re.DOTALL
)
_ONLY_CLOCK: Final = re.compile(rf"{_CLOCK}(?: ?[AaPp]\.?[Mm]\.?)?")
_ONLY_DATE: Final = re.compile(r"\d{4}[-./]\d{1,2}(?:[-./]\d{1,2})?|\d{1,2}[-./]\d{1,2}[-./]\d{4}")
_WITH_CLOCK: Final = re.compile(rf"(?:\w{{3,9}},? )?{_DATE}.{{0,9}}\d\d:?\d\d.{{0,30}}", re.DOTALL)
_DIGITS: Final = re.compile(r"\d{10,19}(?:\.\d{1,9})?", re.ASCII)
_MAX_TEXT: Final = 60
_MAX_PLAIN: Final = 2000
_MAX_PLAIN_NAMES: Final = 100
_YEAR_US: Final = 366 * 86_400 * 1_000_000


def _spellings(words: Iterable[tuple[str, ...]]) -> list[str]:
    """Return how names of these words are written: `measured_at`, `measuredAt`, `MeasuredAt`, `measured-at`, `MEASURED_AT`."""
    found: dict[str, None] = {}
    for parts in words:
        head, rest = parts[0], [word.capitalize() for word in parts[1:]]
        lower = "_".join(parts)
        for text in (
            "".join(parts),
            lower,
            "-".join(parts),
            "".join([head, *rest]),
            "".join([head.capitalize(), *rest]),
        ):
            found[text] = None
        found |= dict.fromkeys((lower.upper(), "".join(parts).upper(), "".join(parts).capitalize(), lower.capitalize()))
    return list(found)


_SURE_NAMES: Final = dict.fromkeys(_spellings(_SURE), True)
_LIKELY_NAMES: Final = dict.fromkeys(
    [
        *_spellings(_LIKELY),
        *(f"{sign}{name}" for sign in "@_$" for name in ("timestamp", "time", "ts", "date", "datetime")),
    ],
    False,
)


class TimeNames(dict[str, tuple[int, bool]]):
    """Names of times, the route's own first: (place, whether the name alone is enough).

    `plain` holds sets of member names without a time, because objects recur with every message.
    """

    __slots__ = ("plain",)

    def __init__(self, own: tuple[str, ...]) -> None:
        sure = {**_LIKELY_NAMES, **_SURE_NAMES, **dict.fromkeys(own, True)}
        order = dict.fromkeys([*own, *_SURE_NAMES, *_LIKELY_NAMES])
        super().__init__({name: (place, sure[name]) for place, name in enumerate(order)})
        self.plain: set[tuple[str, ...]] = set()

    def untimed(self, body: dict[str, Any]) -> bool:
        """Return whether an object certainly has no time next to its members: by its names, and no array begins with one."""
        names = tuple(body)
        if names not in self.plain:
            if len(names) > _MAX_PLAIN_NAMES or any(map(self._may_hold_time, names)):
                return False
            if len(self.plain) >= _MAX_PLAIN:
                self.plain.clear()
            self.plain.add(names)
        if list in map(type, body.values()):
            for value in body.values():
                if (
                    type(value) is list
                    and value
                    and (is_time(value[0]) or (len(value) > 1 and 0 in (value[0], value[-1])))
                ):
                    return False
        return True

    def _may_hold_time(self, name: str) -> bool:
        return (
            name in self
            or name[:1].isdigit()
            or len(name) > _MAX_TEXT
            or may_be_series(name)
            or offset_unit_us(name) is not None
        )


@lru_cache(maxsize=256)
def time_names(own: tuple[str, ...]) -> TimeNames:
    """Return the names for a route's messages."""
    return TimeNames(own)


def time_key(body: dict[str, Any], own: tuple[str, ...]) -> str | None:
    """Return the member that holds the time of an object, among the route's `own` keys, else by its name and value."""
    names = time_names(own)
    if tuple(body) in names.plain:
        return None
    for key in own:
        found = body.get(key)
        if found is None or type(found) is list:
            continue
        # A plan (`"time": "06:30", "action": "on"`) says when something is to be done.
        if type(found) is not str or (found.strip() and not schedule_member(body, "", key)):
            return key
    best: str | None = None
    for key, value in body.items():
        if key in names and (best is None or names[key] < names[best]) and is_time(value):
            best = key
    if best is None:
        # An unreadable date with a time of day is rejected, not replaced by the receive time.
        unread = [key for key, value in body.items() if key in names and is_time_text(value, clock=True)]
        best = min(unread, key=names.__getitem__, default=None)
    return best


def is_time(value: object) -> bool:
    """Return whether a value reads as a time since 2000; local text counts too."""
    return _instant_us(value) is not None


def is_recent_time(value: object, received_us: int, *, years: int = 1) -> bool:
    """Return whether a value reads as a time not long before arrival: required for a number without a name to count as one."""
    us = _instant_us(value)
    if us is None:
        return False
    text = isinstance(value, str) and not is_epoch_text(value)
    return text or received_us - years * _YEAR_US <= us <= received_us + _YEAR_US


def _instant_us(value: object) -> int | None:
    kind = type(value)
    if kind is str:
        text = value.strip()  # type: ignore[attr-defined]
        if not 10 <= len(text) <= _MAX_TEXT or not (text[0].isdigit() or text[3:5] == ", "):
            return None
    elif (kind is not int and kind is not float) or not value >= YEAR_2000_S:  # type: ignore[operator]
        return None
    read = read_any_time(value, "", _UTC)
    return read.us if isinstance(read, Instant) and read.us >= YEAR_2000_S * 1_000_000 else None


def is_epoch_text(text: str) -> bool:
    """Return whether a text is a number with the length of an epoch."""
    return _DIGITS.fullmatch(text.strip()) is not None


def is_time_text(value: object, *, clock: bool = False) -> bool:
    """Return whether a text has the form of a date or time of day, readable or not; with `clock`, of both."""
    if type(value) is not str or not 4 <= len(value) <= _MAX_TEXT:
        return False
    return (_WITH_CLOCK if clock else _WRITTEN).fullmatch(value.strip()) is not None


def is_clock_text(value: object) -> bool:
    """Return whether a text is only a time of day."""
    return type(value) is str and len(value) <= _MAX_TEXT and _ONLY_CLOCK.fullmatch(value.strip()) is not None


def is_date_text(value: object) -> bool:
    """Return whether a text is only a date."""
    return type(value) is str and len(value) <= _MAX_TEXT and _ONLY_DATE.fullmatch(value.strip()) is not None


def schedule_member(body: dict[str, Any], flat: str, key: str) -> bool:
    """Return whether a time of day is when something is to be done: by the names around it, or by its neighbours."""
    if not is_clock_text(body[key]):
        return False
    return names_schedule(flat) or not _ACTIONS.isdisjoint(map(str.lower, body))


def names_schedule(flat: str) -> bool:
    """Return whether the name of an object says that it is a plan."""
    return _SCHEDULE.search(flat) is not None


def names_thing(body: dict[str, Any]) -> bool:
    """Return whether an object says which thing it is about."""
    return any(type(value) is str and not is_time(value) for value in body.values()) or not _IDS.isdisjoint(body)


def named_like_time(name: str) -> bool:
    """Return whether a name ends like those of times: `last_seen`, `bootTime`, `updated_at`."""
    return _ENDING.fullmatch(name) is not None


def offset_unit_us(name: str) -> float | None:
    """Return µs in the unit of a name of time offsets, 0 if the name does not say it; None for another name."""
    found = _OFFSETS.fullmatch(name)
    if found is None:
        return None
    if name.lower() == "$_time":
        # PPMP: milliseconds by its specification.
        return 1e3
    return _UNITS_US.get((found[1] or found["long"] or "").lower(), 0.0)

"""Times around the values that they belong to: in a header, in an enclosing object, in parts; and times that are doubtful.

a header with a time          `{"header": {"ts": …}, "data": {"t": 21.5}}`     the time of all parts without their own
separate date and time        `{"date": "2026-11-28", "clock": "20:00:00"}`    rejected, like numbers of a calendar
records that refer to others  SenML with base times                            rejected: its decoder reads it
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from gateway.decoders.flatten import Trail, trail_path
from gateway.decoders.series_signs import names_base_time, sampling_step_us
from gateway.decoders.time_names import (
    TimeNames,
    is_clock_text,
    is_recent_time,
    is_time,
    is_time_text,
    named_like_time,
    offset_unit_us,
    schedule_member,
    time_key,
)
from gateway.safe_text import show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = [
    "NAME_IT",
    "EnclosingTimes",
    "ObjectTimes",
    "header_time",
    "look_for_times",
    "refuse_parts",
    "refuse_senml",
    "refuse_unknown_time",
    "refuse_untimed",
]

NAME_IT: Final = "name it in a mapping: `items` and `time`; or `skip` it"
_HEADERS: Final = frozenset(
    (
        "header", "headers", "head", "hdr", "meta", "metadata", "info", "envelope", "context", "common", "general", "message",
        "msg", "device", "frame", "packet", "event", "sys", "system", "clock", "gateway",
    )
)  # fmt: skip
_STAMPS: Final = ("stamp", "timestamp", "time")
_DATE: Final = re.compile(r"\d{4}([-./])\d{1,2}\1\d{1,2}|\d{1,2}([-./])\d{1,2}\2\d{4}", re.ASCII)
_CLOCKS: Final = frozenset("time clock uhrzeit zeit hora heure ora tijd tid klockan".split())  # noqa: SIM905 - as above
_LASTS: Final = re.compile(r"up|run|dur|elapsed|on_?time|remain", re.IGNORECASE)
_ARRAYS: Final = frozenset(("ts", "time", "timestamp", "datetime", "date"))
_YEARS: Final = frozenset(("year", "yyyy", "yr"))
_DAYS: Final = frozenset(("day", "dd", "mday", "doy", "yday", "julian", "dayofyear", "day_of_year"))
_HOURS: Final = frozenset(("hour", "hh", "hr", "hours"))
_MAX_NAMES: Final = 200
_WANTED: Final = (
    "one time; if date and time of day are separate, name both in a mapping: "
    '`time = [{ path = "{.date}T{.clock}", format = "local" }]`'
)


def header_time(body: dict[str, Any], own: tuple[str, ...], said: Callable[[str], bool]) -> tuple[str, ...] | None:
    """Return the names that lead to the time in the header of a message without a time itself; `own` are a route's names.

    The message may be in its own object: `{"message": {"header": …, "body": …}}`.
    """
    for name, inner in body.items():
        if type(inner) is not dict or name.lower() not in _HEADERS or said(name):
            continue
        key = time_key(inner, ()) or next((key for key in own if is_time(inner.get(key))), None)
        # The reader rejects a time of several members, such as that of ROS.
        key = key or next((key for key in _STAMPS if type(inner.get(key)) is dict), None)
        if key is not None:
            return name, key
    if len(body) == 1:
        [(name, inner)] = body.items()
        if type(inner) is dict and not said(name) and time_key(inner, own) is None:
            found = header_time(inner, own, said)
            return None if found is None else (name, *found)
    return None


def refuse_parts(body: dict[str, Any], trail: str, said: Callable[[str], bool]) -> Reject | None:
    """Return why a message gets no other time: it has its own time, in parts."""
    if len(body) > _MAX_NAMES:
        return None
    day = clock = None
    for key, value in body.items():
        if type(value) is str:
            if 8 <= len(value) <= 10 and _DATE.fullmatch(value) is not None:
                day = key
            elif _is_clock(key, value, body):
                clock = key
        elif type(value) is list:
            if key.lower() in _ARRAYS and 3 <= len(value) <= 9 and type(value[0]) is int and 2000 <= value[0] < 2100:
                return Reject(Reason.AMBIGUOUS_TIME, f"{trail}.{key}", show_value(value), _WANTED)
        elif type(value) is int and 2000 <= value < 2100 and key.lower() in _YEARS:
            names = {name.lower() for name, one in body.items() if type(one) is int}
            if not (names.isdisjoint(_DAYS) or names.isdisjoint(_HOURS) or said(key)):
                return Reject(Reason.AMBIGUOUS_TIME, f"{trail}.{key}", show_value(body), _WANTED)
    if day is None or clock is None or said(day) or said(clock):
        return None
    return Reject(Reason.AMBIGUOUS_TIME, f"{trail}.{clock}", show_value(f"{body[day]} {body[clock]}"), _WANTED)


def _is_clock(key: str, value: str, body: dict[str, Any]) -> bool:
    """Return whether a text is the time of day of a measurement: it has seconds or a name for it, and is not a duration."""
    if not 4 <= len(value) <= 15 or ":" not in value or not is_clock_text(value):
        return False
    named = value.count(":") == 2 or key.lower() in _CLOCKS
    return named and _LASTS.search(key) is None and not schedule_member(body, "", key)


def refuse_senml(items: list[Any]) -> Reject | None:
    """Return why an array's objects are not separate messages: they are a SenML pack, whose times refer to its first record."""
    first = items[0]
    if type(first) is not dict or ("bt" not in first and not ("bn" in first and any("t" in one for one in items))):
        return None
    if "bt" in first and not is_time(first["bt"]):
        return None
    wanted = '`decoder = "senml"` in the route: times and names of these records refer to the first record'
    return Reject(Reason.AMBIGUOUS_TIME, "$[0]", show_value(first), wanted)


class ObjectTimes(NamedTuple):
    """Findings of one object: the time from which others count, any other number that is a time, and the step of samples."""

    base: tuple[str, Any] | None
    has_stray: bool
    steps: dict[str, float]


class EnclosingTimes(NamedTuple):
    """Findings of an object and those around it, the innermost first."""

    looked: list[ObjectTimes]

    @property
    def base(self) -> tuple[str, Any] | None:
        """Return the nearest first time."""
        return next((one.base for one in self.looked if one.base is not None), None)

    @property
    def has_stray(self) -> bool:
        """Return whether a number there is a time."""
        return any(one.has_stray for one in self.looked)

    @property
    def steps(self) -> dict[str, float]:
        """Steps of the object itself."""
        return self.looked[0].steps

    @property
    def based_steps(self) -> dict[str, float]:
        """Nearest steps."""
        return next((one.steps for one in self.looked if one.steps), {})


def look_for_times(node: object, names: TimeNames, received_us: int) -> ObjectTimes:
    """Return the findings of one object."""
    base, stray, steps = None, False, {}
    for key, value in node.items() if type(node) is dict else ():
        kind = type(value)
        if kind is dict or kind is list:
            continue
        if base is None and names_base_time(key) and is_time(value):
            base = (key, value)
        if kind is int or kind is float:
            stray = stray or (key not in names and is_recent_time(value, received_us))
            us = sampling_step_us(key, value)
            if us is not None:
                steps[key] = us
    return ObjectTimes(base, stray, steps)


def refuse_untimed(inner: object, trail: Trail) -> Reject:
    """Return why an item without a time is rejected, if others next to it have one."""
    wanted = f"a time of its own, like other items of this array; {NAME_IT}"
    return Reject(Reason.MISSING_FIELD, trail_path(trail), show_value(inner), wanted)


def refuse_unknown_time(item: Any, said: Callable[[str], bool], trail: Trail) -> Reject | None:
    """Return why an array's object is rejected if it holds a time under a name that does not say whose it is."""
    key = _unknown_time(item, said)
    if key is None:
        return None
    wanted = f"samples whose time has a usual name, such as ts; {NAME_IT}"
    return Reject(Reason.AMBIGUOUS_TIME, trail_path((trail, key)), show_value(item[key]), wanted)


def _unknown_time(body: Any, said: Callable[[str], bool]) -> str | None:
    """Return the member of an object that holds such a time; None without one."""
    members: dict[str, Any] = body if type(body) is dict else {}
    # A first time belongs to the arrays next to it, if there are any.
    flat = {dict, list}.isdisjoint(map(type, members.values()))
    for key, value in members.items():
        says_time = named_like_time(key) or (flat and names_base_time(key))
        timed = is_time_text(value, clock=True) or (says_time and is_time(value))
        offset = type(value) in (int, float) and offset_unit_us(key) is not None and _says_time(key)
        if (timed or offset) and not said(key):
            return key
    return None


def _says_time(key: str) -> bool:
    lower = key.lower()
    return "time" in lower or offset_unit_us(key) not in (None, 0.0)

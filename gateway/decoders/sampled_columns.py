"""Columns: arrays of values next to an array of times, or of offsets whose unit the name says.

The times stand first or last or in the middle, under a usual name or none, and the columns also in objects next to them:
`{"ts": […], "t": […]}`, `{"time": […], "data": {"t": […]}}`, `{"ts": …, "offset_ms": […], "t": […]}`, PPMP's `$_time`.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Self

from gateway.decoders.flatten import Flattener, TooManyReadings, Trail, trail_path
from gateway.decoders.mapping_times import AUTO, EPOCH_US, RECEIVED, At
from gateway.decoders.time_names import (
    is_time,
    like_time,
    named_like_time,
    offset_unit_us,
    recent,
    says_step,
    time_names,
    whole,
)
from gateway.show import show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["NAME_IT", "ColumnFlattener"]

_LONGEST_US: Final = 1e15
"""About 30 years: no offset is longer."""
NAME_IT: Final = "name it in a mapping: `items` and `time`; or `skip` it"


class ColumnFlattener(Flattener):
    """A flattener that reads columns, at their times; and what all kinds of samples need for that."""

    __slots__ = ("_names", "_ordinals", "_own", "_place", "_stride")

    def follow(self, own: tuple[str, ...], stride: int) -> Self:
        """`own` are the route's time keys; `stride` how many items share the indexes of a metric."""
        self._own, self._names = own, time_names(own)
        self._stride, self._place = stride, self._index
        self._ordinals: dict[str, int] = {}
        return self

    def _said(self, flat: str, key: str) -> bool:
        """Whether the mapping itself says what this member is."""
        return self._rules.says(f"{flat}.{key}" if flat else key, key)

    def _timed(self, at: At | Reject, walk: Callable[[], None], ordinal: int | None = None) -> None:
        """Walk something at a time of its own; where that is refused, so are the readings."""
        before, self._at, index = self._at, RECEIVED if isinstance(at, Reject) else at, self._index
        if ordinal is not None:
            self._index = self._place + ordinal * self._stride
        if isinstance(at, Reject):
            self._refuse(at, walk)
        else:
            walk()
        self._at, self._index = before, index
        if len(self.readings) + len(self.rejects) > self._limit:
            raise TooManyReadings(self._limit)

    def _refuse(self, why: Reject, walk: Callable[[], None]) -> None:
        """Refuse what a walk gives, as one; nothing where it gives no reading."""
        readings, rejects = len(self.readings), len(self.rejects)
        walk()
        if len(self.readings) > readings or len(self.rejects) > rejects:
            del self.readings[readings:], self.rejects[rejects:]
            self.rejects.append(why)

    def _ordinal(self, flat: str) -> int:
        """Samples of a name are numbered through the whole item."""
        found = self._ordinals.get(flat, 0)
        self._ordinals[flat] = found + 1
        return found

    def _columns(self, body: dict[str, Any], flat: str, trail: Trail) -> bool:
        """An object with columns: by its times, by its offsets; values at an interval are refused."""
        lists = {key: value for key, value in body.items() if type(value) is list and value}
        unsaid = {key: value for key, value in lists.items() if not self._said(flat, key)}
        key = next((key for key, value in unsaid.items() if key in self._names and any(map(_timed, value))), None)
        lengths = _lengths(body) if unsaid else Counter()
        key = key or next((key for key, value in unsaid.items() if self._times_alone(key, value, lengths)), None)
        if key is not None:
            self._table(body, key, self._read_times(lists[key], (trail, key)), flat, trail)
            return True
        for key, value in unsaid.items():
            unit_us = offset_unit_us(key)
            unit_us = 0.0 if unit_us is None and self._names.get(key, (0, False))[1] else unit_us
            if unit_us is not None and all(type(one) in (int, float) for one in value) and lengths.total() > 1:
                self._table(body, key, self._from_offsets(value, unit_us, (trail, key)), flat, trail)
                return True
        return self._at_interval(body, flat, trail)

    def _read_times(self, values: list[Any], trail: Trail) -> list[At | Reject]:
        return [self._clock.read(one, AUTO, partial(trail_path, (trail, place))) for place, one in enumerate(values)]

    def _times_alone(self, key: str, values: list[Any], lengths: Counter[int]) -> bool:
        """Whether an array holds times, whatever its name, and others of its length are next to it."""
        if lengths[len(values)] < 2 or not all(map(is_time, values)):
            return False
        if any(type(one) is str and not whole(one) for one in values) or named_like_time(key):
            return True
        return len(values) > 1 and _rising(values) and recent(values[0], self._clock.received_us)

    def _from_offsets(self, offsets: list[float], unit_us: float, trail: Trail) -> list[At | Reject]:
        base_us, got = self._at[0], show_value(offsets)
        why = Reason.AMBIGUOUS_TIME
        wanted = f"offsets whose unit the name says, such as offset_ms; {NAME_IT}" if not unit_us else None
        if base_us is None:
            why, wanted = Reason.MISSING_FIELD, "a time in the same object, from which these offsets count"
        elif any(abs(offset * unit_us) > _LONGEST_US for offset in offsets):
            why, wanted = Reason.BAD_TIMESTAMP, "offsets of at most 30 years"
        if base_us is None or wanted is not None:
            return [Reject(why, trail_path(trail), got, wanted)] * len(offsets)
        return [
            self._clock.read(base_us + round(offset * unit_us), EPOCH_US, partial(trail_path, (trail, place)))
            for place, offset in enumerate(offsets)
        ]

    def _at_interval(self, body: dict[str, Any], flat: str, trail: Trail) -> bool:
        step = next((key for key in body if says_step(key) and type(body[key]) in (int, float)), None)
        series = [key for key, value in body.items() if _numbers(value)]
        if step is None or not series or self._said(flat, step):
            return False
        wanted = f"values with times of their own, not an interval; {NAME_IT}"
        for key in series:
            below: Trail = (trail, key)
            why = Reject(Reason.AMBIGUOUS_TIME, trail_path(below), show_value(body[key]), wanted)
            self._refuse(why, partial(super().walk, body[key], f"{flat}.{key}" if flat else key, key, below))
        self.members({key: value for key, value in body.items() if key not in series}, flat, trail)
        return True

    def _table(self, body: dict[str, Any], time_at: str, times: list[At | Reject], flat: str, trail: Trail) -> None:
        """Columns next to an array of times, also in objects next to it; what is no column has the object's time."""
        readings, rejects = len(self.readings), len(self.rejects)
        rest = self._table_members({key: value for key, value in body.items() if key != time_at}, times, flat, trail)
        # A time that is refused costs a row, not each of its columns.
        self.rejects[rejects:] = dict.fromkeys(self.rejects[rejects:])
        if readings == len(self.readings) and rejects == len(self.rejects):
            path, got = trail_path((trail, time_at)), show_value(body[time_at])
            self.rejects.append(Reject(Reason.MISSING_FIELD, path, got, "arrays of values next to these times"))
        self.members(rest, flat, trail)

    def _table_members(self, body: dict[str, Any], times: list[At | Reject], flat: str, trail: Trail) -> dict[str, Any]:
        """Walk the columns; returns the members that are none."""
        rest: dict[str, Any] = {}
        for key, value in body.items():
            name, below = f"{flat}.{key}" if flat else key, (trail, key)
            if type(value) is dict and any(type(inner) is list and inner for inner in value.values()):
                if not self._rules.skips(name, key):
                    self.members(self._table_members(value, times, name, below), name, below)
            elif type(value) is not list or not value:
                rest[key] = value
            elif self._rules.skips(name, key):
                continue
            elif len(value) == len(times):
                self._column(value, times, name, key, below)
            else:
                wanted = f"as many values as there are times ({len(times)})"
                why = Reject(Reason.AMBIGUOUS_TIME, trail_path(below), show_value(value), wanted)
                self._refuse(why, partial(super().walk, value, name, key, below))
        return rest

    def _column(self, values: list[Any], times: list[At | Reject], name: str, key: str, trail: Trail) -> None:
        for place, (value, at) in enumerate(zip(values, times, strict=True)):
            if value is not None:
                self._timed(at, partial(self.walk, value, name, key, (trail, place)), place)


def _timed(value: Any) -> bool:
    return is_time(value) or like_time(value)


def _numbers(value: Any) -> bool:
    return type(value) is list and len(value) > 1 and all(type(one) in (int, float) for one in value)


def _rising(values: list[Any]) -> bool:
    return all(before < after for before, after in itertools.pairwise(map(float, values)))


def _lengths(body: dict[str, Any]) -> Counter[int]:
    """How many arrays of each length are in an object, and in objects of it."""
    inner = (one for value in body.values() if type(value) is dict for one in value.values())
    return Counter(len(value) for value in itertools.chain(body.values(), inner) if type(value) is list and value)

"""Columns: arrays of values next to an array of times, or of offsets whose unit is in the name.

The times may come first, last or in the middle, under a usual name or not. Columns may also be in objects next to them:
`{"ts": […], "t": […]}`, `{"time": […], "data": {"t": […]}}`, `{"ts": …, "offset_ms": […], "t": […]}`, PPMP's `$_time`.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Self

from gateway.decoders.enclosing_times import NAME_IT, EnclosingTimes, ObjectTimes, look_for_times
from gateway.decoders.flatten import Flattener, TooManyReadings, Trail, trail_path
from gateway.decoders.mapping.value_times import AUTO, EPOCH_US, RECEIVED, At
from gateway.decoders.series_signs import (
    counts_from_before,
    is_evenly_spaced,
    is_ladder,
    is_weak_offset,
    may_say_step,
    names_axis,
    names_end_time,
    names_log,
    names_number,
    names_sampling,
    names_series,
    offset_unit_of,
)
from gateway.decoders.time_names import (
    is_epoch_text,
    is_recent_time,
    is_time,
    is_time_text,
    named_like_time,
    names_thing,
    offset_unit_us,
    time_names,
)
from gateway.safe_text import show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import Reason

__all__ = ["ColumnFlattener"]

_TIMES: Final = time_names(())
_MOST_PHASES: Final = 3
"""Most numbers of an array next to an interval that are still phases; more are values of one thing, in sequence."""
_LONGEST_US: Final = 1e15
"""About 30 years: longer offsets are rejected."""


class ColumnFlattener(Flattener):
    """Flattener that reads columns at their times, with what all kinds of samples need for that."""

    __slots__ = ("_bases", "_is_based", "_looked", "_names", "_ordinals", "_own", "_place", "_stride")

    def follow(self, own: tuple[str, ...], stride: int) -> Self:
        """Take the route's time keys `own`, and `stride`, how many items share the indexes of a metric."""
        self._own, self._names = own, time_names(own)
        self._stride, self._place = stride, self._index
        self._ordinals: dict[str, int] = {}
        self._is_based = False
        self._bases: dict[str, set[Any]] = {}
        self._looked: dict[int, ObjectTimes] = {}
        return self

    def _said(self, flat: str, key: str) -> bool:
        """Return whether the mapping itself says what this member is."""
        return self._rules.says(f"{flat}.{key}" if flat else key, key)

    def _timed(self, at: At | Reject, walk: Callable[[], None], ordinal: int | None = None) -> None:
        """Read something at its own time; if that is rejected, so are the readings."""
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
        """Reject the readings of a walk, as one; nothing if it gives no reading."""
        readings, rejects = len(self.readings), len(self.rejects)
        walk()
        if len(self.readings) > readings or len(self.rejects) > rejects:
            del self.readings[readings:], self.rejects[rejects:]
            self.rejects.append(why)

    def _ordinal(self, flat: str) -> int:
        """Return the next number of a name's samples; they are numbered through the whole item."""
        found = self._ordinals.get(flat, 0)
        self._ordinals[flat] = found + 1
        return found

    def _columns(self, body: dict[str, Any], flat: str, trail: Trail) -> bool:
        """Read an object with columns: by its times, by its offsets; values at an interval are rejected."""
        lists = {key: value for key, value in body.items() if type(value) is list and value}
        unsaid = {key: value for key, value in lists.items() if not self._said(flat, key)}
        key = next((key for key, value in unsaid.items() if key in self._names and any(map(_timed, value))), None)
        lengths = _lengths(body) if unsaid else Counter()
        key = key or next((key for key, value in unsaid.items() if self._times_alone(key, value, lengths)), None)
        if key is not None:
            self._table(body, key, self._read_times(lists[key], (trail, key)), flat, trail)
            return True
        maybe = [key for key, value in unsaid.items() if self._may_be_rungs(key, value)] if lengths.total() > 1 else []
        around = self._around(body, trail) if maybe else EnclosingTimes([])
        for key in sorted(maybe, key=lambda key: _likeness(key, unsaid[key])):
            value = unsaid[key]
            unit_us = self._rungs(key, value, around)
            if unit_us is not None and (lengths[len(value)] > 1 or self._says_offsets(key, unit_us, around)):
                self._table(body, key, self._from_offsets(value, unit_us, (trail, key), around), flat, trail)
                return True
        return self._at_interval(body, flat, trail)

    # Signs that numbers are offsets.

    def _may_be_rungs(self, key: str, values: list[Any]) -> bool:
        """Return whether numbers may be offsets, by their name, or because they only rise or fall."""
        alone = len(values) == 1 and offset_unit_of(key) is not None and not is_weak_offset(key)
        if alone or self._is_sure_offset(key) or counts_from_before(key, values):
            return all(type(one) in (int, float) for one in values)
        return not names_axis(key) and is_ladder(values)

    def _is_sure_offset(self, key: str) -> bool:
        return offset_unit_us(key) is not None or self._names.get(key, (0, False))[1]

    def _says_offsets(self, key: str, unit_us: float, around: EnclosingTimes) -> bool:
        """Return whether the name of offsets is enough if no other array has as many values: then these are rejected."""
        if offset_unit_us(key) is not None:
            return True
        timed = around.base is not None or (unit_us > 0 and self._at[0] is not None)
        return timed and offset_unit_of(key) is not None and not is_weak_offset(key)

    def _rungs(
        self, key: str, values: list[Any], around: EnclosingTimes, *, last: str = "", named: bool = False
    ) -> float | None:
        """Return µs in the unit of numbers that may be offsets, 0 if the unit is unknown; None if they are not offsets.

        Args:
            key: their name, "" for a column without one.
            values: the numbers, in order.
            around: findings next to and around them.
            last: the name of the array whose objects or rows hold them.
            named: whether these objects name things.
        """
        ends, timed = 0 in (values[0], values[-1]), self._at[0] is not None
        loose = offset_unit_of(key) if offset_unit_us(key) is None else offset_unit_of(key) or offset_unit_us(key)
        unsteady, sure = counts_from_before(key, values), self._is_sure_offset(key)
        if not sure and (unsteady or len(values) == 1) and around.base is None and not (loose and timed):
            return None
        if unsteady:
            return 0.0
        if sure and last == "":
            return offset_unit_us(key) or 0.0
        is_based = around.base is not None or around.has_stray
        if loose is not None and (ends or (not is_weak_offset(key) and (timed or is_based))):
            return loose
        if named or not (ends or is_evenly_spaced(values)):
            return None
        sampled = timed and ends and (is_evenly_spaced(values) or names_log(last))
        return 0.0 if sampled or is_based else None

    def _around(self, body: object, trail: Trail) -> EnclosingTimes:
        """Return the findings of an object and those around it, the innermost first."""
        node: Any = self._scope.item
        found = [self._times_of(self._scope.root), self._times_of(node)]
        for key in self._keys(trail):
            try:
                node = node[key]
            except (KeyError, IndexError, TypeError):
                break
            found.append(self._times_of(node))
        return EnclosingTimes([look_for_times(body, self._names, self._clock.received_us), *found[::-1]])

    def _times_of(self, node: object) -> ObjectTimes:
        """Return the findings of one object of the message, examined once."""
        looked = self._looked.get(id(node))
        if looked is None:
            looked = self._looked[id(node)] = look_for_times(node, self._names, self._clock.received_us)
        return looked

    def _base_time(self, around: EnclosingTimes, trail: Trail) -> At | Reject | None:
        """Return the first time, which is then not a reading."""
        if around.base is None:
            return None
        key, value = around.base
        self._bases.setdefault(key, set()).add(value)
        return self._clock.read(value, AUTO, partial(trail_path, (trail, key)))

    def drop_bases(self) -> None:
        """Leave out first times that were used: they are not readings."""
        if self._bases:
            self.readings = [one for one in self.readings if not self._is_base(one)]

    def _is_base(self, one: Reading) -> bool:
        used = self._bases.get(one.metric.rpartition(".")[2], ())
        return bool(used) and (one.text if one.value is None else one.value) in used

    def _read_times(self, values: list[Any], trail: Trail) -> list[At | Reject]:
        return [self._clock.read(one, AUTO, partial(trail_path, (trail, place))) for place, one in enumerate(values)]

    def _times_alone(self, key: str, values: list[Any], lengths: Counter[int]) -> bool:
        """Return whether an array holds times, whatever its name, and others of its length are next to it."""
        if lengths[len(values)] < 2 or not all(map(is_time, values)):
            return False
        if any(type(one) is str and not is_epoch_text(one) for one in values) or named_like_time(key):
            return True
        if names_axis(key) or names_number(key):
            return False
        return len(values) > 1 and _rising(values) and is_recent_time(values[0], self._clock.received_us)

    def _from_offsets(
        self, offsets: list[float], unit_us: float, trail: Trail, around: EnclosingTimes
    ) -> list[At | Reject]:
        base = self._base_time(around, trail)
        return [base] * len(offsets) if isinstance(base, Reject) else self._add_all(offsets, unit_us, trail, base)

    def _add_all(self, offsets: list[float], unit_us: float, trail: Trail, base: At | None) -> list[At | Reject]:
        base_us, got = (base or self._at)[0], show_value(offsets)
        why = Reason.AMBIGUOUS_TIME
        wanted = (
            f"offsets from one time with their unit in the name, such as offset_ms; {NAME_IT}" if not unit_us else None
        )
        if base_us is None:
            why, wanted = Reason.MISSING_FIELD, "a time under a usual name (ts, base), to which these offsets are added"
        elif unit_us and any(abs(offset) > _LONGEST_US / abs(unit_us) for offset in offsets):
            why, wanted = Reason.BAD_TIMESTAMP, "offsets of at most 30 years"
        if base_us is None or wanted is not None:
            return [Reject(why, trail_path(trail), got, wanted)] * len(offsets)
        return [
            self._clock.read(base_us + round(offset * unit_us), EPOCH_US, partial(trail_path, (trail, place)))
            for place, offset in enumerate(offsets)
        ]

    def _at_interval(self, body: dict[str, Any], flat: str, trail: Trail) -> bool:
        """Read arrays whose values are a step apart: from a first time by a step with a unit, else rejected."""
        if not (self._is_based or any(map(may_say_step, body))) or not any(map(_in_order, body.values())):
            return False
        around = self._around(body, trail)
        steps = (
            around.based_steps
            if around.base is not None
            else {key: us for key, us in around.steps.items() if may_say_step(key)}
        )
        if any(self._said(flat, key) for key in steps if key in body):
            steps = {}
        # From a last time values would count back; nothing says so, so they are rejected.
        ends = (
            bool(steps)
            and around.base is None
            and any(names_end_time(key) and is_time(one) for key, one in body.items())
        )
        series = {
            key
            for key, value in body.items()
            if _in_order(value)
            and not self._said(flat, key)
            and not self._rules.skips(key, key)
            and (ends or self._is_series(key, value, steps, is_based=around.base is not None))
        }
        if not series:
            return False
        base, apart_us = self._base_time(around, trail), next(iter(steps.values()), 0.0)
        rest = {key: value for key, value in body.items() if key not in series}
        for key, value in body.items():
            if key in series:
                self._steady(value, base, apart_us, f"{flat}.{key}" if flat else key, key, (trail, key))
        self.members(rest, flat, trail)
        return True

    def _is_series(self, key: str, value: list[Any], steps: dict[str, float], *, is_based: bool) -> bool:
        if is_based:
            return not _holds_offsets(value) and (bool(steps) or names_series(key))
        if not steps or type(value[0]) in (dict, list):
            return False
        timed, sampling = self._at[0] is not None, any(map(names_sampling, steps))
        return (names_series(key) and (timed or sampling)) or (timed and (sampling or len(value) > _MOST_PHASES))

    def _steady(
        self, values: list[Any], base: At | Reject | None, apart_us: float, name: str, key: str, trail: Trail
    ) -> None:
        if base is not None and not isinstance(base, Reject) and base[0] is not None and apart_us:
            offsets = [place * apart_us for place in range(len(values))]
            self._column(values, self._add_all(offsets, 1.0, trail, base), name, key, trail)
            return
        wanted = f"values with their own times, or `t0` and a step with its unit (`step_s`); {NAME_IT}"
        why = Reject(Reason.AMBIGUOUS_TIME, trail_path(trail), show_value(values), wanted)
        self._refuse(base if isinstance(base, Reject) else why, partial(Flattener.walk, self, values, name, key, trail))

    def _table(self, body: dict[str, Any], time_at: str, times: list[At | Reject], flat: str, trail: Trail) -> None:
        """Read columns next to an array of times, also in objects next to it; other members have the object's time."""
        readings, rejects = len(self.readings), len(self.rejects)
        rest = self._table_members({key: value for key, value in body.items() if key != time_at}, times, flat, trail)
        # A rejected time is one rejection of the row, not one for each of its columns.
        self.rejects[rejects:] = dict.fromkeys(self.rejects[rejects:])
        if readings == len(self.readings) and rejects == len(self.rejects):
            path, got = trail_path((trail, time_at)), show_value(body[time_at])
            self.rejects.append(Reject(Reason.MISSING_FIELD, path, got, "arrays of values next to these times"))
        self.members(rest, flat, trail)

    def _table_members(self, body: dict[str, Any], times: list[At | Reject], flat: str, trail: Trail) -> dict[str, Any]:
        """Walk the columns; returns the members that are not columns."""
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


def _likeness(key: str, values: list[Any]) -> int:
    """Return how unlikely it is that these are offsets, by their name, then by their ends."""
    if offset_unit_us(key) is not None:
        return 0
    return 1 if offset_unit_of(key) is not None else 2 if 0 in (values[0], values[-1]) else 3


def _timed(value: Any) -> bool:
    return is_time(value) or is_time_text(value)


def _holds_offsets(values: list[Any]) -> bool:
    """Return whether objects or rows may say by themselves how far each is from a first time."""
    first = values[0]
    if type(first) is dict:
        return any(offset_unit_of(key) is not None or key in _TIMES for key in first)
    return type(first) is list and is_ladder([row[0] if row else None for row in values])


def _in_order(value: Any) -> bool:
    """Return whether this is an array of numbers, rows, or objects that name nothing: values that may be a step apart."""
    if type(value) is not list or len(value) < 2:
        return False
    if all(type(one) in (int, float) or one is None for one in value):
        return True
    plain = all(type(one) is dict and not names_thing(one) for one in value)
    return plain or all(type(one) is list for one in value)


def _rising(values: list[Any]) -> bool:
    return all(before < after for before, after in itertools.pairwise(map(float, values)))


def _lengths(body: dict[str, Any]) -> Counter[int]:
    """Return how many arrays of each length are in an object, and in objects of it."""
    inner = (one for value in body.values() if type(value) is dict for one in value.values())
    return Counter(len(value) for value in itertools.chain(body.values(), inner) if type(value) is list and value)

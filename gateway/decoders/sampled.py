"""Samples inside a message: a sample with its own time gets that time or is rejected; never the message's or the receive time.

Read are, at any depth:
    an object with a time                `{"gps": {"ts": …, "lat": 1}}`          `gps.lat` at its time
    an array of such objects             `{"log": [{"ts": …, "t": 1}, …]}`       `log.t`, by place the index
    rows with a time, or one of them     `{"log": [[…, 1.5], …]}`                `log`; of longer rows `log[1]`, `log[2]`
    an object whose names are times      `{"log": {"2026-…Z": 1.5, …}}`          `log`
    columns: a time array, and arrays of its length                               by name, by place the index
    columns, objects and rows with offsets whose name says the unit (`offset_ms`, `dt_s`, `$_time` of PPMP), from a first time
    (`base`, `t0`, `start`) or the time of their object; values a step apart (`interval_s`) from a first time
Objects that name a thing (text, `id`, `channel` …) keep their place in the name: `log[0].t`.
Rejected are: an object without a time among those with one, a time that cannot be read, offsets without a unit (by name, or
by their shape next to a time: see `series_signs`), columns of other lengths, values at an interval that belong to a time,
and objects of an array that hold some date under an unknown name. A mapping that names such a time (as device, time,
identity, in `skip` or in `rename`) decides what it is, and is followed.
Kept unchanged: times of day of a plan (`"on_time": "06:30"`), objects whose names are days, and values next to an interval
if nothing has a time.
"""

from functools import partial
from typing import Any, Final

from gateway.decoders.enclosing_times import NAME_IT, EnclosingTimes, refuse_unknown_time, refuse_untimed
from gateway.decoders.flatten import Flattener, TooManyReadings, Trail, trail_path
from gateway.decoders.mapping.value_times import AUTO, At
from gateway.decoders.sampled_columns import ColumnFlattener
from gateway.decoders.series_signs import is_ladder, names_base_time, names_log, names_number
from gateway.decoders.time_names import (
    is_clock_text,
    is_date_text,
    is_recent_time,
    is_time,
    is_time_text,
    names_schedule,
    names_thing,
    schedule_member,
)
from gateway.decoders.values import MAX_METRIC_BYTES
from gateway.json_text import BadNumber
from gateway.safe_text import show_value
from gateway.time_rules import YEAR_2000_S
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["SampledFlattener"]

_LONGEST: Final = 10
"""Most digits of a name that is an offset."""
_Found = tuple[At | Reject, tuple[str, ...]]
"""Time of an object, and the members that hold it."""


class SampledFlattener(ColumnFlattener):
    """Flattener that looks for times below the item."""

    def item(self, body: Any, name: str, last: str, trail: Trail, time_key: str | None, *, inner: bool) -> None:
        """Read the whole item; `inner`: its body is a part of it, which may have a time that the item does not have.

        Raises:
            TooManyReadings: the limit is passed.
        """
        if type(body) is not dict:
            self.walk(body, name, last, trail)
            return
        if time_key is not None:
            body = body.copy()
            del body[time_key]
        scope, timed = self._scope, not self._names.untimed(body)
        self._is_based = (
            (timed and _has_base(body))
            or (inner and _has_base(scope.item))
            or (scope.root is not scope.item and _has_base(scope.root))
        )
        timed = timed or self._is_based
        if not (timed and ((inner and self._object(body, "", last, trail)) or self._series(body, "", last, trail))):
            self.members(body, "", trail)
        self.drop_bases()

    def walk(self, value: Any, flat: str, last: str, trail: Trail) -> None:
        """Read any value, as in `Flattener`; objects and arrays with times below them at those times."""
        kind = type(value)
        if (kind is dict or kind is list) and value and len(flat) <= MAX_METRIC_BYTES:
            if kind is dict and not self._is_based and self._names.untimed(value):
                if self._rules.skips(flat, last):
                    return
                if self._shape.quantity.value not in value or not self._quantity(value, flat, last, trail):
                    self.members(value, flat, trail)
                return
            if len(value) > self._limit:
                raise TooManyReadings(self._limit)
            if self._rules.skips(flat, last):
                return
            self._is_based = self._is_based or _has_base(value)
            if (self._object if kind is dict else self._array)(value, flat, last, trail):
                return
        super().walk(value, flat, last, trail)

    # One object.

    def _object(self, body: dict[str, Any], flat: str, last: str, trail: Trail) -> bool:
        """Read an object with its own time, or a series of another shape."""
        quantity = self._shape.quantity
        if quantity.time is not None and quantity.value in body:
            return False
        found = self._time_of(body, flat, trail, listed=False)
        if found is None:
            return self._series(body, flat, last, trail)
        self._sample(found, body, flat, last, trail)
        return True

    def _time_of(self, body: dict[str, Any], flat: str, trail: Trail, *, listed: bool) -> _Found | None:
        """Return the time that an object holds, None if it holds none; `listed`: it is in an array."""
        if self._names.keys().isdisjoint(body):
            return None
        names = self._names
        keys = [key for key in body if key in names and body[key] not in (None, "") and not self._said(flat, key)]
        keys.sort(key=lambda key: names[key])
        times = tuple(key for key in keys if is_time(body[key]))
        if times:
            return self._clock.read(body[times[0]], AUTO, lambda: trail_path((trail, times[0]))), times
        for key in keys:
            value, sure = body[key], names[key][1]
            kind = type(value)
            if sure and kind in (int, float) and value < YEAR_2000_S:
                if listed or key.lower().startswith("ts") or "stamp" in key.lower():
                    wanted = f"a time since 2000; if it is an offset from another time, {NAME_IT}"
                    return Reject(Reason.AMBIGUOUS_TIME, trail_path((trail, key)), show_value(value), wanted), (key,)
            elif sure and kind is str:
                if any(character.isdigit() for character in value) and not self._is_plan(
                    body, flat, key, listed=listed
                ):
                    return self._unread(value, (trail, key)), (key,)
            elif (sure and kind in (int, float, BadNumber)) or (
                is_time_text(value) and not self._is_plan(body, flat, key, listed=listed)
            ):
                return self._unread(value, (trail, key)), (key,)
        return None

    def _is_plan(self, body: dict[str, Any], flat: str, key: str, *, listed: bool) -> bool:
        """Return whether a time of day says when something is to be done, not when it was measured."""
        if schedule_member(body, flat, key):
            return True
        # Clocks of measurements have seconds.
        return not listed and is_clock_text(body[key]) and body[key].count(":") == 1

    def _unread(self, value: Any, trail: Trail) -> Reject:
        read = self._clock.read(value, AUTO, lambda: trail_path(trail))
        return read if isinstance(read, Reject) else Reject(Reason.BAD_TIMESTAMP, trail_path(trail), show_value(value))

    def _sample(self, found: _Found, body: dict[str, Any], flat: str, last: str, trail: Trail) -> None:
        at, keys = found
        rest = {key: value for key, value in body.items() if key not in keys}
        self._timed(at, partial(self._inside, rest, flat, last, trail))

    def _inside(self, body: dict[str, Any], flat: str, last: str, trail: Trail) -> None:
        if (
            body
            and not self._series(body, flat, last, trail)
            and not (flat and self._quantity(body, flat, last, trail))
        ):
            self.members(body, flat, trail)

    # An array.

    def _array(self, body: list[Any], flat: str, last: str, trail: Trail) -> bool:
        kinds = list(map(type, body))
        if dict in kinds:
            return self._objects(body, flat, last, trail)
        if list in kinds:
            return self._rows(body, flat, last, trail)
        return self._row(body, flat, last, trail)

    def _objects(self, body: list[Any], flat: str, last: str, trail: Trail) -> bool:
        """Read objects of which any has its own time."""
        found = [
            self._time_of(inner, f"{flat}[{place}]", (trail, place), listed=True) if type(inner) is dict else None
            for place, inner in enumerate(body)
        ]
        if not any(found):
            found = self._stepped(body, last, trail)
        if not any(found):
            return self._hidden_times(body, flat, last, trail)
        merged = not self._rules.mentions(f"{flat}[") and not any(
            type(one) is dict and names_thing(one) for one in body
        )
        before = len(self.rejects)
        for place, (inner, one) in enumerate(zip(body, found, strict=True)):
            below: Trail = (trail, place)
            name = flat if merged else f"{flat}[{place}]"
            at, keys = one or (refuse_untimed(inner, below), ())
            ordinal = self._ordinal(flat) if merged else None
            if type(inner) is dict:
                rest = {key: value for key, value in inner.items() if key not in keys}
                self._timed(at, partial(self._inside, rest, name, last, below), ordinal)
            else:
                self._timed(at, partial(self.walk, inner, name, last, below), ordinal)
        self.rejects[before:] = dict.fromkeys(self.rejects[before:])
        return True

    def _stepped(self, body: list[Any], last: str, trail: Trail) -> list[_Found | None]:
        """Return the times of objects that hold offsets from an outside time, empty if they do not."""
        if not all(type(inner) is dict for inner in body):
            return []
        named = any(map(names_thing, body))
        around: EnclosingTimes | None = None
        for key in body[0]:
            values = _numbers_of(body, key)
            if len(values) < len(body) or self._said(last, key) or not self._may_be_rungs(key, values):
                continue
            around = around or self._around(None, trail)
            if len(body) == 1 and around.base is None:
                return []
            unit_us = self._rungs(key, values, around, last=last or "data", named=named)
            if unit_us is not None:
                return [(at, (key,)) for at in self._from_offsets(values, unit_us, trail, around)]
        return []

    def _hidden_times(self, body: list[Any], flat: str, last: str, trail: Trail) -> bool:
        """Reject objects that hold a time under a name that does not say so: its meaning is unknown."""
        for place, inner in enumerate(body):
            why = refuse_unknown_time(inner, partial(self._said, f"{flat}[{place}]"), (trail, place))
            if why is not None:
                self._refuse(why, partial(Flattener.walk, self, body, flat, last, trail))
                return True
        return False

    def _rows(self, body: list[Any], flat: str, last: str, trail: Trail) -> bool:
        """Read rows of which one column holds the times; a first row of texts names the columns."""
        header, rows = _header(body)
        width = max(len(row) for row in rows) if rows and all(type(row) is list for row in rows) else 0
        columns = [column for column in range(width) if all(column < len(row) and is_time(row[column]) for row in rows)]
        if len(columns) != 1 or width < 2:
            odd = next(
                (cell for row in body if type(row) is list for cell in row if is_time_text(cell, clock=True)), None
            )
            if odd is None and not columns:
                return self._stepped_rows(header, rows, flat, last, trail)
            wanted = f"rows with one column of readable times; {NAME_IT}"
            why = Reject(Reason.AMBIGUOUS_TIME, trail_path(trail), show_value(odd or body), wanted)
            self._refuse(why, partial(Flattener.walk, self, body, flat, last, trail))
            return True
        for place, row in enumerate(rows, start=len(body) - len(rows)):
            self._one_row(row, columns[0], header, flat, last, (trail, place), self._ordinal(flat))
        return True

    def _stepped_rows(self, header: list[str] | None, rows: list[Any], flat: str, last: str, trail: Trail) -> bool:
        """Read rows whose first column holds offsets from a time outside of them."""
        widths = {len(row) if type(row) is list else 0 for row in rows}
        if len(rows) < 2 or len(widths) != 1 or min(widths) < 2:
            return False
        values, key = [row[0] for row in rows], header[0] if header else ""
        if not self._may_be_rungs(key, values):
            return False
        around = self._around(None, trail)
        if self._at[0] is not None and around.base is None and min(widths) > 2 and header is None:
            # A matrix may begin so.
            return False
        unit_us = self._rungs(key, values, around, last=last or "data")
        if unit_us is None:
            return False
        times = self._from_offsets(values, unit_us, trail, around)
        before = len(self.rejects)
        for place, (row, at) in enumerate(zip(rows, times, strict=True), start=0 if header is None else 1):
            walk = partial(self._cells, row, 0, header, flat, last, (trail, place))
            self._timed(at, walk, self._ordinal(flat))
        # A rejected offset rejects all rows; it is reported once.
        self.rejects[before:] = dict.fromkeys(self.rejects[before:])
        return True

    def _one_row(
        self,
        row: list[Any],
        column: int,
        header: list[str] | None,
        flat: str,
        last: str,
        trail: Trail,
        ordinal: int | None,
    ) -> None:
        at = self._clock.read(row[column], AUTO, lambda: trail_path((trail, column)))
        self._timed(at, partial(self._cells, row, column, header, flat, last, trail), ordinal)

    def _cells(self, row: list[Any], column: int, header: list[str] | None, flat: str, last: str, trail: Trail) -> None:
        """Read the cells of a row except that of its time."""
        for place, cell in enumerate(row):
            if place == column:
                continue
            name, key = flat if len(row) == 2 else f"{flat}[{place}]", last
            if header is not None and place < len(header):
                name, key = f"{flat}.{header[place]}" if flat else header[place], header[place]
            self.walk(cell, name, key, (trail, place))

    def _row(self, body: list[Any], flat: str, last: str, trail: Trail) -> bool:
        """Read one row of scalars whose first or last is a recent time."""
        if len(body) < 2:
            return False
        if not (is_time(body[0]) or is_time(body[-1])) or names_number(last):
            return False
        columns = [place for place, cell in enumerate(body) if is_recent_time(cell, self._clock.received_us)]
        if len(columns) != 1 or columns[0] not in (0, len(body) - 1):
            return False
        self._one_row(body, columns[0], None, flat, last, trail, None)
        return True

    # An object that is a series.

    def _series(self, body: dict[str, Any], flat: str, last: str, trail: Trail) -> bool:
        """Read an object whose names are times, or whose arrays are columns."""
        times = {key for key in body if key[:1].isdigit() and self._is_time_name(key)}
        if times:
            self._by_time(body, times, flat, last, trail)
            return True
        if all(map(is_date_text, body)) and not names_log(last) and list not in map(type, body.values()):
            # A name that is a day says by itself when its value was measured.
            return False
        if self._numbered_by_offsets(body, trail):
            wanted = f"samples with times of their own, not offsets as names; {NAME_IT}"
            why = Reject(Reason.AMBIGUOUS_TIME, trail_path(trail), show_value(body), wanted)
            self._refuse(why, partial(self.members, body, flat, trail))
            return True
        if body and not names_schedule(flat) and all(key[:1].isdigit() and is_time_text(key) for key in body):
            wanted = f"names that are times with a date and a zone; {NAME_IT}"
            why = Reject(Reason.AMBIGUOUS_TIME, trail_path(trail), show_value(body), wanted)
            self._refuse(why, partial(self.members, body, flat, trail))
            return True
        if not any(type(value) is list and value for value in body.values()):
            return False
        return self._columns(body, flat, trail)

    def _numbered_by_offsets(self, body: dict[str, Any], trail: Trail) -> bool:
        """Return whether names are numbers from 0 on, and not just places, next to a time."""
        if "0" not in body or not all(map(str.isdecimal, body)) or not all(len(key) < _LONGEST for key in body):
            return False
        places = list(map(int, body))
        stepped = is_ladder(places) and places != list(range(len(places)))
        if not stepped:
            return False
        around = self._around(body, trail)
        return around.base is not None or around.has_stray

    def _is_time_name(self, key: str) -> bool:
        return is_recent_time(key, self._clock.received_us, years=10)

    def _by_time(self, body: dict[str, Any], times: set[str], flat: str, last: str, trail: Trail) -> None:
        for key, value in body.items():
            if key not in times:
                continue
            below: Trail = (trail, key)
            at = self._clock.read(key, AUTO, partial(trail_path, below))
            if type(value) is dict:
                self._timed(at, partial(self._inside, value, flat, last, below), self._ordinal(flat))
            else:
                self._timed(at, partial(self.walk, value, flat or last, last, below), self._ordinal(flat))
        rest = {key: value for key, value in body.items() if key not in times}
        if rest:
            self.members(rest, flat, trail)


def _numbers_of(body: list[Any], key: str) -> list[float]:
    """Return the numbers of this name in objects, up to the first that has none."""
    found = []
    for inner in body:
        value = inner.get(key)
        if type(value) is not int and type(value) is not float:
            break
        found.append(value)
    return found


def _has_base(body: object) -> bool:
    return type(body) is dict and any(names_base_time(key) and is_time(value) for key, value in body.items())


def _header(body: list[Any]) -> tuple[list[str] | None, list[Any]]:
    first = body[0]
    texts = (
        type(first) is list
        and len(body) > 1
        and all(type(cell) is str and cell and not is_time_text(cell) for cell in first)
    )
    return (first, body[1:]) if texts and not any(map(is_time, first)) else (None, body)

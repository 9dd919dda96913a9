"""Rule by which nested JSON becomes metrics, for generic JSON and for every mapping.

`{"a": {"b": 1}}` gives metric `a.b`, `{"a": [1, 2]}` gives `a[0]`, `a[1]`. null and empty text are not values, nor are
texts such as `unavailable`. An inner object of exactly `value` and `unit` is one reading with that unit. If two fields of
one item get the same name, both are kept: the second gets another index, and a flag.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from gateway.decoders.mapping.names import MetricNameRule, PrefixNameRules
from gateway.decoders.mapping.paths import TemplateScope
from gateway.decoders.mapping.value_rules import ValueRules
from gateway.decoders.mapping.value_settings import NOT_BY_CODE
from gateway.decoders.mapping.value_times import At, TimeContext, is_time_absent
from gateway.decoders.number_text import NUMERIC_TEXT, guess_number, is_blank
from gateway.decoders.plain_value import read_scalar
from gateway.decoders.values import EXACT, MAX_METRIC_BYTES, NOT_FINITE, metric_fault, read_value
from gateway.safe_text import json_path, show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import Reason

__all__ = ["Flattener", "TooManyReadings", "Trail", "add_flag", "number_duplicate_names", "trail_path"]

METRIC_TWICE: Final = "metric_twice"
MAX_UNIT_CHARACTERS: Final = 64
"""Longer texts are not units; and one text of a message would be repeated in each of its readings."""
TWICE_STEP: Final = 200_000
"""Multiplied by the most readings of a message, an index still fits the 32 bits of the tables' column."""

Trail = tuple[Any, str | int] | str
"""Place of a value: its parent's trail and its key; text for the place where the walk began."""


class TooManyReadings(Exception):
    """A message would give more readings than the limit."""

    def __init__(self, limit: int) -> None:
        """Make the rejection, which names the limit."""
        super().__init__(limit)
        self.reject = Reject(Reason.TOO_LARGE, "$", "more readings", f"at most {limit} readings in a message")


def trail_path(trail: Trail) -> str:
    """Return the JSON path of a trail."""
    keys: list[str | int] = []
    while not isinstance(trail, str):
        trail, key = trail
        keys.append(key)
    path = trail
    for key in reversed(keys):
        path = json_path(path, key)
    return path


class Flattener:
    """Collector of the readings of one item. The parser bounds nesting, so it bounds recursion too."""

    __slots__ = (
        "_at",
        "_base",
        "_clock",
        "_index",
        "_limit",
        "_rules",
        "_scope",
        "_shape",
        "_times",
        "_units",
        "left_out",
        "readings",
        "rejects",
    )

    def __init__(
        self,
        rules: PrefixNameRules,
        shape: ValueRules,
        scope: TemplateScope,
        clock: TimeContext,
        at: At,
        trail: Trail,
        *,
        index: int = 0,
        limit: int,
    ) -> None:
        """Take the item's time `at`, the `trail` of its readings, its place `index`, and `limit`, the most readings."""
        self._rules, self._shape, self._scope, self._clock = rules, shape, scope, clock
        self._at, self._base, self._index, self._limit = at, trail, index, limit
        self._times = None if shape.times is None else shape.times.look(scope.item, scope.root)
        self._units = None if shape.units is None else shape.units.of(scope)
        self.readings: list[Reading] = []
        self.rejects: list[Reject] = []
        self.left_out: list[str] = []

    def members(self, body: dict[str, Any], name: str, trail: Trail, without: str | None = None) -> None:
        """Read each member of an object; `without` is the key that held the time.

        Raises:
            TooManyReadings: the limit is passed.
        """
        if len(body) > self._limit:
            raise TooManyReadings(self._limit)
        if without is not None:
            body = {key: value for key, value in body.items() if key != without}
        head = f"{name}." if name else ""
        rules, known, readings, index = self._rules, self._rules.known, self.readings, self._index
        time_us, claimed_us, flag = self._at
        usual, words = flag is None and self._times is None and self._units is None, self._shape.words
        for key, value in body.items():
            kind = type(value)
            flat = head + key
            if kind is dict or kind is list:
                self.walk(value, flat, key, (trail, key))
                continue
            rule = known.get(flat) or rules.of(flat, key)
            if rule.skip:
                if value is not None and value != "":
                    self._leave_out(rule)
                continue
            # The usual reading costs no function call.
            if usual and rule.plain and (kind is float or (kind is int and -EXACT <= value <= EXACT)):
                unit = rule.unit if rule.unit_template is None else self._unit(rule, None)
                readings.append(Reading(rule.name, float(value), None, unit, time_us, claimed_us, index))
            elif usual and rule.plain_words and (kind is bool or (kind is str and value in words)):
                number, text = (None, value) if kind is str else (1.0, "true") if value else (0.0, "false")
                readings.append(Reading(rule.name, number, text, None, time_us, claimed_us, index))
            elif value is not None:
                self._add(value, rule, (trail, key))
        if len(readings) + len(self.rejects) > self._limit:
            raise TooManyReadings(self._limit)

    def walk(self, value: Any, flat: str, last: str, trail: Trail) -> None:
        """Read any value, named `flat`; `last` is its last key.

        Raises:
            TooManyReadings: the limit is passed.
        """
        if not isinstance(value, dict | list):
            self._add(value, self._rules.of(flat, last), trail)
            return
        if not value or self._rules.skips(flat, last):
            return
        if len(flat) > MAX_METRIC_BYTES:
            # Before expanding it: every name below would contain a copy of this one, and be rejected anyway.
            fault = metric_fault(flat) or ""
            self.rejects.append(Reject(Reason.OUT_OF_RANGE, trail_path(trail), show_value(flat), fault))
        elif isinstance(value, list):
            self.items(value, flat, last, trail)
        elif not self._quantity(value, flat, last, trail):
            self.members(value, flat, trail)

    def items(self, body: list[Any], flat: str, last: str, trail: Trail) -> None:
        """Read each item of an array.

        Raises:
            TooManyReadings: the limit is passed.
        """
        if len(body) > self._limit:
            raise TooManyReadings(self._limit)
        known, readings, index = self._rules.known, self.readings, self._index
        time_us, claimed_us, flag = self._at
        usual = flag is None and self._times is None and self._units is None
        for place, value in enumerate(body):
            name, kind = f"{flat}[{place}]", type(value)
            # As in `members`; new names take the slow path.
            if usual and (kind is float or (kind is int and -EXACT <= value <= EXACT)):
                rule = known.get(name)
                if rule is not None and rule.plain and not rule.skip:
                    unit = None if rule.unit is None and rule.unit_template is None else self._unit(rule, None)
                    readings.append(Reading(rule.name, float(value), None, unit, time_us, claimed_us, index))
                    continue
            self.walk(value, name, last, (trail, place))
        if len(self.readings) + len(self.rejects) > self._limit:
            raise TooManyReadings(self._limit)

    def _quantity(self, body: dict[str, Any], flat: str, last: str, trail: Trail) -> bool:
        """Return whether an object is one reading; then it is added."""
        quantity = self._shape.quantity
        if quantity.value not in body:
            return False
        value = body[quantity.value]
        unit = None if quantity.unit is None else body.get(quantity.unit)
        judged = quantity.judge(body, self._scope.root) if quantity.status or quantity.quality is not None else None
        if isinstance(judged, Reject):
            self.rejects.append(replace(judged, path=trail_path(trail)))
            return True
        if type(value) is dict or type(value) is list:
            return False
        if quantity.exact and (len(body) != 2 or type(unit) is not str):
            return False
        at, before = None, len(self.readings)
        if quantity.time is not None:
            claimed = quantity.time.look(body, self._scope.root)
            if not is_time_absent(claimed):
                below = quantity.time.text
                read = self._clock.read(claimed, quantity.time_format, lambda: f"{trail_path(trail)}.{below}")
                if isinstance(read, Reject):
                    self.rejects.append(read)
                    return True
                at = read
        self._add(value, self._rules.of(flat, last), trail, unit if type(unit) is str else None, at)
        if judged is not None:
            add_flag(self.readings[before:], judged)
        return True

    def _add(
        self, value: Any, rule: MetricNameRule, trail: Trail, unit: str | None = None, at: At | None = None
    ) -> None:
        guessed = False
        if type(value) is str:
            if not value or value.isspace():
                return
            if not (rule.skip or rule.text or rule.numeric_text or rule.guess or rule.number is not None):
                if value.strip().lower() not in self._shape.no_values:
                    self._leave_out(rule, chosen=False)
                return
            if not rule.skip:
                value, unit = self._read_text(value, rule, unit)
                guessed = rule.guess and type(value) is not str
        if value is None:
            return
        if rule.skip:
            self._leave_out(rule)
            return
        reading = self._read(value, rule, trail, unit, at or self._own_time(trail))
        if isinstance(reading, Reject):
            self.rejects.append(reading)
        else:
            if guessed:
                reading.flags = [*(reading.flags or ()), NUMERIC_TEXT]
            self.readings.append(reading)

    def _leave_out(self, rule: MetricNameRule, *, chosen: bool = True) -> None:
        """Count a field that is not a reading. One that no selection chose is named if the message gives no reading."""
        if not rule.hidden:
            rule.dropped += 1
            if not (rule.chosen and chosen):
                self.left_out.append(rule.name)

    def _read(
        self, value: Any, rule: MetricNameRule, trail: Trail, unit: str | None, at: At | Reject
    ) -> Reading | Reject:
        if isinstance(at, Reject):
            return at
        if rule.errors and type(value) in (int, float) and value in rule.errors:
            return Reject(Reason.BAD_NUMBER, trail_path(trail), show_value(value), NOT_BY_CODE)
        if rule.number is not None:
            value = rule.number.scaled(value)
        if unit is None and self._units is not None:
            unit = self._own_unit(trail)
        reading = value if isinstance(value, Reject) else read_value(rule.name, value, self._unit(rule, unit), "")
        if isinstance(reading, Reject):
            return Reject(reading.reason, trail_path(trail), reading.got, reading.wanted)
        reading.time_us, reading.claimed_us, flag = at
        reading.index = self._index
        if flag is not None:
            reading.flags = [*(reading.flags or ()), flag]
        return reading

    def _read_text(self, text: str, rule: MetricNameRule, unit: str | None) -> tuple[Any, str | None]:
        """Return the value of a text field (None: it says that there is none) and its unit."""
        word = text.strip().lower()
        if word in self._shape.no_values or (rule.guess and is_blank(word)):
            return None, None
        if word.lstrip("+-") in NOT_FINITE:
            return Reject(Reason.BAD_NUMBER, got=show_value(text), wanted="a finite number"), None
        if rule.number is not None and rule.number.reads_text:
            return rule.number.take(text), unit
        if rule.numeric_text or rule.number is not None:
            value, own_unit = read_scalar(text.strip())
            if not isinstance(value, str):
                return value, unit or own_unit
        elif rule.guess:
            found = guess_number(text, rule.name)
            if found is not None:
                return (found, unit) if isinstance(found, Reject) else (found[0], unit or found[1])
        if rule.text:
            self._shape.remember(text)
        else:
            self._leave_out(rule, chosen=False)
        return (text if rule.text else None), unit

    def _unit(self, rule: MetricNameRule, given: str | None) -> str | None:
        """Return the payload's own unit, else the rule's, else the one elsewhere in the message."""
        found = given or rule.unit
        if rule.unit_template is not None and found is None:
            found = rule.unit_template.fill(self._scope)
        if found is None or len(found) > MAX_UNIT_CHARACTERS:
            return None
        return (self._shape.unit_names.get(found, found) or None) if self._shape.unit_names else found

    def _own_time(self, trail: Trail) -> At | Reject:
        """Return the value's time in the tree next to the readings, else the item's."""
        if self._times is None:
            return self._at
        keys = self._keys(trail)
        node = _at_keys(self._times, keys)
        claimed = node.get(self._shape.times_leaf) if type(node) is dict else None
        if is_time_absent(claimed):
            return self._at
        times_at = "" if self._shape.times is None else self._shape.times.text
        where = ".".join(map(str, keys))
        return self._clock.read(claimed, self._shape.times_format, lambda: f"{times_at}.{where}")

    def _own_unit(self, trail: Trail) -> str | None:
        """Return the value's unit in the tree of units."""
        node, leaf = _at_keys(self._units, self._keys(trail)), self._shape.units_leaf
        if leaf is not None:
            node = node.get(leaf) if type(node) is dict else None
        return node if type(node) is str and node else None

    def _keys(self, trail: Trail) -> list[str | int]:
        """Return where a value is below the place where the walk began."""
        keys: list[str | int] = []
        while trail is not self._base and not isinstance(trail, str):
            trail, key = trail
            keys.append(key)
        return keys[::-1]


def _at_keys(node: Any, keys: Iterable[str | int]) -> Any:
    for key in keys:
        node = node.get(key) if type(node) is dict else None
    return node


def add_flag(readings: list[Reading], flag: str) -> None:
    """Flag readings."""
    for reading in readings:
        reading.flags = [*(reading.flags or ()), flag]


def number_duplicate_names(readings: list[Reading]) -> None:
    """Give readings of one name different indexes, so that both are kept; the later ones are flagged."""
    if len(readings) == len({reading.metric for reading in readings}):
        return
    if len(readings) == len({(reading.metric, reading.index, reading.message_id) for reading in readings}):
        return
    seen: dict[tuple[str, int, str | None], int] = {}
    for reading in readings:
        key = (reading.metric, reading.index, reading.message_id)
        count = seen.get(key, 0)
        seen[key] = count + 1
        if count:
            reading.index += count * TWICE_STEP
            reading.flags = [*(reading.flags or ()), METRIC_TWICE]

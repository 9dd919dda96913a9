"""Compiled rules of one metric: the checks of a reading by itself, and against earlier ones.

Against earlier ones are the step from the reading before, and a value that never changes. Only readings in time order are
compared. A reading that is not newer than the newest one seen (late, repeated, from a batch that was sent twice) is
neither compared nor remembered, so that a copy of a message changes no decision.
"""

import math
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from gateway.decoders.values import BEYOND_DOUBLE
from gateway.profiles.check_memory import MetricTrack
from gateway.profiles.model import Action, Failure, MetricRules, Profile
from gateway.profiles.units import canonical_spelling, conversion, same_dimension
from gateway.reading_path import show_quantity, show_reading
from gateway.safe_text import show_text
from ingest.contract.reading import Reading
from ingest.contract.reasons import Reason

__all__ = ["LookbackResult", "MetricRule", "RuleViolation", "look_back"]

CONVERTED: Final = "unit_converted"
"""Flag of a reading whose value is not the one that was sent."""
_FAST_PATH: Final = frozenset(
    {"type", "unit", "spellings", "min", "max", "required",
     "max_step", "max_step_per_second", "stuck_count", "stuck_seconds", "on", "accept"}
)  # fmt: skip
"""Fields of a rule that the fast path respects, or that are judged on both paths (steps, stuck values, `accept`).

A rule that sets a field outside of this list takes the slow path, so a new field is safe before the fast path knows it.
"""
_WANTED: Final = {
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "text": "a text",
}
FRESH_US: Final = 3600 * 1_000_000
"""After an hour without a reading in order, the device's clock was set back: its readings start again now."""
_ROUNDING: Final = 1e-12
"""Relative to the values: 1.1 - 0.9 is a little more than 0.2 in binary."""


class RuleViolation(NamedTuple):
    """Reason why a reading fails, and the reaction."""

    reason: Reason
    action: Action
    got: str
    wanted: str


class MetricRule:
    """Rule, checked once per reading: as little as possible happens if it passes."""

    __slots__ = (
        "_actions", "_any", "_convert", "_enum", "_kind", "_spellings", "_target",
        "converts", "high", "is_required", "is_simple", "is_temporal", "low", "rules", "unit",
    )  # fmt: skip

    def __init__(self, profile: Profile, rules: MetricRules) -> None:
        self.rules = rules
        self._actions: dict[str, Action] = {name: profile.action(rules, name) for name in Failure.__args__}  # type: ignore[attr-defined]
        self._kind, self._any = rules.kind, rules.kind == "any"
        # No limit means the largest double: infinity and NaN are outside of it.
        self.low = -sys.float_info.max if rules.min is None else rules.min
        self.high = sys.float_info.max if rules.max is None else rules.max
        self._enum = frozenset(rules.values or ())
        self.unit, self._target = rules.unit, rules.convert_to
        # A number that is compared with two others: most are, and the caller does it without a call.
        self.converts, self.is_required = self._target is not None, rules.required
        self.is_simple = self._kind in ("number", "any") and _set_fields(rules) <= _FAST_PATH
        self._spellings = {spelled: canonical_spelling(unit) for spelled, unit in rules.spellings.items()}
        self._convert: dict[str, Callable[[float], float]] = {}
        self.is_temporal = any(
            limit is not None
            for limit in (rules.max_step, rules.max_step_per_second, rules.stuck_count, rules.stuck_seconds)
        )

    def fault(self, failure: Failure, got: str, wanted: str) -> RuleViolation:
        """Return a fault with the policy that applies to it."""
        return RuleViolation(Reason(failure), self._actions[failure], got, wanted)

    def inspect(self, reading: Reading) -> RuleViolation | None:
        """Return the first fault of type, unit and range; else None, and the reading's unit and value are those to store."""
        if not self._any and not self._has_type(reading):
            return self.fault("wrong_type", show_reading(reading), self.wanted)
        if self._enum and reading.text not in self._enum:
            return self.fault("out_of_range", show_reading(reading), self.wanted)
        value = reading.value
        if value is not None and not math.isfinite(value):
            # Never stored, whatever the policy: numbers in the table are finite.
            return RuleViolation(
                Reason.BAD_NUMBER, self._refusing("out_of_range"), show_reading(reading), "a finite number"
            )
        before = reading.value, reading.unit or self.unit
        if self._target is not None or self.unit is not None:
            fault = self._settle_unit(reading)
            if fault is not None:
                return fault
        if value is None or self.low <= reading.value <= self.high:  # type: ignore[operator]
            return None
        got = show_reading(reading)
        if reading.value != before[0]:
            got = f"{show_quantity(*before)} = {got}"
        return self.fault("out_of_range", got, self.wanted)

    @property
    def has_range(self) -> bool:
        """Return whether both ends of the range are given."""
        return self.rules.min is not None and self.rules.max is not None

    def unit_of(self, given: str | None) -> str | None:
        """Return the unit of a value whose payload names `given` or none, in the profile's spelling."""
        return self.unit if given is None else self._spelled(given)

    @property
    def wanted(self) -> str:
        """Return the allowed values, in a few words."""
        if self._kind == "enum":
            return show_text("one of " + ", ".join(self.rules.values or ()))
        unit = f" {self._target or self.unit}" if self._target or self.unit else ""
        low, high = self.rules.min, self.rules.max
        if low is not None and high is not None:
            limits = f" from {low:g} to {high:g}{unit}"
        elif low is not None or high is not None:
            limits = f" of at least {low:g}{unit}" if low is not None else f" of at most {high:g}{unit}"
        else:
            limits = f" in{unit}" if unit else ""
        return _WANTED.get(self._kind, "a value") + limits

    def _refusing(self, failure: Failure) -> Action:
        action = self._actions[failure]
        return "salvage" if action == "flag" else action

    def _has_type(self, reading: Reading) -> bool:
        value, text, kind = reading.value, reading.text, self._kind
        if kind in ("number", "integer"):
            # Numbers past 2^53 have their digits in `text`; booleans have their word there.
            is_number = value is not None and (text is None or BEYOND_DOUBLE in (reading.flags or ()))
            return is_number and (kind == "number" or value.is_integer())  # type: ignore[union-attr]
        if kind == "boolean":
            return value is not None and text in ("true", "false")
        return value is None and text is not None

    def _settle_unit(self, reading: Reading) -> RuleViolation | None:
        """Fill in a unit that the payload left out; convert, or reject a unit other than the profile's."""
        if reading.unit is None:
            reading.unit = self.unit
        given = reading.unit
        if self._target is not None:
            return None if given == self._target or reading.value is None else self._convert_to(self._target, reading)
        if given == self.unit or self._spelled(given) == canonical_spelling(self.unit or ""):
            return None
        return self.fault("unit_mismatch", show_text(f"unit {given}"), f"unit {self.unit}")

    def _convert_to(self, target: str, reading: Reading) -> RuleViolation | None:
        value, given = reading.value, reading.unit
        convert = None if given is None else self._conversion(given, target)
        if convert is None or value is None:
            got = "no unit" if given is None else show_text(f"unit {given}")
            return self.fault(
                "unit_mismatch", got, show_text(f"a unit that converts to {target}: {_convertible(target)}")
            )
        converted = convert(value)
        if not math.isfinite(converted):
            got = f"{show_reading(reading)}, beyond the range of a double in {target}"
            return RuleViolation(Reason.BAD_NUMBER, self._refusing("out_of_range"), got, self.wanted)
        reading.unit = target
        if converted != value:
            reading.value, reading.text = converted, None
            reading.flags = [*(reading.flags or ()), CONVERTED]
        return None

    def _spelled(self, unit: str | None) -> str:
        unit = (unit or "").strip()
        return self._spellings.get(unit) or canonical_spelling(unit)

    def _conversion(self, given: str, target: str) -> Callable[[float], float] | None:
        """Return a conversion, looked up once per spelling; unknown spellings are not remembered."""
        try:
            return self._convert[given]
        except KeyError:
            found = conversion(self._spelled(given), target)
            if found is not None:
                self._convert[given] = found
            return found


def _set_fields(rules: MetricRules) -> set[str]:
    """Names of the fields whose value is not their default."""
    fields = type(rules).model_fields
    return {
        name for name, field in fields.items() if getattr(rules, name) != field.get_default(call_default_factory=True)
    }


def _convertible(target: str) -> str:
    return ", ".join(same_dimension(target))


class LookbackResult(NamedTuple):
    """Result of a look back: the track to keep (None: leave it unchanged), and the fault if there is one."""

    track: MetricTrack | None
    fault: RuleViolation | None = None


def look_back(rule: MetricRule, reading: Reading, track: MetricTrack | None, received_us: int) -> LookbackResult:
    """Compare a reading with its metric's track.

    A step is exceeded only if the reading is too far from the last one seen *and* from the last one that passed. So a spike
    does not reject the good reading after it, and a new level rejects one reading, not all that follow.
    """
    at_us = received_us if reading.time_us is None else reading.time_us
    value = reading.value
    told = value if reading.text is None else reading.text
    is_late = track is not None and at_us <= track.seen_us and (at_us < track.seen_us or reading.time_us is not None)
    if track is None or (is_late and received_us - track.received_us >= FRESH_US):
        return LookbackResult(MetricTrack(value, at_us, received_us, value, at_us, told, 1, at_us))
    if is_late:
        return LookbackResult(None)
    count, since_us = (track.equal_count + 1, track.equal_since_us) if told == track.equal else (1, at_us)
    fault = _step_fault(rule, reading, at_us, track) or _stuck_fault(rule, reading, at_us, count, since_us)
    good, good_us = (value, at_us) if fault is None else (track.good, track.good_us)
    return LookbackResult(MetricTrack(value, at_us, received_us, good, good_us, told, count, since_us), fault)


def _step_fault(rule: MetricRule, reading: Reading, at_us: int, track: MetricTrack) -> RuleViolation | None:
    step, per_second = rule.rules.max_step, rule.rules.max_step_per_second
    value = reading.value
    if value is None or (step is None and per_second is None):
        return None
    if _reaches(rule, value, at_us, track.seen, track.seen_us) or _reaches(
        rule, value, at_us, track.good, track.good_us
    ):
        return None
    before = track.seen if track.good is None else track.good
    unit = "" if reading.unit is None else f" {reading.unit}"
    limits = [f"{step:g}{unit}"] if step is not None else []
    limits += [f"{per_second:g}{unit} per second"] if per_second is not None else []
    return rule.fault(
        "step_exceeded",
        f"{show_reading(reading)} after {before:g}{unit}",
        f"a step of at most {' and '.join(limits)}",
    )


def _reaches(rule: MetricRule, value: float, at_us: int, before: float | None, before_us: int) -> bool:
    """Return whether the value is within the limits of that one."""
    if before is None:
        return True
    moved = abs(value - before) - _ROUNDING * (abs(value) + abs(before))
    step, per_second = rule.rules.max_step, rule.rules.max_step_per_second
    if step is not None and moved > step:
        return False
    elapsed_us = at_us - before_us
    return per_second is None or elapsed_us <= 0 or moved * 1e6 <= per_second * elapsed_us


def _stuck_fault(rule: MetricRule, reading: Reading, at_us: int, count: int, since_us: int) -> RuleViolation | None:
    most, seconds = rule.rules.stuck_count, rule.rules.stuck_seconds
    if most is not None and count >= most:
        wanted = f"a change within {most} readings"
    elif seconds is not None and at_us - since_us >= seconds * 1e6:
        wanted = f"a change within {seconds:g} s"
    else:
        return None
    since = datetime.fromtimestamp(since_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return rule.fault("stuck", f"{show_reading(reading)} {count} times since {since}", wanted)

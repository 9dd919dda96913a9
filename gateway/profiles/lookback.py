"""Checks against earlier readings: the step from the reading before, and a value that never changes.

Only readings in time order are compared. A reading that is not newer than the newest one seen (late, repeated, from a
batch that was sent twice) is neither compared nor remembered, so that a copy of a message changes no decision.
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

from gateway.profiles.rule import MetricRule, RuleViolation
from gateway.profiles.track import MetricTrack
from gateway.reading_path import show_reading
from ingest.contract.reading import Reading

__all__ = ["LookbackResult", "look_back"]

FRESH_US: Final = 3600 * 1_000_000
"""After an hour without a reading in order, the device's clock was set back: its readings start again now."""
_ROUNDING: Final = 1e-12
"""Relative to the values: 1.1 - 0.9 is a little more than 0.2 in binary."""


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

"""Signs that numbers are samples whose times follow from a first time and distances from it.

`{"base": …, "dt": [0, 10, 20], "temp": […]}`, `{"t0": …, "interval_s": 10, "values": […]}`. A name may show it, or the
shape: numbers that only rise or fall and begin or end at 0, or that are evenly spaced, next to a recent time.
"""

import itertools
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

__all__ = [
    "counts_from_before",
    "is_evenly_spaced",
    "is_ladder",
    "is_weak_offset",
    "may_be_series",
    "may_say_step",
    "names_axis",
    "names_base_time",
    "names_end_time",
    "names_log",
    "names_number",
    "names_sampling",
    "names_series",
    "offset_unit_of",
    "sampling_step_us",
]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TIME: Final = r"(?:time(?:stamp)?|ts|at|epoch|date)"
_BASES: Final = re.compile(
    rf"(?:base|start|begin|first|origin|ref(?:erence)?|anchor|initial|from|since)(?:_?{_TIME})?"
    rf"|(?:t|ts|time(?:stamp)?|epoch|sample)_?(?:0|zero|start|base|begin|first)|first_?(?:sample|value|reading)(?:_?{_TIME})?|bt",
    re.IGNORECASE,
)
_ENDS: Final = re.compile(
    rf"(?:end|stop|until|finish|last)(?:_?{_TIME})?|(?:t|ts|time(?:stamp)?|epoch|sample)_?(?:end|stop|last)",
    re.IGNORECASE,
)
_UNIT: Final = r"(?:_?(ns|us|micros|ms|msec|millis|milliseconds|s|sec|secs|seconds|min|minutes))"
_UNIT_NAMED: Final = _UNIT.replace("(ns", "(?P<unit>ns")
_OFFSETS: Final = re.compile(
    rf"(?:(?:time|t|ts)_?)?(?:offs?|offsets?|deltas?|rel(?:ative)?(?:_?time)?|elapsed|age|lag|d|dt|ticks?)s?{_UNIT}?"
    rf"|(?:(?:ms|s|secs?|seconds|mins?|minutes|h|hours|days)_?)?ago(?:{_UNIT})?|(?:t|tm|ts|time)s?{_UNIT}?|(ms|millis|msec|sec|secs|seconds|us|s)",
    re.IGNORECASE,
)
_STEPS: Final = re.compile(
    rf"(?P<sure>sampl(?:e|es|ing)_?|time_?|t_?)?"
    rf"(?:(?P<by>interval|period|step|resolution|increment|spacing|cadence|every|dt|delta_?t)s?{_UNIT_NAMED}?"
    rf"|(?P<rate>rate|freq(?:uency)?|fs|odr|sps)(?:_?(?P<hz>hz))?)",
    re.IGNORECASE,
)
_SAMPLING: Final = frozenset(
    {"step", "resolution", "increment", "spacing", "dt", "deltat", "delta_t", "fs", "odr", "sps"}
)
_LONGEST: Final = 1e12
_LARGEST: Final = 1e300
"""JSON may contain integers beyond every double."""
_UNITS_US: Final = {
    "ns": 1e-3, "us": 1.0, "micros": 1.0, "ms": 1e3, "msec": 1e3, "millis": 1e3, "milliseconds": 1e3,
    "s": 1e6, "sec": 1e6, "secs": 1e6, "seconds": 1e6, "min": 6e7, "minutes": 6e7,
}  # fmt: skip
_DISTANCES: Final = re.compile(rf"(?:(?:time|t|ts)_?)?(?:delta|dt)s?{_UNIT}?", re.IGNORECASE)
_BACKWARDS: Final = re.compile(r".*(?:age|ago|lag|tick)", re.IGNORECASE)
"""Offsets that count back, or in the device's own unit."""
_SERIES: Final = _set(
    "values value vals samples sample data series readings measurements history log logs buffer points records trace "
    "waveform wave signal stream batch window v y"
)
_LOGS: Final = _set("samples sample log logs history records trace waveform stream batch buffer series")
_WORDS: Final = re.compile(r"[a-z]+")
_AXES: Final = _set(
    "id ids ch channel channels addr address node nodes sensor port slot index idx i n no nr num number unit_id device meter "
    "phase depth depths height heights distance dist angle angles freq freqs frequency frequencies hz bin bins position pos x y "
    "z lat lon level levels wavelength nm register registers order harmonic harmonics row col column layer floor zone threshold "
    "percent pct speed power rpm temp temperature temperatures hum humidity pressure voltage volt volts current amp amps "
    "energy kwh wh pv load rain flow weight lux light noise battery soc rssi co2 state status gyro accel acc mag vector xyz rgb"
)
_THINGS: Final = _set(
    "id ids serial serials sn imei imsi iccid phone mac uid uids uuid ean barcode number numbers counter counters pulse pulses "
    "count counts total totals"
)
_MOST: Final = 60


@lru_cache(maxsize=4096)
def names_base_time(name: str) -> bool:
    """Return whether a name is of the time from which others count."""
    return len(name) <= _MOST and _BASES.fullmatch(name) is not None


@lru_cache(maxsize=4096)
def names_end_time(name: str) -> bool:
    """Return whether a name is of the time at which others end."""
    return len(name) <= _MOST and _ENDS.fullmatch(name) is not None


@lru_cache(maxsize=4096)
def offset_unit_of(name: str) -> float | None:
    """Return µs in the unit of a name of offsets, 0 if it does not say the unit; None for another name."""
    found = _OFFSETS.fullmatch(name) if len(name) <= _MOST else None
    if found is None:
        return None
    unit = next((group for group in found.groups() if group), "").lower()
    if _BACKWARDS.match(name) or name in ("s", "us"):
        return 0.0
    return _UNITS_US.get(unit, 0.0)


def counts_from_before(name: str, values: Sequence[Any]) -> bool:
    """Return whether each number may be the distance from the sample before it: a `dt` or `delta` that both rises and falls."""
    return len(values) > 1 and _names_distance(name) and not is_ladder(values)


@lru_cache(maxsize=4096)
def _names_distance(name: str) -> bool:
    return len(name) <= _MOST and _DISTANCES.fullmatch(name) is not None


def sampling_step_us(name: str, value: object) -> float | None:
    """Return the distance of samples in µs by a name and number, 0 if they do not say the unit; None for others."""
    found = _STEPS.fullmatch(name) if len(name) <= _MOST else None
    if found is None or type(value) not in (int, float) or not 0 < value < _LONGEST:  # type: ignore[operator]
        return None
    if found["rate"]:
        return 1e6 / value if found["hz"] else 0.0  # type: ignore[operator]
    return _UNITS_US.get((found["unit"] or "").lower(), 0.0) * value  # type: ignore[operator]


def names_sampling(name: str) -> bool:
    """Return whether such a name can only be of samples: an interval may also be that of messages."""
    found = _STEPS.fullmatch(name)
    if found is None:
        return False
    word = (found["by"] or found["rate"]).lower()
    return found["sure"] is not None or word in _SAMPLING


@lru_cache(maxsize=4096)
def may_be_series(name: str) -> bool:
    """Return whether a name says something about the times of a series."""
    return len(name) <= _MOST and any(sign.fullmatch(name) for sign in (_BASES, _OFFSETS, _STEPS))


@lru_cache(maxsize=4096)
def may_say_step(name: str) -> bool:
    """Return whether such a name says it without a first time: a rate or a frequency may also be a value."""
    found = _STEPS.fullmatch(name) if len(name) <= _MOST else None
    return found is not None and (found["rate"] is None or names_sampling(name))


def names_series(name: str) -> bool:
    """Return whether a name says only that values follow, not which."""
    return name.lower() in _SERIES


def names_log(name: str) -> bool:
    """Return whether a name is of stored samples."""
    return name.lower() in _LOGS


@lru_cache(maxsize=4096)
def names_axis(name: str) -> bool:
    """Return whether a name is of numbers that order things in space or sequence, not in time."""
    return not _AXES.isdisjoint(_WORDS.findall(name[:_MOST].lower()))


@lru_cache(maxsize=4096)
def names_number(name: str) -> bool:
    """Return whether a name is of numbers that may be as large as a time: serial numbers, counters."""
    return not _THINGS.isdisjoint(_WORDS.findall(name[:_MOST].lower()))


def is_weak_offset(name: str) -> bool:
    """Return whether such a name is just as often that of a value, like `t`."""
    return name.lower() in ("t", "s", "d", "us", "tm", "age", "delta", "deltas", "lag")


def is_ladder(values: Sequence[Any]) -> bool:
    """Return whether numbers only rise or only fall."""
    if len(values) < 2 or not all(type(one) in (int, float) for one in values):
        return False
    rises = [before < after for before, after in itertools.pairwise(values)]
    falls = [before > after for before, after in itertools.pairwise(values)]
    return all(rises) or all(falls)


def is_evenly_spaced(values: Sequence[Any]) -> bool:
    """Return whether at least three numbers of a ladder are evenly spaced."""
    if any(abs(one) > _LARGEST for one in values):
        return False
    gaps = [after - before for before, after in itertools.pairwise(values)]
    return len(gaps) > 1 and max(gaps) - min(gaps) <= abs(gaps[0]) / 1e6

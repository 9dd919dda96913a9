"""Times of mapped values: which of several times counts, how it is written, and clocks that were never set."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from gateway.decoders.mapping.paths import ValuePath, join_template_path, parse_path
from gateway.decoders.mapping.settings import TimeSource
from gateway.safe_text import show_value
from gateway.time_formats import CompiledTimeFormat, compile_time_format, read_any_time
from gateway.time_rules import YEAR_2000_S, Instant, check_plausible_time, read_time_as, rollover_hint
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = [
    "AUTO",
    "CLOCK_UNSET",
    "EPOCH_US",
    "RECEIVED",
    "At",
    "TimeContext",
    "TimeFormat",
    "compile_time_source",
    "find_time_format",
    "is_time_absent",
]

CLOCK_UNSET: Final = "clock_unset"
At = tuple[int | None, int | None, str | None]
"""Event time in epoch µs (None: receive time), the claimed time if it differs, flag."""
RECEIVED: Final[At] = (None, None, None)
_MICROSECONDS: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
_MAX_OFFSET_US: Final = 10**16
"""Largest offset in any unit; the resulting time is judged like any other."""
_DECIMAL = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,18})?", re.ASCII)
_UTC: Final = ZoneInfo("UTC")


def compile_time_source(source: str | TimeSource) -> tuple[ValuePath, "TimeFormat"]:
    """Return the place of a time, and how it is written there."""
    text = source if isinstance(source, str) else source.path
    path = join_template_path(text) if "{" in text else parse_path(text, around=True)
    return path, AUTO if isinstance(source, str) else find_time_format(source.format, source.zone)


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """Form of a time: a name of `times`, or a format; `zone` replaces the route's."""

    name: str
    named: CompiledTimeFormat | None = None
    zone: ZoneInfo | None = None

    def read(self, value: object, zone: ZoneInfo | None) -> Instant | Reject:
        """Return the instant, or why there is none, without its path."""
        zone = self.zone or zone
        if self.named is not None:
            return self.named.read(value, "", zone)
        return read_any_time(value, "", zone) if self.name == "auto" else read_time_as(value, self.name, "", zone)


def find_time_format(text: str, zone: str | None = None) -> TimeFormat:
    """Return the form that the settings name."""
    named = compile_time_format(text) if "%" in text or text == "rfc1123" else None
    return TimeFormat(text, named, None if zone is None else ZoneInfo(zone))


AUTO: Final = TimeFormat("auto")
EPOCH_US: Final = TimeFormat("us")


def is_time_absent(claimed: object) -> bool:
    """Return whether a time is absent: null, or an empty text."""
    return claimed is None or (type(claimed) is str and not claimed.strip())


class TimeContext(msgspec.Struct, frozen=True, gc=False):
    """Limits by which the times of one message are judged."""

    zone: ZoneInfo | None
    received_us: int
    max_future_seconds: int
    unset_clock: bool = False

    def read(self, value: object, how: TimeFormat, path: Callable[[], str]) -> At | Reject:
        """Return the time, or why it cannot be used; only then is `path` called."""
        read = how.read(value, self.zone)
        if self.unset_clock and not (isinstance(read, Instant) and read.us >= YEAR_2000_S * 1_000_000):
            claimed = _before_2000(value, how, read)
            if claimed is not None:
                return None, claimed, CLOCK_UNSET
        if isinstance(read, Reject):
            hint = ""
            if read.reason is Reason.TS_TOO_OLD and type(value) in (int, float) and value > 0:  # type: ignore[operator]
                hint = rollover_hint(round(value * 1_000_000), self.received_us)  # type: ignore[operator]
            return replace(read, path=path(), wanted=f"{read.wanted}{hint}" if hint else read.wanted)
        refused = check_plausible_time(read.us, self.received_us, self.max_future_seconds, "")
        return (read.us, None, read.flag) if refused is None else replace(refused, path=path())

    def add(self, at: At, offset: object, unit: str, path: Callable[[], str], times: int = 1) -> At | Reject:
        """Return a time plus an offset, `times` over; without both of them there is no usable time."""
        us, claimed_us, flag = at
        if us is None:
            if claimed_us is not None:
                return at
            wanted = "a time to which the offset is added"
            return Reject(Reason.MISSING_FIELD, path(), show_value(offset), wanted)
        exact = _number(offset)
        if exact is None or abs(exact) > _MAX_OFFSET_US:
            reason = Reason.MISSING_FIELD if offset is None else Reason.BAD_TIMESTAMP
            return Reject(reason, path(), show_value(offset), f"an offset in {unit}, as a number")
        moved = us + round(exact * times * _MICROSECONDS[unit])
        refused = check_plausible_time(moved, self.received_us, self.max_future_seconds, "")
        return (moved, None, flag) if refused is None else replace(refused, path=path())


def _number(value: object) -> Fraction | None:
    """Return a number, or the number in a text, exactly."""
    if type(value) is str and len(value) <= 40 and _DECIMAL.fullmatch(value.strip()):
        return Fraction(value.strip())
    if type(value) is float:
        return Fraction(repr(value))
    return Fraction(value) if type(value) is int else None


def _before_2000(value: object, how: TimeFormat, read: Instant | Reject) -> int | None:
    """Return the claim of a clock that counts from 1970 (or an older battery's year) because it was never set."""
    if isinstance(read, Reject):
        if read.reason is Reason.TS_TOO_OLD and isinstance(value, int | float):
            return round(value * 1_000_000) if 0 <= value < YEAR_2000_S else None
        if read.reason is not Reason.AMBIGUOUS_TIME or not isinstance(value, str):
            return None
        # Local time without a zone: UTC is close enough for this check.
        read = (AUTO if how.named is None else how).read(value, _UTC)
    if isinstance(read, Instant) and read.us < YEAR_2000_S * 1_000_000:
        return read.us
    return None

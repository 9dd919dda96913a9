"""Time rules: a device's time as UTC epoch microseconds, or why it cannot be used.

A time is never invented: an ambiguous one is rejected, one that is far off is rejected, and a missing one is None.
"""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from gateway.clock_behind import rolled_over_weeks
from gateway.json_text import BadNumber
from gateway.safe_text import show_text, show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.errors import FatalError
from ingest.contract.reasons import Reason

__all__ = [
    "AMBIGUOUS_LOCAL",
    "YEAR_2000_S",
    "Instant",
    "check_plausible_time",
    "local_instant",
    "native_time",
    "read_time",
    "read_time_as",
    "refuse_unset_clock",
    "rollover_hint",
]

AMBIGUOUS_LOCAL: Final = "ambiguous_local_time"
NONEXISTENT_LOCAL: Final = "nonexistent_local_time"
YEAR_2000_S: Final = 946_684_800
YEAR_2100_S: Final = 4_102_444_800
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - arithmetic on the UTC time line, without a zone object per reading
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_USUAL: Final = ("T::Z", "T::.")
"""Every third character of the usual text from the tenth on."""
_UNITS: Final = (("s", 1_000_000, 1), ("ms", 1_000, 1), ("us", 1, 1), ("ns", 1, 1_000))
"""Unit, microseconds per unit as a fraction."""
_NAMED_UNITS: Final = (*_UNITS, ("min", 60_000_000, 1))
"""Units that a format may name; minutes are never guessed from the magnitude."""
_LAST_US: Final = YEAR_2100_S * 1_000_000
_TEXT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?\s?(?:([Zz])|([+-])(\d\d)(?::?(\d\d))?)?",
    re.ASCII,
)
_NUMBER = re.compile(r"\d{1,19}(?:\.\d{1,18})?", re.ASCII)
_WANTED_TEXT: Final = "RFC 3339 such as 2026-11-28T12:00:00Z"


class Instant(msgspec.Struct, frozen=True, gc=False):
    """A claimed time in UTC epoch microseconds; `flag` names an oddity."""

    us: int
    flag: str | None = None


def refuse_unset_clock(now: Callable[[], float] = time.time) -> None:
    """Refuse to receive with a clock that was never set: rows would get a wrong day, and the stream takes no time before 2000.

    Raises:
        FatalError: the clock is not set; the text says what to do. The broker keeps unacknowledged messages.
    """
    if now() < YEAR_2000_S:
        message = (
            "The clock of this machine is before 2000: messages would be stored under a wrong day, and the times of devices "
            "could not be checked. Set the clock (`chronyc makestep` or `timedatectl set-time`), then start again. The "
            "broker keeps the messages that were not acknowledged."
        )
        raise FatalError(message)


def check_plausible_time(time_us: int, received_us: int, max_future_seconds: int, path: str) -> Reject | None:
    """Reject times before 2000 and times further ahead than clocks may be."""
    if time_us < YEAR_2000_S * 1_000_000:
        wanted = f"a time since 2000-01-01T00:00:00Z{rollover_hint(time_us, received_us)}"
        return Reject(Reason.TS_TOO_OLD, path, _show_us(time_us), wanted)
    if time_us > received_us + max_future_seconds * 1_000_000:
        wanted = f"at most {max_future_seconds} s after {_show_us(received_us)}"
        return Reject(Reason.TS_TOO_FAR_FUTURE, path, _show_us(time_us), wanted)
    return None


def rollover_hint(time_us: int, received_us: int) -> str:
    """Return the part of a rejection about a time that is behind by a rollover, else an empty text."""
    weeks = rolled_over_weeks(time_us, received_us)
    return f"; this one is {weeks} weeks behind, like a GPS receiver whose week number rolled over" if weeks else ""


def _show_us(time_us: int) -> str:
    try:
        return (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_us)).isoformat()
    except OverflowError:
        return show_text(f"{time_us} µs since 1970")


def native_time(value: int | str, path: str) -> Instant | Reject:
    """Read the native format's `ts`: an integer in epoch milliseconds, or RFC 3339 text with an offset."""
    if isinstance(value, str):
        return _parse_text(value, path, zone=None)
    return Instant(value * 1000)


def read_time(value: object, path: str, zone: ZoneInfo | None) -> Instant | Reject:
    """Read a time of unknown form: the epoch unit by its magnitude, or text, local if it has no offset."""
    if isinstance(value, BadNumber):
        return Reject(Reason.BAD_NUMBER, path, value.text, "a finite number")
    if isinstance(value, str):
        text = value.strip()
        if text[4:5] == "-" or not _NUMBER.fullmatch(text):
            return _parse_text(text, path, zone)
        return _epoch(float(text) if "." in text else int(text), path)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _epoch(value, path)
    return Reject(Reason.WRONG_TYPE, path, show_value(value), f"a number or {_WANTED_TEXT}")


def read_time_as(value: object, how: str, path: str, zone: ZoneInfo | None) -> Instant | Reject:
    """Read a time of known form: epoch number in `s`, `ms`, `us`, `ns` or `min`; `local` or `rfc3339` text.

    Local text with an offset keeps it. The epoch is not judged here: a clock that was never set reads 1970.
    """
    if isinstance(value, BadNumber):
        return Reject(Reason.BAD_NUMBER, path, value.text, "a finite number")
    if how in ("local", "rfc3339"):
        if not isinstance(value, str):
            return Reject(Reason.WRONG_TYPE, path, show_value(value), _WANTED_TEXT)
        return _parse_text(value.strip(), path, zone if how == "local" else None)
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value) if "." in value else int(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return Reject(Reason.WRONG_TYPE, path, show_value(value), f"epoch {how}, as a number")
    times, parts = next((times, parts) for unit, times, parts in _NAMED_UNITS if unit == how)
    if abs(value) * times // parts > _LAST_US:
        return Reject(Reason.TS_TOO_FAR_FUTURE, path, show_value(value), f"epoch {how} before 2100")
    return Instant(value * times // parts if isinstance(value, int) else round(value * times / parts))


def _epoch(value: float, path: str) -> Instant | Reject:
    """Read an epoch number, its unit by magnitude: the window 2000 to 2100 in each of s, ms, us and ns; they do not overlap."""
    if value < YEAR_2000_S:
        # Before 2000 in every unit.
        return Reject(Reason.TS_TOO_OLD, path, show_value(value), "a time since 2000-01-01T00:00:00Z")
    for _unit, times, parts in _UNITS:
        per_second = 1_000_000 // times * parts
        if YEAR_2000_S * per_second <= value < YEAR_2100_S * per_second:
            return Instant(value * times // parts if isinstance(value, int) else round(value * times / parts))
    if value >= YEAR_2100_S * 1_000_000_000:
        return Reject(Reason.TS_TOO_FAR_FUTURE, path, show_value(value), "a time before 2100")
    wanted = "epoch seconds, milliseconds, microseconds or nanoseconds between 2000 and 2100"
    return Reject(Reason.AMBIGUOUS_TIME, path, show_value(value), wanted)


def _parse_text(text: str, path: str, zone: ZoneInfo | None) -> Instant | Reject:
    """Read RFC 3339 and its common spellings; digits past the microsecond are cut, not rounded.

    Local time without an offset needs `zone`. A time in the repeated hour counts as its first pass, with a flag. A time
    in the skipped hour is read with the offset before the change, with a flag.
    """
    usual_us = _utc_us(text)
    return _parse_spelled(text, path, zone) if usual_us is None else Instant(usual_us)


def _parse_spelled(text: str, path: str, zone: ZoneInfo | None) -> Instant | Reject:
    found = _TEXT.fullmatch(text)
    if found is None:
        return Reject(Reason.BAD_TIMESTAMP, path, show_value(text), _WANTED_TEXT)
    year, month, day, hour, minute, second, fraction = found.group(1, 2, 3, 4, 5, 6, 7)
    micros = int(fraction[:6].ljust(6, "0")) if fraction else 0
    try:
        local = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), micros)  # noqa: DTZ001 - its zone is found out below
    except ValueError as error:
        return Reject(Reason.BAD_TIMESTAMP, path, show_value(text), show_text(f"a time that exists ({error})"))
    since_epoch_us = (local - _EPOCH) // _MICROSECOND
    if found[8]:
        return Instant(since_epoch_us)
    if found[9]:
        return _with_offset(since_epoch_us, found, path)
    if zone is None:
        wanted = "an offset (Z, +02:00), or `zone` in the route or in [gateway]"
        return Reject(Reason.AMBIGUOUS_TIME, path, show_value(text), wanted)
    return _local_time(local, since_epoch_us, zone)


def _utc_us(text: str) -> int | None:
    """Read the usual text, `2026-11-28T12:00:00Z` with or without a fraction, in C; None for any other text."""
    if text[10:20:3] not in _USUAL or text[4:8:3] != "--" or text[11:13] == "24" or text[-1] != "Z":
        return None
    fraction = text[20:-1]
    if len(text) != 20 and not (text[19] == "." and fraction.isdigit() and fraction.isascii()):
        return None
    try:
        seconds = (datetime.fromisoformat(text[:19]) - _EPOCH) // _SECOND
    except ValueError:
        return None
    return seconds * 1_000_000 + (int(fraction[:6].ljust(6, "0")) if fraction else 0)


def local_instant(local: datetime, offset_minutes: int | None, zone: ZoneInfo | None) -> Instant | None:
    """Return the instant of a date and time, by its offset or else in a zone; None without both."""
    since_epoch_us = (local - _EPOCH) // _MICROSECOND
    if offset_minutes is not None:
        return Instant(since_epoch_us - offset_minutes * 60_000_000)
    return None if zone is None else _local_time(local, since_epoch_us, zone)


def _with_offset(since_epoch_us: int, found: re.Match[str], path: str) -> Instant | Reject:
    hours, minutes = int(found[10]), int(found[11] or 0)
    if hours > 23 or minutes > 59:
        return Reject(Reason.BAD_TIMESTAMP, path, show_value(found[0]), "an offset of at most 23:59")
    offset_us = (hours * 60 + minutes) * 60_000_000
    return Instant(since_epoch_us - offset_us if found[9] == "+" else since_epoch_us + offset_us)


def _local_time(local: datetime, since_epoch_us: int, zone: ZoneInfo) -> Instant:
    first, second = _offsets_us(zone, local.replace(second=0, microsecond=0))
    flag = None
    if first != second:
        flag = AMBIGUOUS_LOCAL if first > second else NONEXISTENT_LOCAL
    return Instant(since_epoch_us - first, flag)


@lru_cache(maxsize=4096)
def _offsets_us(zone: ZoneInfo, minute: datetime) -> tuple[int, int]:
    """Return the zone's offset in a local minute, in its first and its second pass: they differ around a change.

    Changes fall on whole minutes since 1972; devices send times of the same few minutes.
    """
    # Ask the zone for offsets, instead of an aware datetime's arithmetic: that fails at the ends of the calendar.
    first = zone.utcoffset(minute.replace(tzinfo=zone, fold=0)) or timedelta()
    second = zone.utcoffset(minute.replace(tzinfo=zone, fold=1)) or timedelta()
    return first // _MICROSECOND, second // _MICROSECOND

"""Times far before their arrival: flagged, never corrected, and never rejected after 2000, as a logger may flush old data.

A GPS receiver with old firmware counts weeks in ten bits: after 1,024 weeks, 19.6 years, it is that much behind.
"""

from collections.abc import Iterable
from typing import Final

from ingest.contract.reading import Reading

__all__ = ["earliest_usual_us", "flag_clocks_behind", "rolled_over_weeks"]

CLOCK_BEHIND: Final = "clock_behind"
GPS_WEEK_ROLLOVER: Final = "gps_week_rollover"
_DAY_US: Final = 86_400 * 1_000_000
_WEEKS: Final = (1024, 2048)
_ROLLED_SECONDS: Final = 1023 * 7 * 86_400
_ROLLED_US: Final = _ROLLED_SECONDS * 1_000_000
"""A time younger than this is not behind by a rollover."""
_NO_FLAGS: Final[list[str]] = []


def rolled_over_weeks(time_us: int, received_us: int) -> int | None:
    """Return 1024 or 2048 if a time plus that many weeks is within a day of arrival; else None."""
    behind_us = received_us - time_us
    for weeks in _WEEKS:
        if abs(behind_us - weeks * 7 * _DAY_US) <= _DAY_US:
            return weeks
    return None


def earliest_usual_us(received_us: int, behind_seconds: int) -> int:
    """Return the earliest time that is not flagged; `behind_seconds` is the bound, 0 for none."""
    return received_us - (behind_seconds * 1_000_000 if 0 < behind_seconds < _ROLLED_SECONDS else _ROLLED_US)


def flag_clocks_behind(readings: Iterable[Reading], received_us: int, sent_us: int | None, behind_seconds: int) -> None:
    """Flag readings whose own time is far behind.

    Args:
        readings: of one message; those at the receive time are left alone.
        received_us: when it arrived.
        sent_us: the earliest time at which it may have been sent; None if unknown (the broker replayed it).
        behind_seconds: the bound, 0 for none.
    """
    usual_us = earliest_usual_us(received_us, behind_seconds)
    # Readings of one message mostly share their time.
    judged_us, flags = usual_us, _NO_FLAGS
    for reading in readings:
        time_us = reading.time_us
        if time_us is None or time_us >= usual_us:
            continue
        if time_us != judged_us:
            judged_us, flags = time_us, []
            if behind_seconds and sent_us is not None and time_us < sent_us - behind_seconds * 1_000_000:
                flags.append(CLOCK_BEHIND)
            if rolled_over_weeks(time_us, received_us) is not None:
                flags.append(GPS_WEEK_ROLLOVER)
        if flags:
            reading.flags = [*(reading.flags or ()), *flags]

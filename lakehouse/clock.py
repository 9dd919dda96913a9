"""The time for deletions: the wall clock, bounded by stored data and by this process's own count of seconds.

A clock that runs ahead (a resumed machine, an empty battery, a wrong time server) must not delete data. Landed rows show which
days have really come.
"""

import time
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from typing import Final

__all__ = ["DeletionClock", "newest_plausible", "today_of"]

GAP_DAYS: Final = 7
"""Days behind a gap of more than this are believed once as many days hold data behind it."""
AHEAD: Final = timedelta(days=1)
"""Largest lead of the wall clock over the newest row that is believed when days are dropped."""
ROW_AHEAD: Final = timedelta(hours=1)
"""Largest lead that is believed when files and commits of some hours' age are deleted."""


def newest_plausible(days: Iterable[date]) -> date | None:
    """The newest day that certainly came, of the days that hold data; None of none.

    A clock that jumped ahead lands rows under its own date: one or a few days behind a long gap.
    """
    found = sorted(set(days))
    believed = 0
    for place in range(1, len(found)):
        if (found[place] - found[place - 1]).days > GAP_DAYS and len(found) - place < GAP_DAYS:
            break
        believed = place
    return found[believed] if found else None


def today_of(wall: date, newest: date | None) -> date:
    """The day that retention counts from."""
    return wall if newest is None else min(wall, newest + AHEAD)


class DeletionClock:
    """Clock that is never later than the wall clock, its start plus the seconds since, and the landed data.

    Args:
        wall: epoch seconds.
        elapsed: monotonic seconds.
    """

    def __init__(self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._elapsed = wall, elapsed
        self._started = wall() - elapsed()

    def wall(self) -> float:
        """The machine's clock, in epoch seconds."""
        return self._wall()

    def now(self, newest: datetime | None = None) -> float:
        """Epoch seconds to delete by; `newest` is when the newest plausible row landed: ages of hours count from it."""
        counted = min(self._wall(), self._started + self._elapsed())
        return counted if newest is None else min(counted, (newest + ROW_AHEAD).timestamp())

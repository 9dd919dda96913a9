"""The windows of each rollup table, which of them a minute or a range touches, and the watermark that makes them final.

Up to the watermark, event time is taken as complete. It only ever moves forward; no clock of a device moves it. Times are µs of
the epoch.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lakehouse.derived_tables import ROLLING_15M, ROLLUPS_1H, ROLLUPS_1M, ROLLUPS_5M
from lakehouse.tables import Table

__all__ = ["DAY_US", "HOUR_US", "MINUTE_US", "SHAPES", "ChangedRange", "Watermark", "WindowShape", "floor_to_step"]

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US


def floor_to_step(at: int, step: int) -> int:
    """The multiple of a step at or before a moment."""
    return at - at % step


@dataclass(frozen=True, slots=True)
class ChangedRange:
    """Readings that were changed: those of one device (None: of any) from one moment to another, both inclusive.

    `hashed`: the device is named by its SHA-256, as one that was erased.
    """

    device: str | None
    low: int
    high: int
    hashed: bool = False


@dataclass(frozen=True, slots=True)
class WindowShape:
    """One table's windows: `length` long, one beginning every `step`; rows of one `slice` lie together in one file.

    A pass rewrites the files of the slices that it touches, so a slice is as long as its rows stay few; it divides the day.
    """

    table: Table
    length: int
    step: int
    slice: int

    def slices(self, minutes: Iterable[int]) -> set[int]:
        """The slices of the windows that hold any of these minutes."""
        found = set()
        for minute in minutes:
            found.add(floor_to_step(floor_to_step(minute, self.step), self.slice))
            found.add(floor_to_step(floor_to_step(minute, self.step) - self.length + self.step, self.slice))
        return found

    def slices_between(self, low: int, high: int) -> range:
        """The slices of the windows that overlap a range (both ends inclusive)."""
        return range(floor_to_step(low - self.length + 1, self.slice), floor_to_step(high, self.slice) + 1, self.slice)

    def closed(self, starts: Iterable[int], watermark: int) -> set[int]:
        """Return those of these windows that end at or before the watermark, by their starts."""
        return {start for start in starts if start + self.length <= watermark}


SHAPES: Final = (
    WindowShape(ROLLUPS_1M, MINUTE_US, MINUTE_US, HOUR_US),
    WindowShape(ROLLUPS_5M, 5 * MINUTE_US, 5 * MINUTE_US, 6 * HOUR_US),
    WindowShape(ROLLUPS_1H, HOUR_US, HOUR_US, DAY_US),
    WindowShape(ROLLING_15M, 15 * MINUTE_US, MINUTE_US, HOUR_US),
)
"""Shapes in the order in which a pass writes them."""


@dataclass(slots=True)
class Watermark:
    """Decides from what was seen, and from how long nothing was, up to where windows are final.

    Args:
        delay: how far it stays behind the newest reading.
        idle: after so long without a reading it follows the wall clock, `delay + idle` behind it, so that a quiet fleet
            still gets its last windows final.
        heard_at: when readings last came; at first, when the process began.
    """

    delay: int
    idle: int
    heard_at: int

    def heard(self, now: int) -> None:
        """Note that readings came."""
        self.heard_at = max(self.heard_at, now)

    def after(self, current: int | None, newest: int | None, now: int) -> int | None:
        """The watermark that follows `current`; None while no reading was ever seen.

        Args:
            current: the one so far.
            newest: the largest of min(event time, receive time + allowed skew) of the new readings, where there are any.
            now: the wall clock.
        """
        reached = [] if current is None else [current]
        if newest is not None:
            # A gateway whose clock is ahead must not make windows final that have not begun.
            reached.append(min(newest - self.delay, now))
        if reached and now - self.heard_at >= self.idle:
            reached.append(now - self.delay - self.idle)
        return max(reached, default=None)

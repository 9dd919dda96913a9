"""Windows of the rollup tables: their shapes, those that a change touches, and the watermark that makes them final.

Readings up to the watermark count as complete. The watermark only moves forward, and no clock of a device alone moves it. Times
are epoch µs.
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
    """Return the largest multiple of `step` at or before `at`."""
    return at - at % step


@dataclass(frozen=True, slots=True)
class ChangedRange:
    """Range of changed readings: of one device (None: of all) from `low` to `high`, both inclusive.

    `hashed`: `device` is the SHA-256 of an erased device.
    """

    device: str | None
    low: int
    high: int
    hashed: bool = False


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Windows of one table: each has this `length`, and one begins every `step`. Rows of one `slice` of time are in one file.

    A pass rewrites the files of the slices that it touches, so a slice is short enough to have few rows. Slices divide the day.
    """

    table: Table
    length: int
    step: int
    slice: int

    def slices(self, minutes: Iterable[int]) -> set[int]:
        """Return the starts of the slices with windows that contain any of these minutes."""
        found = set()
        for minute in minutes:
            found.add(floor_to_step(floor_to_step(minute, self.step), self.slice))
            found.add(floor_to_step(floor_to_step(minute, self.step) - self.length + self.step, self.slice))
        return found

    def slices_between(self, low: int, high: int) -> range:
        """Return the starts of the slices with windows that overlap a range (both ends inclusive)."""
        return range(floor_to_step(low - self.length + 1, self.slice), floor_to_step(high, self.slice) + 1, self.slice)

    def closed(self, starts: Iterable[int], watermark: int) -> set[int]:
        """Return the starts of those windows that end at or before the watermark."""
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
    """Rule for the watermark, from the newest readings and the time without readings.

    Args:
        delay: distance to the newest reading.
        idle: time without readings after which the watermark follows the wall clock, `delay + idle` behind it. So the last
            windows of a silent fleet become final too.
        heard_at: when readings last came; at first, the start of the process.
    """

    delay: int
    idle: int
    heard_at: int

    def heard(self, now: int) -> None:
        """Note that readings came."""
        self.heard_at = max(self.heard_at, now)

    def after(self, current: int | None, newest: int | None, now: int) -> int | None:
        """Return the watermark after `current`; None before the first reading.

        Args:
            current: the watermark so far.
            newest: largest min(event time, receive time + allowed skew) of the new readings; None without new readings.
            now: wall clock.
        """
        reached = [] if current is None else [current]
        if newest is not None:
            # A gateway whose clock is ahead must not make future windows final.
            reached.append(min(newest - self.delay, now))
        if reached and now - self.heard_at >= self.idle:
            reached.append(now - self.delay - self.idle)
        return max(reached, default=None)

"""Forecast of the time until a disk is full, at the pace of the last hours.

The pace is the median growth per hour, over all hours of the window. Within an hour the effects of maintenance even out: old
files are deleted once an hour, and joins write existing data a second time. The median ignores single events, such as a copy of a
large file or a large deletion, since they affect a minority of the hours.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

__all__ = ["DiskForecast", "days_to_full"]

SAMPLE_SECONDS: Final = 600.0
SPAN_SECONDS: Final = 3600.0
WINDOW_SECONDS: Final = 6 * 3600.0
LEAST_SECONDS: Final = 3 * 3600.0
"""Least known time: then a single event affects less than half of the spans, and caches and backlog of a start are over."""

Used = Sequence[tuple[float, float]]
"""(seconds, used bytes) in order of time."""


class DiskForecast:
    """Some hours of each disk's use."""

    def __init__(self) -> None:
        self._used: dict[str, deque[tuple[float, float]]] = {}

    def days(self, mount: str, *, used: float, free: float, now: float) -> float | None:
        """Add a sample at `now` (seconds of a monotonic clock) and return the days until the disk is full."""
        known = self._used.setdefault(mount, deque())
        if not known or now - known[-1][0] >= SAMPLE_SECONDS:
            known.append((now, used))
        while now - known[0][0] > WINDOW_SECONDS:
            known.popleft()
        return days_to_full(known, free)


def days_to_full(used: Iterable[tuple[float, float]], free: float) -> float | None:
    """Return the days until the disk is full; infinite if its use does not grow, None while too little is known.

    Args:
        used: (seconds, bytes) in order of time.
        free: bytes.
    """
    known = list(used)
    if not known or known[-1][0] - known[0][0] < LEAST_SECONDS:
        return None
    per_second = median(_paces(known))
    return free / per_second / 86_400 if per_second > 0 else float("inf")


def _paces(known: Used) -> list[float]:
    """Return the bytes per second from each sample to the first one at least an hour later."""
    paces, later = [], 0
    for at, bytes_ in known:
        while later < len(known) and known[later][0] - at < SPAN_SECONDS:
            later += 1
        if later == len(known):
            break
        paces.append((known[later][1] - bytes_) / (known[later][0] - at))
    return paces

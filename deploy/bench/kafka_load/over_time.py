"""Latencies of one run over time: percentiles of the records that were due in each interval, in bounded memory.

The first interval begins with the run. Intervals are a tenth of a second until there are too many of them: then each two become
one, again and again, so that a run of a second and one of a day both have some dozens.
"""

import json
from typing import Any, Final

from hdrh.histogram import HdrHistogram

__all__ = ["OverTime"]

MOST_SLOTS: Final = 60
FIRST_SECONDS: Final = 0.1
_LARGEST_US: Final = 3_600_000_000
_DIGITS: Final = 3
_ENOUGH: Final = 100
"""Timed records that an interval needs for its p99; with fewer it is only the highest of them."""
_FEWEST_SLOTS: Final = 10


class OverTime:
    """Latencies by the time at which their records were due; `began_us` is when the run began (microseconds since 1970)."""

    def __init__(self, began_us: int) -> None:
        self._began_us = began_us
        self._width_us = round(FIRST_SECONDS * 1_000_000)
        self._slots: dict[int, HdrHistogram] = {}
        self._timed: dict[int, int] = {}

    @property
    def timed(self) -> int:
        """Number of timed records."""
        return sum(self._timed.values())

    def total(self) -> HdrHistogram:
        """Return the histogram of the whole run."""
        found = HdrHistogram(1, _LARGEST_US, _DIGITS)
        for one in self._slots.values():
            found.add(one)
        return found

    def record(self, due_us: int, microseconds: int, records: int = 1) -> None:
        """Count the latency of one record that was timed; it speaks for so many records."""
        slot = self._slot_of(due_us)
        while slot >= MOST_SLOTS:
            self._widen()
            slot = self._slot_of(due_us)
        self._histogram(slot).record_value(min(max(microseconds, 1), _LARGEST_US), records)
        self._timed[slot] = self._timed.get(slot, 0) + 1

    def encode(self) -> str:
        """Encode as text for another process; `add` reads it."""
        slots = {slot: [self._timed[slot], one.encode().decode()] for slot, one in self._slots.items()}
        return json.dumps({"width_us": self._width_us, "slots": slots})

    def add(self, encoded: str) -> None:
        """Count those of another process of the same run too."""
        other = json.loads(encoded)
        while self._width_us < other["width_us"]:
            self._widen()
        ratio = self._width_us // other["width_us"]
        for slot, (timed, histogram) in other["slots"].items():
            own = int(slot) // ratio
            self._histogram(own).add(HdrHistogram.decode(histogram.encode()))
            self._timed[own] = self._timed.get(own, 0) + timed

    def columns(self) -> dict[str, list[Any]]:
        """`seconds` since the beginning (of each interval's end), `p50`, `p99`, `max` in milliseconds; empty for too short a run.

        An interval without records is left out. A percentile that would only be the highest of too few is None.
        """
        while self._sparse():
            self._widen()
        if len(self._slots) < 2:
            return {}
        slots = sorted(self._slots)
        values = [(self._timed[slot], self._slots[slot]) for slot in slots]
        return {
            "seconds": [round((slot + 1) * self._width_us / 1_000_000, 1) for slot in slots],
            "p50": [_ms(one.get_value_at_percentile(50.0)) if timed > 1 else None for timed, one in values],
            "p99": [_ms(one.get_value_at_percentile(99.0)) if timed >= _ENOUGH else None for timed, one in values],
            "max": [_ms(one.get_max_value()) for _, one in values],
        }

    def _slot_of(self, due_us: int) -> int:
        return max(0, due_us - self._began_us) // self._width_us

    def _histogram(self, slot: int) -> HdrHistogram:
        if slot not in self._slots:
            self._slots[slot] = HdrHistogram(1, _LARGEST_US, _DIGITS)
        return self._slots[slot]

    def _sparse(self) -> bool:
        """Wider intervals would have enough records for their percentiles, and there would still be some."""
        few = sum(timed < _ENOUGH for timed in self._timed.values())
        return len(self._slots) > _FEWEST_SLOTS and few > len(self._slots) / 4

    def _widen(self) -> None:
        self._width_us *= 2
        slots, timed, self._slots, self._timed = self._slots, self._timed, {}, {}
        for slot, histogram in slots.items():
            self._histogram(slot // 2).add(histogram)
            self._timed[slot // 2] = self._timed.get(slot // 2, 0) + timed[slot]


def _ms(microseconds: float) -> float:
    return round(microseconds / 1000, 3)

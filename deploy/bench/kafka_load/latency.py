"""Latencies of one run, in total and over its time, in bounded memory and to three digits (HdrHistogram)."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from hdrh.histogram import HdrHistogram

__all__ = ["Latencies", "OverTime", "merge_latencies"]

MOST_SLOTS: Final = 60
FIRST_SECONDS: Final = 0.1
_LARGEST_US: Final = 3_600_000_000
_DIGITS: Final = 3
_ENOUGH: Final = 100
"""Least number of timed records of an interval for its p99: of fewer, the p99 would be the highest value."""
_FEWEST_SLOTS: Final = 10
_FIGURES: Final = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}
_SAMPLES: Final = 10


class OverTime:
    """Latencies by the time at which their records were due, as percentiles of each interval, in bounded memory.

    The first interval begins with the run, at `began_us` (epoch µs). Intervals begin with a tenth of a second. If there are too
    many, each two become one. So a short run and a run of a day both have at most 60.
    """

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
        """Count the latency of one timed record; it represents `records` records."""
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
        """Add the latencies of another process of the same run."""
        other = json.loads(encoded)
        while self._width_us < other["width_us"]:
            self._widen()
        ratio = self._width_us // other["width_us"]
        for slot, (timed, histogram) in other["slots"].items():
            own = int(slot) // ratio
            self._histogram(own).add(HdrHistogram.decode(histogram.encode()))
            self._timed[own] = self._timed.get(own, 0) + timed

    def columns(self) -> dict[str, list[Any]]:
        """Return lists with a value per interval: `seconds` (from the run's start to the interval's end), `p50`, `p99`, `max`.

        Latencies are in milliseconds. Intervals without records are left out. A percentile of too few timed records is None. A
        run with less than two intervals gives an empty dict.
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
        """Return whether many intervals have too few records for a p99, and are numerous enough to be joined."""
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


class Latencies:
    """Latencies in microseconds, from 1 µs to an hour; others count as the nearest limit.

    `began_us` is the start of the run (epoch µs).
    """

    def __init__(self, began_us: int = 0) -> None:
        self._began_us = began_us
        self._over_time = OverTime(began_us)

    def record(self, microseconds: int, records: int = 1, *, due_us: int | None = None) -> None:
        """Count the latency of one timed record that was due at `due_us`; it represents `records` records."""
        self._over_time.record(self._began_us if due_us is None else due_us, microseconds, records)

    def record_all(self, due: Sequence[int], now_us: int) -> None:
        """Count messages that were due at these times and arrived together now. About ten are timed, each for its share."""
        step = max(1, len(due) // _SAMPLES)
        for at in range(0, len(due), step):
            self.record(now_us - due[at], min(step, len(due) - at), due_us=due[at])

    def encode(self) -> str:
        """Encode as text for another process; `merge_latencies` reads it."""
        return self._over_time.encode()

    def add(self, encoded: str) -> None:
        """Add the latencies of another process."""
        self._over_time.add(encoded)

    @property
    def timed(self) -> int:
        """Number of timed records."""
        return self._over_time.timed

    @property
    def count(self) -> int:
        """Number of records that the timed ones represent."""
        return int(self._over_time.total().get_total_count())

    def figures(self, prefix: str) -> dict[str, float]:
        """Return `{prefix}_p50_ms` to `{prefix}_max_ms` in milliseconds; empty without a record.

        A percentile of too few timed records is left out.
        """
        if not self.timed:
            return {}
        histogram = self._over_time.total()
        found = {
            f"{prefix}_{name}_ms": round(histogram.get_value_at_percentile(at) / 1000, 3)
            for name, at in _FIGURES.items()
            if self._reaches(at)
        }
        return found | {f"{prefix}_max_ms": round(histogram.get_max_value() / 1000, 3)}

    def curve(self) -> list[tuple[float, float]]:
        """Return (percentile, milliseconds) pairs for a plot, denser towards 100."""
        if not self.timed:
            return []
        histogram = self._over_time.total()
        at = [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 100.0]
        return [
            (percent, round(histogram.get_value_at_percentile(percent) / 1000, 3))
            for percent in at
            if self._reaches(percent)
        ]

    def over_time(self) -> dict[str, list[Any]]:
        """Return the columns for a plot over the run's time; see `OverTime.columns`."""
        return self._over_time.columns()

    def _reaches(self, percent: float) -> bool:
        """Return whether there are enough timed records for this percentile; 100, the highest value, needs only one."""
        return percent == 100.0 or self.timed * (100.0 - percent) >= 99.999


def merge_latencies(encoded: Iterable[str]) -> Latencies:
    """Return the latencies of several processes as one."""
    found = Latencies()
    for text in encoded:
        found.add(text)
    return found

"""Latencies of one run: HdrHistogram keeps them in constant memory, to three digits."""

from collections.abc import Iterable
from typing import Final

from hdrh.histogram import HdrHistogram

__all__ = ["Latencies", "merged"]

_LARGEST_US: Final = 3_600_000_000
_DIGITS: Final = 3
_FIGURES: Final = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}


class Latencies:
    """Latencies in microseconds; one below 1 counts as 1, one above an hour as an hour."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _LARGEST_US, _DIGITS)
        self._timed = 0

    def record(self, microseconds: int, records: int = 1) -> None:
        """Count the latency of one record that was timed; it speaks for so many records."""
        self._histogram.record_value(min(max(microseconds, 1), _LARGEST_US), records)
        self._timed += 1

    def encode(self) -> str:
        """As text for another process; `merged` reads it."""
        return f"{self._timed} {self._histogram.encode().decode()}"

    def add(self, encoded: str) -> None:
        """Count those of another process too."""
        timed, _, histogram = encoded.partition(" ")
        self._timed += int(timed)
        self._histogram.add(HdrHistogram.decode(histogram.encode()))

    @property
    def timed(self) -> int:
        """How many records were timed."""
        return self._timed

    @property
    def count(self) -> int:
        """For how many records they speak."""
        return int(self._histogram.get_total_count())

    def figures(self, prefix: str) -> dict[str, float]:
        """`{prefix}_p50_ms` … `{prefix}_max_ms` in milliseconds; empty where none was recorded.

        A percentile that would only be the highest of too few records is left out.
        """
        if not self.count:
            return {}
        found = {
            f"{prefix}_{name}_ms": round(self._histogram.get_value_at_percentile(at) / 1000, 3)
            for name, at in _FIGURES.items()
            if self._reaches(at)
        }
        return found | {f"{prefix}_max_ms": round(self._histogram.get_max_value() / 1000, 3)}

    def curve(self) -> list[tuple[float, float]]:
        """Percentile and milliseconds, for a plot: denser towards 100."""
        if not self.count:
            return []
        at = [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 100.0]
        return [
            (percent, round(self._histogram.get_value_at_percentile(percent) / 1000, 3))
            for percent in at
            if self._reaches(percent)
        ]

    def _reaches(self, percent: float) -> bool:
        """At least one record that was timed lies above this percentile; 100 is the highest of however many."""
        return percent == 100.0 or self._timed * (100.0 - percent) >= 99.999


def merged(encoded: Iterable[str]) -> Latencies:
    """The latencies of several processes as one."""
    found = Latencies()
    for text in encoded:
        found.add(text)
    return found

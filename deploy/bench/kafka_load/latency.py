"""Latencies of one run: HdrHistogram keeps them in constant memory, to three digits; and their course over its time."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from deploy.bench.kafka_load.over_time import OverTime

__all__ = ["Latencies", "merge_latencies"]

_FIGURES: Final = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}
_SAMPLES: Final = 10


class Latencies:
    """Latencies in microseconds; one below 1 counts as 1, one above an hour as an hour.

    `began_us` is when the run began (microseconds since 1970).
    """

    def __init__(self, began_us: int = 0) -> None:
        self._began_us = began_us
        self._over_time = OverTime(began_us)

    def record(self, microseconds: int, records: int = 1, *, due_us: int | None = None) -> None:
        """Count the latency of one record that was timed, and was due at `due_us`; it speaks for so many records."""
        self._over_time.record(self._began_us if due_us is None else due_us, microseconds, records)

    def record_all(self, due: Sequence[int], now_us: int) -> None:
        """Count messages that were due at these times and came together now: about ten are timed, each for its share."""
        step = max(1, len(due) // _SAMPLES)
        for at in range(0, len(due), step):
            self.record(now_us - due[at], min(step, len(due) - at), due_us=due[at])

    def encode(self) -> str:
        """Encode as text for another process; `merge_latencies` reads it."""
        return self._over_time.encode()

    def add(self, encoded: str) -> None:
        """Count those of another process too."""
        self._over_time.add(encoded)

    @property
    def timed(self) -> int:
        """Number of timed records."""
        return self._over_time.timed

    @property
    def count(self) -> int:
        """Number of records that the timed ones stand for."""
        return int(self._over_time.total().get_total_count())

    def figures(self, prefix: str) -> dict[str, float]:
        """`{prefix}_p50_ms` … `{prefix}_max_ms` in milliseconds; empty where none was recorded.

        A percentile that would only be the highest of too few records is left out.
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
        """Percentile and milliseconds, for a plot: denser towards 100."""
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
        """Columns for a plot over the run's time: `seconds`, `p50`, `p99`, `max`."""
        return self._over_time.columns()

    def _reaches(self, percent: float) -> bool:
        """Return whether a timed record is above this percentile; 100 is the highest of however many."""
        return percent == 100.0 or self.timed * (100.0 - percent) >= 99.999


def merge_latencies(encoded: Iterable[str]) -> Latencies:
    """The latencies of several processes as one."""
    found = Latencies()
    for text in encoded:
        found.add(text)
    return found

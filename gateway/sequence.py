"""What a device's own counter says about loss: gaps and late arrivals, in bounded memory."""

from collections import OrderedDict
from typing import Final

__all__ = ["SequenceTracker"]

_JUMP: Final = 2**31
"""A jump this far, up or down, is a counter that wrapped or was set anew, not a loss."""


class SequenceTracker:
    """Follows (device, boot) counters in receive order.

    A `gap` is a number skipped when a later one came; `reordered` is one that came after it had been counted as a gap.
    So `gap - reordered` is what is still missing. Repeats count as neither. The first number seen is the baseline.
    """

    def __init__(self, *, max_counters: int = 100_000, max_ranges: int = 32) -> None:
        self._max_counters, self._max_ranges = max_counters, max_ranges
        self._counters: OrderedDict[tuple[str, int], tuple[int, list[tuple[int, int]]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counters)

    def see(self, device: str, boot: int, seq: int) -> tuple[int, int]:
        """Count one number; returns (gap, reordered)."""
        key = device, boot
        known = self._counters.pop(key, None)
        if known is None:
            if len(self._counters) >= self._max_counters:
                self._counters.popitem(last=False)
            self._counters[key] = seq, []
            return 0, 0
        high, missing = known
        if abs(seq - high) >= _JUMP:
            self._counters[key] = seq, []
            return 0, 0
        if seq > high:
            if seq > high + 1:
                missing.append((high + 1, seq - 1))
                del missing[: -self._max_ranges]
            self._counters[key] = seq, missing
            return seq - high - 1, 0
        self._counters[key] = known
        return 0, _fill(missing, seq)


def _fill(missing: list[tuple[int, int]], seq: int) -> int:
    """Take a number out of the missing ranges; returns 1 where it was missing."""
    for place, (first, last) in enumerate(missing):
        if first <= seq <= last:
            missing[place : place + 1] = [part for part in ((first, seq - 1), (seq + 1, last)) if part[0] <= part[1]]
            return 1
    return 0

"""What a device's own counter says about loss: gaps and late arrivals, in bounded memory."""

from collections import OrderedDict
from typing import Final

__all__ = ["SequenceTracker"]

_JUMP: Final = 2**31
"""A jump this far, up or down, is a counter that wrapped or was set anew, not a loss."""

_Boots = OrderedDict[int, tuple[int, list[tuple[int, int]]]]
"""Per boot the highest number and the ranges that are missing; the boot seen last stands last."""


class SequenceTracker:
    """Follows (device, boot) counters in receive order.

    A `gap` is a number skipped when a later one came; `reordered` is one that came after it had been counted as a gap.
    So `gap - reordered` is what is still missing. Repeats count as neither. The first number seen is the baseline.
    """

    def __init__(self, *, max_counters: int = 100_000, max_boots: int = 4, max_ranges: int = 32) -> None:
        self._max_counters, self._max_boots, self._max_ranges = max_counters, max_boots, max_ranges
        self._devices: OrderedDict[str, _Boots] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def see(self, device: str, boot: int, seq: int) -> tuple[int, int]:
        """Count one number; returns (gap, reordered)."""
        boots = self._boots(device)
        known = boots.pop(boot, None)
        if known is None:
            self._make_room(boots)
            boots[boot] = seq, []
            return 0, 0
        high, missing = known
        if abs(seq - high) >= _JUMP:
            boots[boot] = seq, []
            return 0, 0
        if seq > high:
            if seq > high + 1:
                missing.append((high + 1, seq - 1))
                del missing[: -self._max_ranges]
            boots[boot] = seq, missing
            return seq - high - 1, 0
        boots[boot] = known
        late = _fill(missing, seq)
        del missing[: -self._max_ranges]
        return 0, late

    def _boots(self, device: str) -> _Boots:
        boots = self._devices.get(device)
        if boots is None:
            boots = self._devices[device] = OrderedDict()
        else:
            self._devices.move_to_end(device)
        return boots

    def _make_room(self, boots: _Boots) -> None:
        """A device pays for its many boots itself; only then does the device go that was silent for longest."""
        if len(boots) >= self._max_boots:
            boots.popitem(last=False)
        elif self._count < self._max_counters:
            self._count += 1
        else:
            self._count += 1 - len(self._devices.popitem(last=False)[1])


def _fill(missing: list[tuple[int, int]], seq: int) -> int:
    """Take a number out of the missing ranges; returns 1 where it was missing."""
    for place, (first, last) in enumerate(missing):
        if first <= seq <= last:
            missing[place : place + 1] = [part for part in ((first, seq - 1), (seq + 1, last)) if part[0] <= part[1]]
            return 1
    return 0

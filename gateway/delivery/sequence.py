"""Loss shown by a device's own counter: gaps and late arrivals, in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable
from typing import Final, NamedTuple

__all__ = ["DAY_SECONDS", "MAX_COUNTERS", "Numbers", "SequenceRestart", "SequenceTracker"]

_JUMP: Final = 2**31
"""A jump this far, up or down, is a counter that wrapped or was reset, not a loss."""

DAY_SECONDS: Final = 86_400.0
MAX_COUNTERS: Final = 100_000
"""Counters of one gateway; past it the device that was silent for longest is forgotten, and its next gap is not seen."""
RESTART_RUN: Final = 3
"""This many old numbers in a row mean that the counter began again."""
RESTART_DEPTH: Final = 1000
"""Least distance below the highest number; a device may resend messages in flight. From 0 or 1, any distance counts."""


class SequenceRestart(NamedTuple):
    """A device counts again from numbers that it used before, under the same boot: its messages look like copies."""

    device: str
    boot: int
    seq: int
    high: int


class _Counter:
    """Highest number of one boot, and the ranges that are missing below it."""

    __slots__ = ("again", "again_since", "high", "missing")

    def __init__(self, high: int) -> None:
        self.high = high
        self.missing: list[tuple[int, int]] = []
        # The newest of consecutive repeated numbers, and the first of them.
        self.again = self.again_since = -1


_Boots = OrderedDict[int, _Counter]
"""Counters by boot; the boot seen last is at the end."""

Numbers = list[tuple[int, int, list[tuple[int, int]]]]
"""(boot, highest number, ranges missing below it) of one device; the boot seen last is at the end."""


class SequenceTracker:
    """Tracker of (device, boot) counters in receive order.

    A `gap` is a number skipped when a later one came; `reordered` is one that came after it had been counted as a gap.
    So `gap - reordered` is the number of missing ones. Repeats count as neither. The first number seen is the baseline.
    """

    def __init__(self, *, max_counters: int = MAX_COUNTERS, max_boots: int = 4, max_ranges: int = 32) -> None:
        """Take the bounds, each at least 1: counters of all devices, of those one device's boots, ranges of a counter."""
        # If there is only one device, no other device's counters can make room.
        self._max_counters, self._max_boots = max_counters, min(max_boots, max_counters)
        self._max_ranges = max_ranges
        self._devices: OrderedDict[str, _Boots] = OrderedDict()
        self._latest: dict[str, tuple[int, _Counter]] = {}
        self._count = self._silent = 0
        self._day: dict[str, int] = {}
        self._day_began: float | None = None
        self._restarts: list[SequenceRestart] = []

    def __len__(self) -> int:
        return self._count

    @property
    def fill(self) -> float:
        """Share of the memory in use by devices that sent within a day: silent devices are forgotten first, without harm.

        At 1 each new counter replaces the device that was silent for longest.
        """
        return (self._count - self._silent) / self._max_counters

    def pass_time(self, now: float) -> None:
        """Note, once a day (`now` in monotonic seconds), which devices counted nothing since the look before: they are silent."""
        if self._day_began is not None and now < self._day_began + DAY_SECONDS:
            return
        day = {device: hash((boot, counter.high)) for device, (boot, counter) in self._latest.items()}
        self._silent = sum(len(self._devices[device]) for device, at in day.items() if self._day.get(device) == at)
        self._day, self._day_began = day, now

    def follow(
        self, sequences: Iterable[tuple[str, int, int]], copies: Container[tuple[str, int, int]] = ()
    ) -> list[tuple[str, int, int]]:
        """Count numbers as (device, boot, seq) in receive order; returns (device, gap, reordered) if there is one.

        `copies` are those that the broker sends again, or that share a message with others: not a sign of a restart.
        """
        found: list[tuple[str, int, int]] = []
        latest, recent = self._latest, self._devices.move_to_end
        for device, boot, seq in sequences:
            known = latest.get(device)
            # The usual one: the next number of the boot seen last.
            if known is not None and known[0] == boot and known[1].high + 1 == seq:
                known[1].high = seq
                recent(device)
                continue
            gap, reordered = self.see(device, boot, seq)
            if (device, boot, seq) not in copies:
                self._look_for_restart(device, boot, seq, is_late=reordered > 0)
            if gap or reordered:
                found.append((device, gap, reordered))
        return found

    def high(self, device: str, boot: int) -> int | None:
        """Return the highest number of a boot; None if it is no longer followed."""
        boots = self._devices.get(device)
        counter = None if boots is None else boots.get(boot)
        return None if counter is None else counter.high

    def reach(self, device: str, boot: int, seq: int) -> None:
        """Note that all numbers up to this one are counted already; missing ones below it stay missing."""
        boots = self._boots(device)
        counter = boots.pop(boot, None)
        if counter is None:
            self._make_room(boots)
            counter = _Counter(seq)
        counter.high = seq
        boots[boot] = counter
        self._latest[device] = boot, counter

    def numbers(self, group_of: Callable[[str], int], wanted: Container[int]) -> dict[int, dict[str, Numbers]]:
        """Return the known numbers of the devices of the wanted groups, for `load`."""
        found: dict[int, dict[str, Numbers]] = {}
        for device, boots in self._devices.items():
            group = group_of(device)
            if group in wanted:
                numbers = [(boot, counter.high, list(counter.missing)) for boot, counter in boots.items()]
                found.setdefault(group, {})[device] = numbers
        return found

    def load(self, known: dict[str, Numbers]) -> None:
        """Take the result of `numbers`, before the first message."""
        for device, numbers in known.items():
            for boot, high, missing in numbers:
                self.reach(device, boot, high)
                self._devices[device][boot].missing = list(missing)

    def forget(self, is_chosen: Callable[[str], bool]) -> list[str]:
        """Forget devices; returns which were known."""
        gone = [device for device in self._devices if is_chosen(device)]
        for device in gone:
            self._count -= len(self._devices.pop(device))
            self._latest.pop(device, None)
            self._day.pop(device, None)
        self._silent = min(self._silent, self._count)
        return gone

    def take_restarts(self) -> list[SequenceRestart]:
        """Return the restarts found since the last call, each once."""
        found, self._restarts = self._restarts, []
        return found

    def _look_for_restart(self, device: str, boot: int, seq: int, *, is_late: bool) -> None:
        counter = self._latest[device][1]
        if seq >= counter.high or is_late:
            counter.again = counter.again_since = -1
            return
        if counter.again < 0 or seq != counter.again + 1:
            counter.again_since = seq
        counter.again = seq
        is_deep = counter.again_since <= 1 or counter.high - counter.again_since > RESTART_DEPTH
        if seq - counter.again_since + 1 == RESTART_RUN and is_deep:
            self._restarts.append(SequenceRestart(device, boot, counter.again_since, counter.high))

    def see(self, device: str, boot: int, seq: int) -> tuple[int, int]:
        """Count one number; returns (gap, reordered)."""
        boots = self._boots(device)
        counter = boots.pop(boot, None)
        if counter is None:
            self._make_room(boots)
        if counter is None or abs(seq - counter.high) >= _JUMP:
            boots[boot] = counter = _Counter(seq)
            self._latest[device] = boot, counter
            return 0, 0
        boots[boot] = counter
        self._latest[device] = boot, counter
        gap = late = 0
        if seq > counter.high:
            gap = seq - counter.high - 1
            if gap:
                counter.missing.append((counter.high + 1, seq - 1))
            counter.high = seq
        else:
            late = _fill(counter.missing, seq)
        del counter.missing[: -self._max_ranges]
        return gap, late

    def _boots(self, device: str) -> _Boots:
        boots = self._devices.get(device)
        if boots is None:
            boots = self._devices[device] = OrderedDict()
        else:
            self._devices.move_to_end(device)
        return boots

    def _make_room(self, boots: _Boots) -> None:
        """Make room: a device first loses its own extra boots; only then is the device forgotten that was silent for longest."""
        if len(boots) >= self._max_boots:
            boots.popitem(last=False)
        elif self._count < self._max_counters:
            self._count += 1
        else:
            silent, gone = self._devices.popitem(last=False)
            self._latest.pop(silent, None)
            self._count += 1 - len(gone)
            self._silent = max(0, self._silent - len(gone))


def _fill(missing: list[tuple[int, int]], seq: int) -> int:
    """Remove a number from the missing ranges; returns 1 if it was missing."""
    for place, (first, last) in enumerate(missing):
        if first <= seq <= last:
            missing[place : place + 1] = [part for part in ((first, seq - 1), (seq + 1, last)) if part[0] <= part[1]]
            return 1
    return 0

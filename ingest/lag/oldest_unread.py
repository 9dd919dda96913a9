"""Append time of the oldest record that a group has not read: read rarely from Kafka, calculated in between."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

__all__ = ["UnreadTimes"]

READ_SECONDS: Final = 5.0
"""A record of one partition is read at most this often."""

Key = tuple[str, str, int]
"""Group, topic, partition."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Result of one read: the record at `position` is of `appended_at`; `end` was the next offset at `read_at`."""

    position: int
    appended_at: float
    end: int
    read_at: float


class UnreadTimes:
    """Append times in epoch seconds by Kafka's clock. Offsets between two known moments count as evenly spread."""

    def __init__(self) -> None:
        self._known: dict[Key, _Known] = {}
        self._tried_at: dict[Key, float] = {}

    def keep(self, keys: Collection[Key]) -> None:
        """Forget all others: their group or topic is gone."""
        self._known = {key: known for key, known in self._known.items() if key in keys}
        self._tried_at = {key: at for key, at in self._tried_at.items() if key in keys}

    def is_due(self, key: Key, position: int, now: float) -> bool:
        """Return whether to read the record at this position; True counts as a try."""
        known = self._known.get(key)
        if known is not None and known.position == position:
            return False
        # A clock that was set back must not stop the reading.
        if 0 <= now - self._tried_at.get(key, float("-inf")) < READ_SECONDS:
            return False
        self._tried_at[key] = now
        return True

    def learn(self, key: Key, position: int, appended_at: float, *, end: int, now: float) -> None:
        """Note that the record at this position, read now, was appended then; `end` is the partition's next offset."""
        self._known[key] = _Known(position, min(appended_at, now), max(end, position + 1), now)

    def age_seconds(self, key: Key, position: int, *, end: int, now: float) -> float | None:
        """Return the age of the record at `position`; None if nothing is known of this partition."""
        known = self._known.get(key)
        if known is None:
            return None
        return max(0.0, now - _appended_at(known, position, end, now))


def _appended_at(known: _Known, position: int, end: int, now: float) -> float:
    if position <= known.position or end <= known.position:
        return known.appended_at
    if position < known.end:
        begin, begin_at, until, until_at = known.position, known.appended_at, known.end, known.read_at
    else:
        begin, begin_at, until, until_at = known.end, known.read_at, max(end, position + 1), now
    return begin_at + (until_at - begin_at) * (position - begin) / (until - begin)

"""Lag of a group: in records, in seconds, and how long until retention deletes unread records.

The lag in seconds is the age of the oldest unread record. Its append time is read rarely from Kafka and calculated in between.
"""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ingest.lag.cluster_facts import ClusterFacts
from ingest.lag.cluster_state import GroupPartition, PartitionState
from ingest.lag.group_reader import GroupReader

__all__ = ["LagTracker", "UnreadTimes"]

LOOK_SECONDS: Final = 0.6
"""Time to read the oldest unread records of all partitions of a group. Records that come later are tried again."""

Where = tuple[str, int]
"""Topic and partition."""

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


class LagTracker:
    """Memory of the unread records that were read; the rest of a look is calculated."""

    def __init__(self) -> None:
        self._unread = UnreadTimes()

    def keep(self, groups: Collection[GroupPartition]) -> None:
        """Forget all partitions that are not among these."""
        self._unread.keep({(one.group, one.topic, one.partition) for one in groups})

    def group(
        self,
        name: str,
        reader: GroupReader,
        partitions: Sequence[PartitionState],
        committed: Mapping[Where, int],
        facts: ClusterFacts,
    ) -> list[GroupPartition]:
        """Return those of the given partitions that have both ends, as partitions of the group."""
        known = {(one.topic, one.partition): one for one in partitions if one.end is not None}
        positions = {where: _position(one, committed.get(where)) for where, one in known.items()}
        self._read(name, reader, positions, known, facts)
        return [self._one(name, one, committed.get(where), positions[where], facts) for where, one in known.items()]

    def _read(
        self,
        group: str,
        reader: GroupReader,
        positions: Mapping[Where, int],
        known: Mapping[Where, PartitionState],
        facts: ClusterFacts,
    ) -> None:
        now = facts.clock.now()
        behind = {where: at for where, at in positions.items() if at < (known[where].end or 0)}
        due = {where: at for where, at in behind.items() if self._unread.is_due((group, *where), at, now)}
        for where, appended_ms in reader.append_times(due, LOOK_SECONDS).items():
            end = known[where].end or 0
            self._unread.learn((group, *where), due[where], appended_ms / 1000, end=end, now=now)

    def _one(
        self, group: str, one: PartitionState, committed: int | None, position: int, facts: ClusterFacts
    ) -> GroupPartition:
        where, end = (one.topic, one.partition), one.end or 0
        lag = max(0, end - position)
        if lag == 0:
            return GroupPartition(group, *where, committed, 0, 0.0, math.inf)
        age = self._unread.age_seconds((group, *where), position, end=end, now=facts.clock.now())
        left, retention = None, facts.retention.get(one.topic)
        if age is not None and retention is not None:
            left = facts.loss.seconds_left(
                where, position=position, age_seconds=age, end=end, retention=retention, now=time.monotonic()
            )
        return GroupPartition(group, *where, committed, lag, age, left)


def _position(one: PartitionState, committed: int | None) -> int:
    """Return where the group continues; an offset out of range counts from the oldest record."""
    oldest, end = one.oldest or 0, one.end or 0
    return oldest if committed is None or not oldest <= committed <= end else committed

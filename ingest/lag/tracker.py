"""Lag of a group: in records, in seconds, and how long until retention deletes unread records."""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ingest.lag.cluster_facts import ClusterFacts
from ingest.lag.cluster_state import GroupPartition, PartitionState
from ingest.lag.group_reader import GroupReader
from ingest.lag.oldest_unread import UnreadTimes

__all__ = ["LagTracker"]

READ_SECONDS: Final = 0.6
"""Time to read the oldest unread records of all partitions of a group. Records that come later are tried again."""

Where = tuple[str, int]
"""Topic and partition."""


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
        for where, appended_ms in reader.append_times(due, READ_SECONDS).items():
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

"""Two ways through a topic: forth from a place, or back from one in ranges that grow until enough was found.

The records of several partitions are merged into one page, with the position where each partition continues.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Message

from ingest.read.bounded_reader import BoundedReader, BrowseBudget
from ingest.read.shown_record import MOST_BYTES, ShownRecord, show_record

__all__ = ["HeldBytes", "WalkRequest", "WalkResult", "merge_page", "read_backward", "read_forward"]

Stretches = Mapping[int, tuple[int, int]]
"""Partition -> oldest offset, and the offset before which the range ends."""

KEPT_BYTES: Final = 16 * 1024 * 1024
SHORT_BYTES: Final = 1024


@dataclass(slots=True)
class HeldBytes:
    """Number of bytes of held records. Past the limit, only the beginnings of further records are held."""

    bytes: int = 0

    def most_bytes(self, most: int) -> int:
        """Return how much of one more piece may be held."""
        return most if self.bytes < KEPT_BYTES else SHORT_BYTES

    def add(self, record: ShownRecord, sign: int = 1) -> None:
        """Count a record that is held, or with -1 one that no longer is."""
        pieces = [record.key, record.value, *(each for _, each in record.headers or ())]
        self.bytes += sign * sum(len(each.text or each.base64 or "") for each in pieces if each is not None)


@dataclass(slots=True)
class WalkResult:
    """Result of a walk: matching records by offset per partition, and how far each partition was read."""

    records: dict[int, list[ShownRecord]] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    back_to_ms: int | None = None
    forth_to_ms: int | None = None


def merge_page(found: WalkResult, limit: int, *, backwards: bool) -> tuple[list[ShownRecord], Mapping[int, int]]:
    """Return the newest records of a walk back, or the oldest of a walk forth, newest first, and where the next walk continues.

    Within a partition nothing is left out between the shown records and where it continues, whatever their times are.
    """
    lists = [reversed(each) if backwards else each for each in found.records.values()]
    ordered = list(heapq.merge(*lists, key=_back if backwards else _forth))
    shown, rest = ordered[:limit], ordered[limit:]
    goes_on = dict(found.reached) | _first_of(rest, 1 if backwards else 0)
    return sorted(shown, key=_back), goes_on


def _back(record: ShownRecord) -> tuple[int, int, int]:
    return -(record.at_ms or 0), -record.offset, record.partition


def _forth(record: ShownRecord) -> tuple[int, int, int]:
    return record.at_ms or 0, record.offset, record.partition


def _first_of(rest: Iterable[ShownRecord], step: int) -> dict[int, int]:
    """Return per partition where the first record without a place on the page will be read again."""
    first: dict[int, int] = {}
    for record in rest:
        first.setdefault(record.partition, record.offset + step)
    return first


@dataclass(frozen=True, slots=True)
class WalkRequest:
    """Parameters of a walk: reader, budget, wanted key and number of records."""

    reader: BoundedReader
    budget: BrowseBudget
    key: bytes | None
    limit: int
    kept: HeldBytes = field(default_factory=HeldBytes)

    def wants(self, message: Message) -> bool:
        """Return whether to show this record."""
        return self.key is None or _bytes(message.key()) == self.key

    def record(self, message: Message) -> ShownRecord:
        """Return the record, with as much of it as may be held."""
        found = show_record(message, self.kept.most_bytes(MOST_BYTES))
        self.kept.add(found)
        return found


def read_forward(walk: WalkRequest, stretches: Stretches) -> WalkResult:
    """Return the first records of each partition."""
    found = WalkResult(records={one: [] for one in stretches})

    def take(message: Message) -> bool:
        records = found.records[message.partition() or 0]
        found.forth_to_ms = max(found.forth_to_ms or 0, message.timestamp()[1])
        if walk.wants(message):
            records.append(walk.record(message))
        return len(records) < walk.limit

    found.reached = walk.reader.read(stretches, take)
    return found


def read_backward(walk: WalkRequest, stretches: Stretches) -> WalkResult:
    """Return the last records of each partition.

    Kafka reads only towards newer records. So a range before the end is read, then a longer one before that. The first is
    one record long, because only a record shows how large records are.
    """
    sides = {one: _Side(oldest, end) for one, (oldest, end) in stretches.items()}
    step = 1
    while walk.budget.spent is None:
        open_sides = {one: side for one, side in sides.items() if not side.is_done(walk.limit)}
        if not open_sides:
            break
        _stretch(walk, open_sides, step)
        step = _longer(walk, sides, step, len(open_sides))
    broken = [side.since_ms for side in sides.values() if not side.is_done(walk.limit) and side.since_ms is not None]
    return WalkResult(
        records={one: list(side.records) for one, side in sides.items()},
        reached={one: side.low for one, side in sides.items()},
        back_to_ms=max(broken, default=None),
    )


@dataclass(slots=True)
class _Side:
    """One partition, read from `low` on.

    Attributes:
        oldest: its first offset.
        low: everything from here on was read.
        records: the newest matching records there.
        since_ms: time of the oldest record that was read.
        offsets: how many were read.
    """

    oldest: int
    low: int
    records: deque[ShownRecord] = field(default_factory=deque)
    since_ms: int | None = None
    offsets: int = 0

    def is_done(self, limit: int) -> bool:
        return len(self.records) >= limit or self.low <= self.oldest


def _stretch(walk: WalkRequest, sides: Mapping[int, _Side], step: int) -> None:
    """Read the `step` offsets before the range of each of these sides. A side that the budget cut off counts as not read."""
    stretches = {one: (max(side.oldest, side.low - step), side.low) for one, side in sides.items()}
    came: dict[int, deque[ShownRecord]] = {one: deque() for one in sides}
    first: dict[int, int] = {}
    left_out: set[int] = set()

    def take(message: Message) -> bool:
        number = message.partition() or 0
        first.setdefault(number, message.timestamp()[1])
        if walk.wants(message):
            records = came[number]
            records.append(walk.record(message))
            if len(records) + len(sides[number].records) > walk.limit and len(records) > 1:
                walk.kept.add(records.popleft(), -1)
                left_out.add(number)
        return True

    reached = walk.reader.read(stretches, take)
    for one, (start, end) in stretches.items():
        if reached[one] < end:
            continue
        side = sides[one]
        side.records.extendleft(reversed(came[one]))
        side.offsets += end - start
        # The next walk reads records without a place again.
        side.low = side.records[0].offset if one in left_out else start
        side.since_ms = first.get(one, side.since_ms)


def _longer(walk: WalkRequest, sides: Mapping[int, _Side], step: int, open_sides: int) -> int:
    """Return the next step: twice the last, at least a page, and no longer than the rest of the budget reaches."""
    budget, offsets = walk.budget, sum(side.offsets for side in sides.values())
    if not offsets or not budget.looked:
        return step * 2
    record_bytes, density = budget.looked_bytes / budget.looked, budget.looked / offsets
    left = min(budget.records - budget.looked, (budget.bytes - budget.looked_bytes) / max(1.0, record_bytes))
    return max(1, min(max(step * 2, walk.limit), int(left / density / open_sides / 2)))


def _bytes(key: str | bytes | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key

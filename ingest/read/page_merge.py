"""Merge records of several partitions into one page, with the position where each partition continues."""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ingest.read.shown_record import ShownRecord

__all__ = ["HeldBytes", "WalkResult", "merge_page"]

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

"""Records of several partitions to one page of them, and where each partition goes on from it."""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ingest.peek_record import Record

__all__ = ["Found", "Kept", "merged"]

KEPT_BYTES: Final = 16 * 1024 * 1024
SHORT_BYTES: Final = 1024


@dataclass(slots=True)
class Kept:
    """How many bytes of records are held; past the limit only the beginnings of further ones are."""

    bytes: int = 0

    def most_bytes(self, most: int) -> int:
        """How much of one more piece may be held."""
        return most if self.bytes < KEPT_BYTES else SHORT_BYTES

    def add(self, record: Record, sign: int = 1) -> None:
        """This record is held, or with -1 no longer."""
        pieces = [record.key, record.value, *(each for _, each in record.headers or ())]
        self.bytes += sign * sum(len(each.text or each.base64 or "") for each in pieces if each is not None)


@dataclass(slots=True)
class Found:
    """What a walk found: matching records by offset per partition, and how far each partition was looked at."""

    records: dict[int, list[Record]] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    back_to_ms: int | None = None
    forth_to_ms: int | None = None


def merged(found: Found, limit: int, *, backwards: bool) -> tuple[list[Record], Mapping[int, int]]:
    """The newest records of a walk back, or the oldest of a walk forth: shown newest first, with where the next walk goes on.

    Within a partition nothing is left out between those shown and where it goes on, whatever its records' times are.
    """
    lists = [reversed(each) if backwards else each for each in found.records.values()]
    ordered = list(heapq.merge(*lists, key=_back if backwards else _forth))
    shown, rest = ordered[:limit], ordered[limit:]
    goes_on = dict(found.reached) | _first_of(rest, 1 if backwards else 0)
    return sorted(shown, key=_back), goes_on


def _back(record: Record) -> tuple[int, int, int]:
    return -(record.at_ms or 0), -record.offset, record.partition


def _forth(record: Record) -> tuple[int, int, int]:
    return record.at_ms or 0, record.offset, record.partition


def _first_of(rest: Iterable[Record], step: int) -> dict[int, int]:
    """Per partition, where the first record that found no place on the page will be read again."""
    first: dict[int, int] = {}
    for record in rest:
        first.setdefault(record.partition, record.offset + step)
    return first

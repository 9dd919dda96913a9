"""A look into one topic: a bounded number of its records, newest first, without a group, a commit or any other trace in Kafka."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ingest.contract.errors import UnavailableError
from ingest.peek_key import partition_of_key
from ingest.peek_merge import Found, merged
from ingest.peek_reader import Budget, Ends, PeekReader
from ingest.peek_record import Record
from ingest.peek_walk import Walk, back, forth
from ingest.settings import KafkaSettings

__all__ = ["Begin", "Look", "Wanted", "peek"]

MOST_RECORDS: Final = 100_000
MOST_BYTES: Final = 32 * 1024 * 1024
MOST_SECONDS: Final = 5.0

Begin = Literal["newest", "oldest", "offset", "time", "before", "after"]
Positions = Mapping[int, int]
"""Partition -> offset."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look at.

    Attributes:
        topic: its name.
        begin: `newest` and `oldest` are the topic's ends; `offset` and `time` begin at `at` and go on to newer ones;
            `before` and `after` go on from the `positions` of an earlier look.
        at: an offset, or epoch ms.
        positions: per partition, as `Look.older` and `Look.newer` say.
        partition: this one alone.
        key: records with exactly this key alone.
        limit: at most so many records.
    """

    topic: str
    begin: Begin = "newest"
    at: int = 0
    positions: Positions | None = None
    partition: int | None = None
    key: bytes | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Look:
    """What was found, and how far it was looked.

    Attributes:
        records: newest first.
        older: where a look `before` these goes on; None where there is nothing.
        newer: where a look `after` these goes on.
        looked: how many records were read for it.
        looked_bytes: their keys and values.
        spent: what ended the look before it had enough: `records`, `bytes` or `seconds`; None where nothing did.
        back_to_ms: time of the oldest record that was looked at where the look was broken off.
        only_partition: the one in which the key is, where the others were left out for that.
        gone: whether the offset that was asked for is no longer, or not yet, there.
        silent: partitions whose leader did not answer.
    """

    records: tuple[Record, ...]
    older: Positions | None
    newer: Positions
    looked: int
    looked_bytes: int
    spent: str | None
    back_to_ms: int | None
    only_partition: int | None
    gone: bool
    silent: tuple[int, ...]


def peek(
    settings: KafkaSettings,
    wanted: Wanted,
    *,
    keyed: bool = False,
    most_seconds: float = MOST_SECONDS,
    most_records: int = MOST_RECORDS,
    most_bytes: int = MOST_BYTES,
) -> Look:
    """Look once.

    Args:
        settings: the cluster.
        wanted: where and what.
        keyed: whether the topic's partitions were chosen by the hash of the key, so that one partition tells.
        most_seconds: when to give up or to break off.
        most_records: how many records may be read.
        most_bytes: how many bytes of keys and values may be read.

    Raises:
        UnavailableError: there is no such topic or partition, or this user may not read it.
        RetryableError: Kafka does not answer in time.
    """
    budget = Budget(most_records, most_bytes, time.monotonic() + most_seconds)
    with PeekReader(settings, wanted.topic, budget) as reader:
        partitions, only = _partitions(reader.partitions(), wanted, keyed=keyed)
        ends = reader.ends(partitions)
        walk = Walk(reader, budget, wanted.key, wanted.limit)
        if wanted.begin in ("newest", "before"):
            bounds = _clamped(wanted.positions or {}, ends, otherwise=1)
            found = back(walk, {one: (ends[one][0], bound) for one, bound in bounds.items()})
        else:
            bounds = _starts(reader, wanted, ends)
            found = forth(walk, {one: (start, ends[one][1]) for one, start in bounds.items()})
    return _look(wanted, found, bounds, ends, budget, only=only, silent=tuple(set(partitions) - ends.keys()))


def _partitions(there: list[int], wanted: Wanted, *, keyed: bool) -> tuple[list[int], int | None]:
    """Those to look at, and the one in which the key must be."""
    if wanted.partition is not None:
        if wanted.partition not in there:
            message = f"Topic {wanted.topic} has no partition {wanted.partition}: it has {len(there)}, from 0"
            raise UnavailableError(message)
        return [wanted.partition], None
    if keyed and wanted.key is not None and len(there) > 1:
        only = partition_of_key(wanted.key, len(there))
        return [only], only
    return there, None


def _clamped(positions: Positions, ends: Ends, *, otherwise: int) -> dict[int, int]:
    """The positions within what is there; without one, the oldest (0) or the newest (1) end."""
    return {one: min(max(positions.get(one, both[otherwise]), both[0]), both[1]) for one, both in ends.items()}


def _starts(reader: PeekReader, wanted: Wanted, ends: Ends) -> dict[int, int]:
    if wanted.begin == "time":
        found = reader.offsets_at(list(ends), wanted.at)
        # No record is that new: nothing to show, and what comes later is newer.
        return _clamped(found, ends, otherwise=1)
    if wanted.begin == "offset":
        return _clamped(dict.fromkeys(ends, wanted.at), ends, otherwise=0)
    return _clamped(wanted.positions or {}, ends, otherwise=0)


def _look(
    wanted: Wanted,
    found: Found,
    bounds: Positions,
    ends: Ends,
    budget: Budget,
    *,
    only: int | None,
    silent: tuple[int, ...],
) -> Look:
    backwards = wanted.begin in ("newest", "before")
    shown, reached = merged(found, wanted.limit, backwards=backwards)
    older, newer = (reached, dict(bounds)) if backwards else (dict(bounds), reached)
    enough = len(shown) >= wanted.limit or all(reached[one] == ends[one][0 if backwards else 1] for one in reached)
    return Look(
        records=tuple(shown),
        older=older if any(older[one] > ends[one][0] for one in older) else None,
        newer=newer,
        looked=budget.looked,
        looked_bytes=budget.looked_bytes,
        spent=None if enough else budget.spent,
        back_to_ms=found.back_to_ms if backwards else found.forth_to_ms,
        only_partition=only,
        gone=wanted.begin == "offset" and not any(oldest <= wanted.at < end for oldest, end in ends.values()),
        silent=silent,
    )

"""Progress of the ledger: its cursor, the messages that outcomes have counted, and the rules that settle a row.

The cursor is kept in the metadata of the ledger's own commits.

The outcomes of an epoch count consecutive ranges of message numbers. Numbers between two ranges are a hole: Kafka deleted
outcomes before the ledger read them, or an outcome is late. The ledger forgets old epochs.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from streaming.derive.outcomes import OutcomeSums
from streaming.landing_offsets import Offsets, parse_offsets

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "KEPT_EPOCHS",
    "Holes",
    "LedgerCursor",
    "Settling",
    "forgotten_before",
    "has_landed_up_to",
    "holes_after",
    "later_numbers",
    "newest_epochs",
]

KEPT_EPOCHS: Final = 64
"""Epochs per gateway whose last number stays after all their counted messages have landed."""

MOST_HOLES: Final = 64
"""Most holes kept per epoch. The oldest of more are forgotten, as if they were counted."""

Holes = dict[str, dict[str, list[list[int]]]]
"""gateway -> epoch -> ranges (first, last) that no outcome counts."""

Upto = Mapping[str, Mapping[str, int]]
"""gateway -> epoch -> the last number counted."""

LEFT: Final = timedelta(days=1)
LONGEST: Final = timedelta(days=8)
"""No outcome is expected for a message that landed longer ago than this: `LEFT` if the gateway has a newer epoch, else `LONGEST`,
the longest life of a session at the broker."""


class Settling:
    """Facts that decide whether a row is settled, and which messages outcomes have counted.

    Args:
        upto: gateway -> epoch -> last number counted.
        now: wall clock.
        young: rows of messages received after this time still wait for outcomes.
        all_landed: True if all records of all counted messages have landed.
        older_landed: True if those of the outcomes before this pass have landed.
        forgotten: gateway -> epoch; older epochs that are not in `upto` were counted once and forgotten.
        holes: gateway -> epoch -> ranges (first, last) below its last number that no outcome counts.
        copies_known: False if rows of this pass landed before copies were counted.
        uncertain: devices of which readings were deleted before the ledger counted them.
        retained_since: first day from which retention has dropped nothing, for a ledger without counts; else empty.

    Attributes:
        erased: hash of each erased device -> end of its erased time, in epoch µs.
    """

    def __init__(
        self,
        upto: Upto,
        now: datetime,
        young: datetime,
        *,
        all_landed: bool,
        older_landed: bool,
        forgotten: Mapping[str, int],
        holes: Holes | None = None,
        copies_known: bool = True,
        uncertain: Collection[str] = (),
        retained_since: str = "",
    ) -> None:
        self._upto, self._forgotten, self._holes = json.dumps(upto), json.dumps(forgotten), json.dumps(holes or {})
        self._newest = json.dumps({gateway: max(map(int, epochs)) for gateway, epochs in upto.items() if epochs})
        self._now, self._young = now, young
        self.all_landed, self.older_landed = all_landed, older_landed
        self._copies_known, self._uncertain, self._retained_since = copies_known, sorted(uncertain), retained_since
        self.erased: Mapping[str, int] = {}

    @property
    def may_settle(self) -> bool:
        """True if rows without an outcome in this pass can be settled."""
        return self.all_landed or self.older_landed

    def now(self) -> "Column":
        """Return the wall clock."""
        return _moving(self._now)

    def young(self) -> "Column":
        """Return the oldest time that counts as young."""
        return _moving(self._young)

    def is_unknown(self) -> "Column":
        """Return whether nobody can know what became of the row's missing messages."""
        from pyspark.sql import functions as F

        if not self._copies_known:
            return F.lit(True)
        is_uncertain = F.col("device").isin(self._uncertain) | self.is_erased()
        if self._retained_since:
            is_uncertain |= F.to_date("minute") < F.to_date(F.lit(self._retained_since))
        return is_uncertain

    def is_erased(self) -> "Column":
        """Return whether the row's device was erased after the row's minute."""
        from pyspark.sql import functions as F

        if not self.erased:
            return F.lit(False)
        until = F.from_json(F.lit(json.dumps(self.erased)), "map<string, bigint>")
        return F.coalesce(F.unix_micros("minute") <= until[F.sha2(F.col("device").cast("binary"), 256)], F.lit(False))

    def is_counted(self, gateway: "Column", epoch: "Column", number: "Column") -> "Column":
        """Return whether an outcome counts the message; False for epochs that are not in `upto`."""
        from pyspark.sql import functions as F

        last = F.from_json(F.lit(self._upto), "map<string, map<string, bigint>>")[gateway][epoch.cast("string")]
        holes = F.from_json(F.lit(self._holes), "map<string, map<string, array<array<bigint>>>>")
        own = holes[gateway][epoch.cast("string")]
        in_hole = F.exists(own, lambda hole: number.between(hole[0], hole[1]))
        return F.coalesce(number <= last, F.lit(False)) & ~F.coalesce(in_hole, F.lit(False))

    def is_forgotten(self, gateway: "Column", epoch: "Column") -> "Column":
        """Return whether the epoch was forgotten: as far as known, all its messages were counted."""
        from pyspark.sql import functions as F

        known = F.from_json(F.lit(self._upto), "map<string, map<string, bigint>>")[gateway][epoch.cast("string")]
        before = F.from_json(F.lit(self._forgotten), "map<string, bigint>")[gateway]
        return F.coalesce(known.isNull() & (epoch < before), F.lit(False))

    def is_given_up(self, gateway: "Column", epoch: "Column", landed_at: "Column") -> "Column":
        """Return whether no outcome can count the message any more; outcomes of an epoch come before those of the next."""
        from pyspark.sql import functions as F

        newest = F.from_json(F.lit(self._newest), "map<string, bigint>")[gateway]
        left, long_ago = _moving(self._now - LEFT), _moving(self._now - LONGEST)
        return F.coalesce(((epoch < newest) & (landed_at < left)) | (landed_at < long_ago), F.lit(False))


def _moving(moment: datetime) -> "Column":
    """Return a time as an expression. A plain literal would make Spark compile the code again in each pass."""
    from pyspark.sql import functions as F

    us = int(moment.timestamp() * 1_000_000)
    return F.expr(f"get(array(timestamp_micros({us}L)), length(device) - length(device))")


def later_numbers(upto: Upto, counted: OutcomeSums | None) -> dict[str, dict[str, int]]:
    """Return the last numbers of both, with the newest epochs last."""
    merged = {gateway: dict(epochs) for gateway, epochs in upto.items()}
    for gateway, epochs in (counted.upto if counted else {}).items():
        known = merged.setdefault(gateway, {})
        for epoch, number in sorted(epochs.items(), key=lambda each: int(each[0])):
            known[epoch] = max(number, known.pop(epoch, number))
    return merged


def holes_after(holes: Holes, upto: Upto, counted: OutcomeSums | None) -> Holes:
    """Return the holes after these outcomes were counted; `upto` are the last numbers before them."""
    found = {gateway: dict(epochs) for gateway, epochs in holes.items()}
    for gateway, epochs in (counted.upto if counted else {}).items():
        for epoch, last in epochs.items():
            first = counted.first.get(gateway, {}).get(epoch, 0) if counted else 0
            known = upto.get(gateway, {}).get(epoch, 0)
            left = [part for hole in found.get(gateway, {}).get(epoch, []) for part in _cut(hole, first, last)]
            left += [[known + 1, first - 1]] if first > known + 1 else []
            found.setdefault(gateway, {})[epoch] = left[-MOST_HOLES:]
    return _without_empty(found)


def _cut(hole: list[int], first: int, last: int) -> list[list[int]]:
    """Return the rest of a hole without this range."""
    parts = [[hole[0], min(hole[1], first - 1)], [max(hole[0], last + 1), hole[1]]]
    return [part for part in parts if part[0] <= part[1]] if first <= hole[1] and last >= hole[0] else [hole]


def _without_empty(holes: Holes) -> Holes:
    kept = {gateway: {epoch: ranges for epoch, ranges in epochs.items() if ranges} for gateway, epochs in holes.items()}
    return {gateway: epochs for gateway, epochs in kept.items() if epochs}


def newest_epochs(upto: Upto, landed: Upto) -> dict[str, dict[str, int]]:
    """Return the last numbers without old epochs whose messages have all landed: their last number equals that in `landed`."""
    kept = {}
    for gateway, epochs in upto.items():
        known, newest = landed.get(gateway, {}), list(epochs)[-KEPT_EPOCHS:]
        kept[gateway] = {
            epoch: number for epoch, number in epochs.items() if epoch in newest or known.get(epoch) != number
        }
    return kept


def forgotten_before(upto: Upto) -> dict[str, int]:
    """Return the oldest known epoch of each gateway with forgotten epochs. Epochs ascend, so the forgotten ones are older."""
    return {gateway: min(map(int, epochs)) for gateway, epochs in upto.items() if len(epochs) >= KEPT_EPOCHS}


@dataclass(slots=True)
class LedgerCursor:
    """Progress of the ledger in its source tables and topics, and its unsettled rows.

    Attributes:
        readings: version of the table `readings` up to which rows are counted; None before the first pass.
        dead_letters: the same for `dead_letters`.
        outcomes: partition -> next offset of the outcomes.
        upto: gateway -> epoch -> last number counted.
        ends: ends of the landed topics, read after those of the outcomes.
        all_landed: True if the landing had reached these ends.
        unsettled: minutes with unsettled rows.
        topic: Kafka's id of the topic of outcomes; None if an older version wrote the cursor, or Kafka has no ids.
        duplicates: the version of `duplicates`.
        holes: ranges below the last numbers that no outcome counts.
        copies_known: False if the version that wrote the cursor did not count copies.
    """

    readings: int | None = None
    dead_letters: int | None = None
    outcomes: dict[int, int] = field(default_factory=dict)
    upto: dict[str, dict[str, int]] = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    all_landed: bool = True
    unsettled: set[datetime] = field(default_factory=set)
    topic: str | None = None
    duplicates: int | None = None
    holes: Holes = field(default_factory=dict)
    copies_known: bool = True

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> "LedgerCursor":
        """Read what `encode` wrote; without it, return the cursor of a new ledger."""
        if found is None:
            return cls()
        return cls(
            found["readings"],
            found["dead_letters"],
            {int(part): offset for part, offset in found["outcomes"].items()},
            found["upto"],
            parse_offsets(found["ends"]),
            found["all_landed"],
            {datetime.fromtimestamp(minute * 60, UTC) for minute in found["unsettled"]},
            found.get("topic"),
            found.get("duplicates"),
            found.get("holes", {}),
            copies_known="duplicates" in found,
        )

    def differs(self, ends: Mapping[int, int]) -> bool:
        """Return whether the outcomes end at other offsets than were read, also at smaller ones, as after a power cut."""
        return any(self.outcomes.get(part, 0) != end for part, end in ends.items())

    def starts(self, ends: Mapping[int, int], topic: str | None) -> dict[int, int]:
        """Return the offsets to read from in the topic with this id: 0 only if it was recreated, so that nothing counts twice."""
        is_same = topic is None or self.topic in (None, topic)
        return {part: min(self.outcomes.get(part, 0), end) if is_same else 0 for part, end in ends.items()}

    def may_settle(self, landed: Offsets, young: datetime) -> bool:
        """Return whether unsettled rows can be settled without new data: the landing has caught up, or rows are old enough."""
        if not self.has_landed(landed):
            return False
        return any(minute < young or not self.all_landed for minute in self.unsettled)

    def has_landed(self, landed: Offsets) -> bool:
        """Return whether all records of the messages that are counted up to here have landed."""
        return self.all_landed or has_landed_up_to(landed, self.ends)

    def landed_upto(self, before: "LedgerCursor", settling: Settling) -> Mapping[str, Mapping[str, int]]:
        """Return the last counted numbers whose messages have landed; `before` is the cursor of the pass before."""
        return self.upto if settling.all_landed else before.upto if settling.older_landed else {}

    def forget(self, kept: dict[str, dict[str, int]]) -> None:
        """Forget all epochs except `kept`."""
        self.upto = kept
        self.holes = {
            gateway: {epoch: ranges for epoch, ranges in epochs.items() if epoch in kept.get(gateway, {})}
            for gateway, epochs in self.holes.items()
        }

    def encode(self) -> dict[str, Any]:
        """Return the entry for the metadata of a commit."""
        return {
            "readings": self.readings,
            "dead_letters": self.dead_letters,
            "duplicates": self.duplicates,
            "outcomes": self.outcomes,
            "upto": self.upto,
            "holes": self.holes,
            "ends": self.ends,
            "all_landed": self.all_landed,
            "unsettled": sorted(int(minute.timestamp()) // 60 for minute in self.unsettled),
            "topic": self.topic,
        }


def has_landed_up_to(landed: Offsets, ends: Offsets) -> bool:
    """Return whether the landing has reached these ends in every partition."""
    return all(
        landed.get(topic, {}).get(part, 0) >= end for topic, parts in ends.items() for part, end in parts.items()
    )

"""Progress of the ledger: its cursor, the messages that outcomes have counted, and the rows that can be settled by that.

The cursor is kept in the metadata of the ledger's own commits.

The outcomes of a connection of a gateway count ranges of numbers that follow one another. What lies between them is a hole: Kafka
deleted outcomes before they were read, or a late one is still to come. The ledger forgets old connections.
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
"""Connections of gateways whose last number is remembered, once all that they counted has landed."""

MOST_HOLES: Final = 64
"""Ranges kept per connection; of more, the oldest are forgotten, as if they were counted."""

Holes = dict[str, dict[str, list[list[int]]]]
"""gateway -> epoch -> ranges (first, last) that no outcome counts."""

Upto = Mapping[str, Mapping[str, int]]
"""gateway -> epoch -> the last number counted."""

LEFT: Final = timedelta(days=1)
LONGEST: Final = timedelta(days=8)
"""A message that landed so long before the ledger first sees it is not noted: its outcome came long ago, or never. `LEFT`
goes for connections that another one followed; a session of the broker does not last longer than `LONGEST`."""


class Settling:
    """Facts that decide whether a row is settled, and which messages outcomes have counted.

    Args:
        upto: gateway -> epoch -> last number counted.
        now: the wall clock.
        young: a row waits for the outcomes of what was received after this.
        all_landed: all records of the messages that any outcome so far counts have landed.
        older_landed: those of the outcomes before this pass have.
        forgotten: gateway -> the epoch before which all that are not in `upto` were counted once.
        holes: gateway -> epoch -> ranges (first, last) up to its last number that no outcome counts.
        copies_known: False where this pass takes in what landed before copies were counted.
        uncertain: devices of which readings were deleted before the ledger counted them.
        retained_since: the first day of which retention has taken nothing, where the ledger has counted nothing yet.

    Attributes:
        erased: hash of each device that was erased -> until when what it sent is gone on purpose, in epoch µs.
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
        """True if rows that no outcome of this pass counts in can be settled."""
        return self.all_landed or self.older_landed

    def now(self) -> "Column":
        """The wall clock."""
        return _moving(self._now)

    def young(self) -> "Column":
        """The oldest moment that counts as young."""
        return _moving(self._young)

    def is_unknown(self) -> "Column":
        """Return whether the fate of the row's missing messages cannot be known."""
        from pyspark.sql import functions as F

        if not self._copies_known:
            return F.lit(True)
        is_uncertain = F.col("device").isin(self._uncertain) | self.is_erased()
        if self._retained_since:
            is_uncertain |= F.to_date("minute") < F.to_date(F.lit(self._retained_since))
        return is_uncertain

    def is_erased(self) -> "Column":
        """Return whether all messages of the row's device and minute up to then were erased."""
        from pyspark.sql import functions as F

        if not self.erased:
            return F.lit(False)
        until = F.from_json(F.lit(json.dumps(self.erased)), "map<string, bigint>")
        return F.coalesce(F.unix_micros("minute") <= until[F.sha2(F.col("device").cast("binary"), 256)], F.lit(False))

    def is_counted(self, gateway: "Column", epoch: "Column", number: "Column") -> "Column":
        """Return whether an outcome counts the message, of the epochs that are in `upto`."""
        from pyspark.sql import functions as F

        last = F.from_json(F.lit(self._upto), "map<string, map<string, bigint>>")[gateway][epoch.cast("string")]
        holes = F.from_json(F.lit(self._holes), "map<string, map<string, array<array<bigint>>>>")
        own = holes[gateway][epoch.cast("string")]
        in_hole = F.exists(own, lambda hole: number.between(hole[0], hole[1]))
        return F.coalesce(number <= last, F.lit(False)) & ~F.coalesce(in_hole, F.lit(False))

    def is_forgotten(self, gateway: "Column", epoch: "Column") -> "Column":
        """Return whether all messages of the epoch were counted once, as far as it is known."""
        from pyspark.sql import functions as F

        known = F.from_json(F.lit(self._upto), "map<string, map<string, bigint>>")[gateway][epoch.cast("string")]
        before = F.from_json(F.lit(self._forgotten), "map<string, bigint>")[gateway]
        return F.coalesce(known.isNull() & (epoch < before), F.lit(False))

    def is_given_up(self, gateway: "Column", epoch: "Column", landed_at: "Column") -> "Column":
        """Return whether no outcome can count the message any more: those of a connection come before those of the next."""
        from pyspark.sql import functions as F

        newest = F.from_json(F.lit(self._newest), "map<string, bigint>")[gateway]
        left, long_ago = _moving(self._now - LEFT), _moving(self._now - LONGEST)
        return F.coalesce(((epoch < newest) & (landed_at < left)) | (landed_at < long_ago), F.lit(False))


def _moving(moment: datetime) -> "Column":
    """Return a constant that differs in each pass: as a plain literal it would make Spark compile the code again."""
    from pyspark.sql import functions as F

    us = int(moment.timestamp() * 1_000_000)
    return F.expr(f"get(array(timestamp_micros({us}L)), length(device) - length(device))")


def later_numbers(upto: Upto, counted: OutcomeSums | None) -> dict[str, dict[str, int]]:
    """Both maps, the newest epochs last."""
    merged = {gateway: dict(epochs) for gateway, epochs in upto.items()}
    for gateway, epochs in (counted.upto if counted else {}).items():
        known = merged.setdefault(gateway, {})
        for epoch, number in sorted(epochs.items(), key=lambda each: int(each[0])):
            known[epoch] = max(number, known.pop(epoch, number))
    return merged


def holes_after(holes: Holes, upto: Upto, counted: OutcomeSums | None) -> Holes:
    """The holes once these outcomes are counted as well; `upto` are the last numbers before them."""
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
    """Without old epochs whose messages have all landed: those that the pass before knew, and no outcome counted in since."""
    kept = {}
    for gateway, epochs in upto.items():
        known, newest = landed.get(gateway, {}), list(epochs)[-KEPT_EPOCHS:]
        kept[gateway] = {
            epoch: number for epoch, number in epochs.items() if epoch in newest or known.get(epoch) != number
        }
    return kept


def forgotten_before(upto: Upto) -> dict[str, int]:
    """The oldest epoch of each gateway that may have forgotten some: epochs ascend, so those were before it."""
    return {gateway: min(map(int, epochs)) for gateway, epochs in upto.items() if len(epochs) >= KEPT_EPOCHS}


@dataclass(slots=True)
class LedgerCursor:
    """Progress of the ledger: versions, offsets of the outcomes, the numbers of each epoch, and the rows to settle.

    `holes` are the ranges before the last numbers that no outcome counts. `copies_known` is False where the version that
    wrote the cursor did not count copies. `topic` is Kafka's id of the topic that the offsets are of; None where an older
    version wrote the cursor, or Kafka has none.
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
        """Return whether the outcomes end elsewhere than where reading ended; also earlier, where a power cut took some."""
        return any(self.outcomes.get(part, 0) != end for part, end in ends.items())

    def starts(self, ends: Mapping[int, int], topic: str | None) -> dict[int, int]:
        """Return the offsets to read from in the topic with this id: 0 only if it was recreated, so that nothing counts twice."""
        is_same = topic is None or self.topic in (None, topic)
        return {part: min(self.outcomes.get(part, 0), end) if is_same else 0 for part, end in ends.items()}

    def may_settle(self, landed: Offsets, young: datetime) -> bool:
        """Return whether unsettled rows can be settled without changes: the landing has caught up, or notes grew old."""
        if not self.has_landed(landed):
            return False
        return any(minute < young or not self.all_landed for minute in self.unsettled)

    def has_landed(self, landed: Offsets) -> bool:
        """Return whether all records of the messages that the outcomes up to here count have landed."""
        return self.all_landed or has_landed_up_to(landed, self.ends)

    def landed_upto(self, before: "LedgerCursor", settling: Settling) -> Mapping[str, Mapping[str, int]]:
        """Gateway -> epoch -> the last number counted, of what has landed; `before` is the cursor of the pass before."""
        return self.upto if settling.all_landed else before.upto if settling.older_landed else {}

    def forget(self, kept: dict[str, dict[str, int]]) -> None:
        """Forget all epochs but these."""
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
    """Return whether the landing has come to these ends, in every partition."""
    return all(
        landed.get(topic, {}).get(part, 0) >= end for topic, parts in ends.items() for part, end in parts.items()
    )

"""The ledger's progress, and the rows that can be settled by it; kept in the metadata of its own commits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from streaming.derive.ledger_settling import Holes, Settling
from streaming.landing_offsets import Offsets, parse_offsets

__all__ = ["LedgerCursor", "has_landed_up_to"]


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

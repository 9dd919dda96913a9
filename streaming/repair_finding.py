"""Findings of a repair and their fixes: files to set aside, and instructions for the next start."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming.landing_offsets import Offsets
from streaming.lost_records import LostRecords

__all__ = ["RepairFinding"]


@dataclass(frozen=True, slots=True)
class RepairFinding:
    """One fault.

    Attributes:
        what: a sentence on what is wrong.
        then: what --apply does about it, as the rest of a sentence; what a person must do where `by_hand`.
        moves: files and folders to be set aside, never deleted.
        replay: from where records are to be read again.
        lost: losses to be accepted.
        drop: table whose missing data files are to be taken out of its log.
        needs: the flag without which --apply leaves it alone.
        by_hand: the repair cannot fix it.
        harmless: it does not keep anything from starting.
        log: until it is fixed, the tables do not say how far they are.
    """

    what: str
    then: str
    moves: tuple[Path, ...] = ()
    replay: Offsets = field(default_factory=dict)
    lost: tuple[LostRecords, ...] = ()
    drop: str | None = None
    needs: str | None = None
    by_hand: bool = False
    harmless: bool = False
    log: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON-ready data."""
        return {
            "what": self.what,
            "then": self.then,
            "moves": [str(path) for path in self.moves],
            "replay": self.replay,
            "lost": [each._asdict() for each in self.lost],
            "needs": self.needs,
            "by_hand": self.by_hand,
            "harmless": self.harmless,
        }

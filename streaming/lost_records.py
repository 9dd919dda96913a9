"""Records that Kafka no longer has: found before a query starts, reported exactly, and skipped only if a person accepts it.

`tidegate repair` writes instructions for the next start to `<root>/_repair/next_start.json`: the accepted losses, and the
offsets from which records are read again because a torn commit was set aside.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from lakehouse.atomic_file import write_json
from lakehouse.paths import is_local, to_path
from streaming.landing_offsets import Mark, Offsets, parse_offsets

__all__ = [
    "REPAIR_FOLDER",
    "LostRecords",
    "StartInstruction",
    "describe_lost_records",
    "find_lost_records",
    "read_start_instruction",
    "recreated_topics",
    "write_start_instruction",
]

REPAIR_FOLDER: Final = "_repair"
ORDER_NAME: Final = "next_start.json"


class LostRecords(NamedTuple):
    """Kafka's partition no longer holds the record that comes next (`following`).

    `edge` is its oldest offset where records expired; the first offset that holds another record than before, less than
    `following`, where the log was cut; 0 where the topic was recreated; -1 where the partition does not exist.
    """

    topic: str
    partition: int
    following: int
    edge: int

    @property
    def expired(self) -> bool:
        """True if the loss is a range of known length."""
        return self.edge > self.following

    def __str__(self) -> str:
        where = f"{self.topic} partition {self.partition}"
        if self.edge < 0:
            return f"{where} no longer exists (stored up to offset {self.following - 1})"
        if not self.expired:
            back = f" it holds other records from offset {self.edge} on," if self.edge else ""
            return (
                f"{where} was recreated or cut back: stored up to offset {self.following - 1},{back} "
                f"and its former records after offset {max(self.edge, self.following) - 1} are gone"
            )
        return f"{where} offsets {self.following} to {self.edge - 1} ({self.edge - self.following} records)"


def find_lost_records(
    following: Offsets, oldest: Offsets, newest: Offsets, remade: Iterable[str] = ()
) -> list[LostRecords]:
    """Return the records that come next and that Kafka no longer has.

    Args:
        following: the next offset to be read, per topic and partition.
        oldest: the oldest offset that Kafka holds.
        newest: the next that it will give.
        remade: topics known to be others than those that `following` is of.
    """
    anew, lost = set(remade), []
    for topic, parts in following.items():
        for part, offset in parts.items():
            first, end = oldest.get(topic, {}).get(part), newest.get(topic, {}).get(part)
            if first is None or end is None:
                lost.append(LostRecords(topic, part, offset, -1))
            elif topic in anew:
                lost += [LostRecords(topic, part, offset, 0)] if offset > 0 else []
            elif offset < first:
                lost.append(LostRecords(topic, part, offset, first))
            elif offset > end:
                lost.append(LostRecords(topic, part, offset, end))
        # A partition that was added since begins at 0, unless its first records expired before they were read.
        added = {part: first for part, first in oldest.get(topic, {}).items() if part not in parts and first > 0}
        lost += [LostRecords(topic, part, 0, first) for part, first in added.items()]
    return lost


def describe_lost_records(lost: Iterable[LostRecords]) -> str:
    """Return the refusal as sentences with the next step."""
    return (
        f"Kafka no longer has the records that come next: {'; '.join(map(str, lost))}. No record is skipped without a report. "
        "Run `tidegate repair --accept-loss` to see the effect of going on without them, and again with --apply to do it; "
        "stored rows stay."
    )


def recreated_topics(mark: Mark | None, ids: Mapping[str, str]) -> set[str]:
    """Topics that have another id in Kafka than when the mark was made."""
    return {topic for topic, known in (mark.topics if mark else {}).items() if ids.get(topic, known) != known}


@dataclass(frozen=True, slots=True)
class StartInstruction:
    """Instructions of a repair for the next start on a new checkpoint."""

    replay: Offsets = field(default_factory=dict)
    accepted: Sequence[LostRecords] = ()
    file: Path | None = None

    @property
    def cuts(self) -> list[LostRecords]:
        """The accepted cuts: a start continues at their edges even if it does not see them any more."""
        return [each for each in self.accepted if 0 <= each.edge < each.following]

    def refused(self, lost: Iterable[LostRecords]) -> list[LostRecords]:
        """Return the losses not accepted. A range must end where the accepted one does, or earlier; a cut, there or later."""
        return [each for each in lost if not any(_covers(known, each) for known in self.accepted)]

    def refused_by_checkpoint(self, lost: Iterable[LostRecords], following: Offsets) -> list[LostRecords]:
        """The losses that a checkpoint cannot go on with: all but a cut that was accepted, and that it began at or before."""
        cuts = [each for each in lost if not each.expired and each.edge >= 0]
        begun = {each for each in cuts if following.get(each.topic, {}).get(each.partition, 0) <= each.edge}
        return [each for each in lost if each not in begun or self.refused([each])]

    def unless_in(self, mark: Mark | None) -> "StartInstruction":
        """The order, or an empty one where this mark says already that its losses were passed over."""
        done = mark is not None and self.accepted and [list(each) for each in mark.lost] == [*map(list, self.accepted)]
        return StartInstruction() if done else self

    def settle(self) -> None:
        """Mark the order as done, because a mark in the tables or a checkpoint holds it. The file is kept as a record."""
        if self.file is not None and self.file.exists():
            self.file.rename(self.file.with_name(f"{self.file.stem}.done-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.json"))


def _covers(accepted: LostRecords, lost: LostRecords) -> bool:
    if accepted[:2] != lost[:2] or accepted.expired != lost.expired:
        return False
    return lost.edge <= accepted.edge if lost.expired else lost.edge >= accepted.edge


def read_start_instruction(root: str) -> StartInstruction:
    """Return the order of the last repair; an empty one if there is none, or if the tables are on an object store.

    Raises:
        ValueError: the file is damaged.
    """
    file = to_path(root) / REPAIR_FOLDER / ORDER_NAME
    if not is_local(root) or not file.exists():
        return StartInstruction()
    data: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return StartInstruction(parse_offsets(data["replay"]), tuple(LostRecords(*each) for each in data["accepted"]), file)


def write_start_instruction(root: str, order: StartInstruction, note: Mapping[str, Any]) -> Path:
    """Write the order for the next start; `note` says who and why."""
    path = to_path(root) / REPAIR_FOLDER / ORDER_NAME
    write_json(path, {"replay": order.replay, "accepted": [list(each) for each in order.accepted], **note})
    return path

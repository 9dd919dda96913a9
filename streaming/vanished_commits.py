"""Commits that are gone without a trace, as after a power cut, found by what other commits and the checkpoint say.

No torn file is left in that case. But each commit of the landing names the versions of the other tables, and each batch with
records leaves a mark. So a table that is behind a mark, or a checkpoint that is past every mark, shows the loss. A derived
table shows it by its cursor.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ingest.contract.errors import FatalError
from lakehouse.changes import newest_version
from lakehouse.derived_tables import DERIVED
from lakehouse.tables import TABLES
from streaming.checkpoint import Checkpoint
from streaming.derive.cursor import read_cursor
from streaming.identity_snapshot import saved_identities
from streaming.landing_offsets import Mark, Offsets, has_records, mark_history, newest_of, with_new_partitions
from streaming.repair_checkpoint import checkpoint_moves
from streaming.repair_finding import RepairFinding

__all__ = ["FinishedBatch", "VanishedCommits", "find_vanished_commits", "refuse_vanished", "vanished_findings"]


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """Finished work according to a checkpoint: the query, its newest finished batch, and its end."""

    app: str
    batch: int
    following: Offsets

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "FinishedBatch | None":
        """None for a new one; batch -1 where it has finished none, and says only where it began."""
        app, following, finished = checkpoint.query_id(), checkpoint.next_offsets(), checkpoint.finished()
        return cls(app, -1 if finished is None else finished, following) if app and following else None


@dataclass(frozen=True, slots=True)
class VanishedCommits:
    """A table's commits that are gone: it is at `version`, and `wanted` was there. No table where only a batch is known."""

    table: str
    version: int
    wanted: int

    def __str__(self) -> str:
        if not self.table:
            return "the checkpoint is past the newest batch in any table"
        return f"the table {self.table} is at version {self.version}, but version {self.wanted} was committed"


def find_vanished_commits(
    mark: Mark | None, versions: Mapping[str, int], reached: FinishedBatch | None, *, passed_over: bool = False
) -> list[VanishedCommits]:
    """Return the commits of the landed tables that are gone.

    Args:
        mark: the newest of all tables; one of an older version names no versions, and nothing is known then.
        versions: of the tables now.
        reached: by the checkpoint; None where that is new.
        passed_over: a loss was accepted, so a new checkpoint may begin behind every mark.
    """
    if mark is None:
        is_past = reached is not None and reached.batch >= 0 and has_records({}, reached.following)
        return [VanishedCommits("", -1, -1)] if is_past else []
    if not mark.versions:
        return []
    same = reached is not None and reached.app == mark.app
    is_past = reached is not None and has_records(mark.reach, reached.following) and (same or not passed_over)
    if reached is not None and reached.batch >= 0 and not same and not is_past:
        return []  # a new checkpoint that has no mark of its own yet: it began where the tables are
    done = same and reached is not None and reached.batch >= mark.batch
    found = []
    for table, known in mark.versions.items():
        wanted = known + (done and table in mark.follows)
        if versions.get(table, -1) < wanted:
            found.append(VanishedCommits(table, versions.get(table, -1), wanted))
    if is_past:
        found.append(VanishedCommits("", -1, -1))
    return found


def replay_from(lost: VanishedCommits, marks: Iterable[Mark], newest: Mark | None, begin: Offsets) -> Offsets:
    """Return where to read again: the start of the newest batch at which the table was as it is now.

    Without any mark all of it is read again. `begin` is only where this checkpoint began: an earlier one may have read before.
    """
    if newest is None:
        return {topic: dict.fromkeys(parts, 0) for topic, parts in begin.items()}
    if not lost.table:
        return newest.ends
    best: Mark | None = None
    for mark in marks:
        if mark.versions and mark.versions.get(lost.table, lost.wanted) <= lost.version:
            best = newest_of([best, mark])
    return with_new_partitions(best.starts if best is not None else {}, newest.ends)


def _find_derived_ahead(root: str) -> list[tuple[str, str, int]]:
    """Derived tables that have seen a version which their source does not have: (derived, source, version)."""
    from deltalake.exceptions import DeltaError

    found = []
    for name in DERIVED:
        try:
            cursor = read_cursor(root, name) if newest_version(root, name) >= 0 else None
        except DeltaError:
            continue  # it is damaged, which is found elsewhere
        if cursor is None:
            continue
        for source in (*TABLES, *DERIVED):
            seen = cursor.get(source)
            if isinstance(seen, int) and seen > newest_version(root, source):
                found.append((name, source, seen))
    return found


def refuse_vanished(root: str, mark: Mark | None, reached: FinishedBatch | None, *, passed_over: bool = False) -> None:
    """Refuse to go on where commits are gone.

    Raises:
        FatalError: names the tables and the next step.
    """
    gone = [str(each) for each in find_vanished_commits(mark, _versions(root), reached, passed_over=passed_over)]
    gone += [
        f"{name} read version {seen} of {source}, which is missing" for name, source, seen in _find_derived_ahead(root)
    ]
    if gone:
        message = (
            f"Commits of the tables are gone, as after a power cut: {'; '.join(gone)}. Nothing was changed. Run `tidegate "
            "repair` to see the fix, and again with --apply to make it."
        )
        raise FatalError(message)


def vanished_findings(
    root: Path, folder: Path, mark: Mark | None, checkpoint: Checkpoint, *, trust: bool, passed_over: bool = False
) -> Iterator[RepairFinding]:
    """Yield the missing commits as findings of a repair; `trust` if the checkpoint stays as it is."""
    uri, begun = str(root), trust and checkpoint.begun()
    reached = FinishedBatch.of(checkpoint) if begun else None
    derived = {name: root / name for name, _, _ in _find_derived_ahead(uri)}
    for lost in find_vanished_commits(mark, _versions(uri), reached, passed_over=passed_over):
        replay = replay_from(lost, mark_history(uri, TABLES), mark, checkpoint.starts(0))
        kept = ", which only these commits counted" if lost.table == "duplicates" else ""
        since = "from the newest batch that all tables hold" if mark is not None else "from Kafka's first record"
        yield RepairFinding(
            f"Commits are gone, as after a power cut: {lost}{kept}.",
            f"sets the checkpoint and the file of known identities aside, and lands again {since}; a table that has rows after "
            "it knows them, so no row lands twice",
            moves=(*checkpoint_moves(folder), *saved_identities(root), *derived.values()),
            replay=replay,
        )
    for name, source, seen in _find_derived_ahead(uri):
        yield RepairFinding(
            f"The derived table {name} read version {seen} of {source}, which is missing, as after a power cut.",
            "sets the table aside; the stream rebuilds it from the rows that are left",
            moves=(root / name,),
        )


def _versions(root: str) -> dict[str, int]:
    return {name: newest_version(root, name) for name in TABLES}

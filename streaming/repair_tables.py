"""Damage of the tables, and its fix: torn commits and checkpoints of the log, missing data files, leftovers."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from lakehouse.commit_metadata import CommitMetadata, metadata_text
from lakehouse.derived_tables import DERIVED
from lakehouse.health import LogState, MissingFile, commit_actions, examine_log, missing_files
from lakehouse.tables import DUPLICATES, TABLES
from streaming.identity_snapshot import SNAPSHOT_FILE, saved_identities
from streaming.landing_offsets import Cuts, Mark, Offsets, newest_of, parse_mark, with_new_partitions
from streaming.repair_checkpoint import checkpoint_moves
from streaming.repair_finding import RepairFinding
from streaming.sql.applied_streams import streams_folder

__all__ = ["DROP_FLAG", "table_findings"]

DROP_FLAG: Final = "--drop-missing-files"
SHOWN: Final = 3


def table_findings(root: Path, checkpoint: Path) -> Iterator[RepairFinding]:
    """Yield all damage of the tables under the root, in the order in which it is fixed."""
    folders = sorted(log.parent for log in root.glob("*/_delta_log"))
    states = {folder.name: examine_log(folder) for folder in folders}
    for name, state in states.items():
        if name in DERIVED:
            yield from _derived(state)
        elif name not in TABLES:
            yield from _other(root, state)
        elif state.faults and state.base is None and not state.commit(0).exists():
            what = f"The table {name} is damaged: {'; '.join(state.faults[:SHOWN])}; its older log was already deleted."
            hand = f"restore {state.folder} from a backup: its data files exist, but their list does not"
            yield RepairFinding(what, hand, by_hand=True, log=True)
        elif state.torn or state.gaps:
            yield _torn(root, checkpoint, name, states)
        elif state.bad_checkpoints or state.hint_is_bad:
            yield _bad_checkpoint(state)
        elif missing := missing_files(state.folder):
            yield _missing(root, name, missing)
    yield from _leftovers(root, list(states.values()))


def _torn(root: Path, checkpoint: Path, name: str, states: dict[str, LogState]) -> RepairFinding:
    """The log from its first torn commit on is set aside; Kafka's records after the commit before it are landed again."""
    state = states[name]
    first = min((*state.torn, *state.gaps))
    what = f"The table {name} is damaged: {'; '.join(state.faults[:SHOWN])}."
    versions = range(state.newest, first - 1, -1)
    if foreign := [version for version in versions if version not in state.torn and _is_foreign(state.folder, version)]:
        hand = (
            f"restore {state.folder} from a backup, or set the whole folder aside: the later version {foreign[-1]} holds "
            "changes that Kafka cannot give again (a correction, an erasure)"
        )
        return RepairFinding(what, hand, by_hand=True, log=True)
    newest = newest_of(_marks(list(states.values())))
    replay = _marked(state, first, newest.cuts if newest else {}) or _from_zero(list(states.values()))
    replay = with_new_partitions(replay, newest.ends) if newest else replay
    if name == DUPLICATES.name:
        # Only the commit knows what a batch left out: reading its records again would only filter them.
        replay = {}
    derived = tuple(each.folder for table, each in states.items() if table in DERIVED and _has_seen(each, name, first))
    moves = (*checkpoint_moves(checkpoint), *derived)
    moves += saved_identities(root)
    moves += tuple(path for version in versions for path in state.files_of(version))
    count = state.newest - first + 1
    then = f"sets {'this commit' if count == 1 else f'the {count} commits from this one on'} aside, and the checkpoint with it, "
    if name != DUPLICATES.name:
        then += (
            f"and lands again from {_shown(replay)}, which is the end of the commit before; other tables know which of these "
            "records they hold, so no row lands twice"
        )
    else:
        then += (
            "and lands again the records of its batch that readings lacks. The ledger shows copies that only this commit "
            "counted as `unaccounted` from then on; `tidegate audit` finds them in Kafka as duplicates"
        )
    if derived:
        then += f". Rebuilt from it: {', '.join(folder.name for folder in derived)}"
    # Without a mark anywhere, the torn table itself would be asked how far it is.
    return RepairFinding(what, then, moves=moves, replay=replay, log=not replay)


def _derived(state: LogState) -> Iterator[RepairFinding]:
    name = state.folder.name
    anew = "sets the table aside; the stream rebuilds it from readings and dead_letters"
    if state.faults:
        yield RepairFinding(
            f"The derived table {name} is damaged: {'; '.join(state.faults[:SHOWN])}.", anew, (state.folder,)
        )
    elif missing := missing_files(state.folder):
        yield RepairFinding(f"The derived table {name} lacks {_counted(missing)}.", anew, (state.folder,))


def _other(root: Path, state: LogState) -> Iterator[RepairFinding]:
    """Check a table of a SQL stream, or a foreign one: nothing rebuilds it by itself, so it stays where it is."""
    from deltalake.exceptions import DeltaError

    folder, missing = state.folder, list[MissingFile]()
    if not state.faults:
        # A table that this reader can't read may still be intact: another program wrote it.
        with suppress(DeltaError):
            missing = missing_files(folder)
    if not state.faults and not missing:
        return
    stream = folder.name.removesuffix("__shadow")
    wrong = f"is damaged: {'; '.join(state.faults[:SHOWN])}" if state.faults else f"lacks {_counted(missing)}"
    rewind = f"`tidegate streams rewind {stream} --since TIME --into shadow`"
    if not (streams_folder(str(root)) / f"{stream}.json").exists():
        yield RepairFinding(
            f"The table {folder.name} {wrong}.",
            f"restore {folder} from a backup, or set it aside: no stream can rebuild it",
            by_hand=True,
        )
    elif stream != folder.name:
        hand = f"set {folder} aside; {rewind} rebuilds it"
        yield RepairFinding(f"The shadow {folder.name} of the SQL stream {stream} {wrong}.", hand, by_hand=True)
    else:
        hand = (
            f"stop the stream and set {folder} aside; the stream goes on in a new table at its next start. To restore earlier "
            f"rows there, run {rewind}, then `tidegate streams rewind {stream} --swap`"
        )
        yield RepairFinding(f"The table {stream} of the SQL stream {stream} {wrong}.", hand, by_hand=True)


def _bad_checkpoint(state: LogState) -> RepairFinding:
    files = [
        *state.bad_checkpoints,
        *(state.folder / "_delta_log" / f".{path.name}.crc" for path in state.bad_checkpoints),
    ]
    files.append(state.folder / "_delta_log" / "_last_checkpoint")
    what = f"The table {state.folder.name} is damaged: {'; '.join(state.faults[:SHOWN])}."
    kept = "version 0" if state.base is None else f"the checkpoint {state.base}"
    then = f"sets the damaged files aside: the log is complete from {kept} on, and the next checkpoint replaces them"
    return RepairFinding(what, then, moves=tuple(path for path in files if path.exists()), log=True)


def _missing(root: Path, name: str, missing: list[MissingFile]) -> RepairFinding:
    marks = [mark for each in missing if (mark := parse_mark(each.commit)) is not None]
    ranges = "; ".join(f"{_shown(mark.starts)} up to {_shown(mark.ends)}" for mark in marks[:SHOWN])
    origin = f" They hold Kafka's {ranges}." if marks else " The log no longer says which offsets they hold."
    first = f"the first is {missing[0].path}"
    return RepairFinding(
        f"The table {name} lacks {_counted(missing)} ({first}), and a query that reads them fails.{origin}",
        "removes these files from the table's log, so the table loses their rows. If a backup holds the files, put them back "
        "instead",
        moves=saved_identities(root) if name == "readings" else (),
        drop=name,
        needs=DROP_FLAG,
    )


def _leftovers(root: Path, states: list[LogState]) -> Iterator[RepairFinding]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    torn = [path for state in states for path in state.temporary]
    torn += [path for path in root.glob(f"{SNAPSHOT_FILE}.*") if path.suffix[1:].isdigit()]
    if torn:
        what = f"A killed writer left {len(torn)} temporary files; the first is {torn[0]}."
        yield RepairFinding(what, "sets them aside", moves=tuple(torn), harmless=True)
    try:
        pq.read_metadata(root / SNAPSHOT_FILE)
    except FileNotFoundError:
        return
    except (OSError, pa.ArrowException):
        what = f"The file of known identities {root / SNAPSHOT_FILE} is torn."
        then = "sets it aside; the next start reads the identities from the table, which takes longer"
        yield RepairFinding(what, then, moves=(root / SNAPSHOT_FILE,), harmless=True)


def _counted(missing: list[MissingFile]) -> str:
    rows = sum(each.rows or 0 for each in missing)
    return f"{len(missing)} data file{'s' if len(missing) != 1 else ''} with {rows} rows"


def _is_foreign(folder: Path, version: int) -> bool:
    """Return whether an intact commit holds changes that neither Kafka nor another commit has."""
    actions = commit_actions(folder, version)
    changes = any(action.get(kind, {}).get("dataChange") for action in actions for kind in ("add", "remove"))
    return changes and parse_mark(_metadata(actions)) is None


def _marked(state: LogState, before: int, cuts: Cuts) -> Offsets | None:
    """The end of the newest landed batch before a version. Maintenance cuts the log, but keeps the commit that says it."""
    for version in range(before - 1, -1, -1):
        if mark := parse_mark(_metadata(commit_actions(state.folder, version))):
            return mark.within(cuts).ends
    return None


def _from_zero(states: list[LogState]) -> Offsets:
    """Offset 0 of every partition that any commit names: no commit before the torn one does."""
    mark = newest_of(_marks(states))
    return {topic: dict.fromkeys(parts, 0) for topic, parts in (mark.ends if mark else {}).items()}


def _marks(states: list[LogState]) -> Iterator[Mark | None]:
    for state in states:
        if state.folder.name in TABLES:
            for version in range(state.newest, -1, -1):
                actions = commit_actions(state.folder, version)
                if mark := parse_mark(_metadata(actions)):
                    yield replace(mark, at_ms=mark.at_ms or _committed_ms(actions))
                    break


def _has_seen(state: LogState, name: str, version: int) -> bool:
    """Return whether a derived table has read the version; also if that cannot be known."""
    for own in range(state.newest, -1, -1):
        cursor = CommitMetadata.parse(_metadata(commit_actions(state.folder, own))).derived
        if cursor is not None and isinstance(seen := cursor.get(name, -1), int):
            return seen >= version
    return state.newest > 0


def _committed_ms(actions: Any) -> int:
    return max(int(action["commitInfo"].get("timestamp", 0)) for action in actions if "commitInfo" in action)


def _metadata(actions: Any) -> str | None:
    found = [metadata_text(action["commitInfo"]) for action in actions if "commitInfo" in action]
    return found[0] if found else None


def _shown(offsets: Offsets) -> str:
    return (
        ", ".join(f"{topic} {part}@{at}" for topic, parts in offsets.items() for part, at in parts.items())
        or "the start"
    )

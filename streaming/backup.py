"""Backup of all tables while a stream writes them, and its restore. No JVM, and no Kafka.

A backup is a folder with `tables/`, which any Delta reader can read, and `backup.json`, which names the versions. The tables
say themselves where they are in Kafka, so Spark's checkpoint does not belong to it: a restored stream begins a new checkpoint at
the newest mark, and lands the rest from Kafka.
"""

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ingest.contract.errors import ConfigError, FatalError, RetryableError, UnavailableError
from lakehouse.atomic_file import write_json
from lakehouse.catalog import table_names
from lakehouse.lock import LOCK_NAME, WriterLock
from lakehouse.requests import FOLDER as REQUESTS_FOLDER
from lakehouse.table_copy import TableCopy, check_copy, copy_file, copy_table
from lakehouse.tables import TABLES
from streaming.consistent_versions import consistent_versions
from streaming.landing_offsets import Offsets, newest_mark, newest_of, parse_offsets
from streaming.lost_records import REPAIR_FOLDER
from streaming.repair_checkpoint import checkpoint_moves

__all__ = ["BackupReport", "back_up", "read_backup", "restore"]

MANIFEST: Final = "backup.json"
FORMAT: Final = 1
"""Of the folder; a version that does not know a format rejects it."""
TABLES_FOLDER: Final = "tables"
STAGE: Final = "_restore"
TRIES: Final = 5
_JOURNALS: Final = ("_corrections.jsonl", "_erasures", "_redrive")
"""Records of changes by people: they must be as new as the tables."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """Content of a backup: the time of its versions, the tables, and where in Kafka a restored stream begins to read."""

    at: datetime
    tables: Sequence[TableCopy]
    offsets: Offsets

    @property
    def bytes(self) -> int:
        """Bytes of all tables."""
        return sum(each.bytes for each in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data; the content of `backup.json`."""
        tables = {
            each.name: {"version": each.version, "files": each.files, "bytes": each.bytes} for each in self.tables
        }
        return {"format": FORMAT, "at": self.at.isoformat(), "tables": tables, "offsets": self.offsets}


def back_up(root: Path, to: Path, *, former: Path | None = None) -> BackupReport:
    """Copy the tables to a new folder, which appears when it is complete. A stream may write meanwhile.

    Args:
        root: of the tables.
        to: the folder to make.
        former: an earlier backup on the same file system; unchanged files are linked to it.

    Raises:
        UnavailableError: there are no tables, or `former` is not a backup.
        FatalError: `to` exists, or a table is damaged.
        RetryableError: people change the tables again and again.
    """
    if not table_names(str(root)):
        message = (
            f"There are no tables in {root}. Name the settings of the stream with --config, or its run with --data."
        )
        raise UnavailableError(message)
    if former is not None:
        read_backup(former)
    partial = to.with_name(f"{to.name}.partial")
    for path in (to, partial):
        if path.exists():
            message = f"{path} exists already. Name a new folder, or delete this one if no backup writes it."
            raise FatalError(message)
    tables, earlier = partial / TABLES_FOLDER, former and former / TABLES_FOLDER
    at, versions = _begin(root, tables)
    copies = [
        copy_table(root / name, version, tables / name, former=earlier and earlier / name)
        for name, version in versions.items()
    ]
    mark = newest_of(newest_mark(str(tables), name) for name in TABLES)
    report = BackupReport(at, copies, mark.starts if mark else {})
    write_json(partial / MANIFEST, report.to_dict())
    os.sync()
    partial.rename(to)
    return report


def read_backup(folder: Path) -> BackupReport:
    """Return the content of a backup.

    Raises:
        UnavailableError: the folder is not a backup.
        ConfigError: a later version of Tidegate wrote it.
    """
    try:
        data = json.loads((folder / MANIFEST).read_text("utf-8"))
        written = int(data["format"])
        if written > FORMAT:
            message = (
                f"The backup {folder} has format {written}, but this version of Tidegate reads up to format {FORMAT}. Restore it "
                "with the version that wrote it, or a later one."
            )
            raise ConfigError(message)
        tables = [TableCopy(name, **each) for name, each in data["tables"].items()]
        return BackupReport(datetime.fromisoformat(data["at"]), tables, parse_offsets(data["offsets"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{folder} is not a backup: its {MANIFEST} is missing or damaged. Name a folder that `tidegate backup` made."
        raise UnavailableError(message) from error


def restore(backup: Path, root: Path, checkpoint: Path) -> BackupReport:
    """Copy a backup to where no tables are. If it is killed, set aside what it left, and run it again.

    Raises:
        FatalError: tables or a checkpoint are there already, or the backup is not whole.
        UnavailableError, ConfigError: see `read_backup`.
    """
    found = read_backup(backup)
    streams = checkpoint.parent / "streams"
    in_the_way = [folder for folder in (checkpoint, streams) if checkpoint_moves(folder)]
    in_the_way += [root] if table_names(str(root)) else []
    if in_the_way:
        moves = " && ".join(shlex.join(["mv", str(folder), f"{folder}.lost"]) for folder in in_the_way)
        message = (
            f"{' and '.join(map(str, in_the_way))} would not fit the restored tables. Stop the stream, and set them aside with "
            f"`{moves}`."
        )
        raise FatalError(message)
    lock = WriterLock(root, what="tables", patience_seconds=5.0)
    try:
        stage = root / STAGE
        shutil.rmtree(stage, ignore_errors=True)  # of a restore that was killed
        for path in _files(backup / TABLES_FOLDER):
            copy_file(path, stage / path.relative_to(backup / TABLES_FOLDER))
        for each in found.tables:
            check_copy(stage / each.name, each.version)
        # Landed tables last: without one that another table names, the stream refuses to start.
        for path in sorted(stage.iterdir(), key=lambda path: (path.name in TABLES, path.name)):
            path.rename(root / path.name)
        stage.rmdir()
        os.sync()
    finally:
        lock.close()
    return found


def _begin(root: Path, to: Path) -> tuple[datetime, dict[str, int]]:
    """Copy what lies next to the tables, and return the tables' versions with their time.

    The rest comes first: positions of SQL streams and known identities may be older than the tables, but never newer.
    """
    for _ in range(TRIES):
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        before = _journal_state(root)
        for path in _rest(root):
            try:
                copy_file(path, to / path.relative_to(root))
            except FileNotFoundError:
                continue  # a request was answered, or files of identities were joined
        at = datetime.now(UTC)
        versions = consistent_versions(root, table_names(str(root)))
        if _journal_state(root) == before:
            return at, {name: version for name, version in versions.items() if version >= 0}
    message = f"Corrections, erasures or redrives changed the tables in {root} during each of {TRIES} tries. Try again."
    raise RetryableError(message)


def _rest(root: Path) -> Iterator[Path]:
    """Yield the files next to the tables that a restored stream needs, the names of identities before the identities."""
    for entry in sorted(root.iterdir(), key=lambda path: (path.is_dir(), path.name)):
        if not entry.name.startswith("_") or entry.name in (LOCK_NAME, STAGE) or entry.suffix[1:].isdigit():
            continue  # a table, or a temporary file
        if entry.is_file():
            yield entry
        elif entry.name in (REQUESTS_FOLDER, REPAIR_FOLDER):
            # Waiting requests and instructions. Answers, and what repairs set aside, are in folders.
            yield from (path for path in sorted(entry.iterdir()) if path.is_file() and not path.name.startswith("."))
        else:
            yield from _files(entry)


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent) / name for name in sorted(names))


def _journal_state(root: Path) -> list[tuple[str, int, int]]:
    """Return names, sizes and times of the journals' files."""
    found = [path for name in _JOURNALS for path in (root / name, *_files(root / name)) if path.is_file()]
    states = ((path, path.stat()) for path in found if not path.name.startswith("."))
    return [(str(path), state.st_size, state.st_mtime_ns) for path, state in states]

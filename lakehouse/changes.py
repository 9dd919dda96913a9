"""Files that each committed version of a table added and removed, read from its log without a JVM.

A derived table (rollups, ledger, latest) continues from the last version that it has read; the log names the files since then.
A rearrangement (compaction) changes no rows and is skipped.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from lakehouse.commit_metadata import CommitMetadata, metadata_text
from lakehouse.paths import log_name, table_uri

__all__ = ["DataFile", "LogExpired", "VersionChange", "newest_version", "parse_change", "read_changes", "table_files"]


class LogExpired(Exception):
    """The log no longer holds the version that comes next."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file: `path` as the log writes it (URL-encoded), relative to the table; `low`/`high` its statistics."""

    path: str
    partition: dict[str, str | None] = field(default_factory=dict)
    rows: int | None = None
    bytes: int = 0
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)

    def at(self, uri: str) -> str:
        """The file's whole path or URI."""
        return f"{uri}/{unquote(self.path)}"


@dataclass(frozen=True, slots=True)
class VersionChange:
    """One version: the files whose rows came and went; both are empty where rows were only rearranged."""

    version: int
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    user_metadata: str | None

    @property
    def metadata(self) -> CommitMetadata:
        """What the commit says about itself."""
        return CommitMetadata.parse(self.user_metadata)


def newest_version(root: str, name: str) -> int:
    """The newest version of a table; -1 where there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return int(DeltaTable(table_uri(root, name)).version())
    except TableNotFoundError:
        return -1


def read_changes(root: str, name: str, *, after: int, upto: int | None = None) -> Iterator[VersionChange]:
    """The versions after one up to another (inclusive; None is up to the newest), in order.

    Asking for what came after the newest version costs one look for a file that is not there.

    Raises:
        LogExpired: a version in between is not in the log any more.
    """
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    files = PyFileSystem(DeltaStorageHandler(table_uri(root, name)))
    version = after + 1
    while upto is None or version <= upto:
        text = _log_text(files, version)
        if text is None:
            # The log is cut at its beginning only: where the version before is there, this one is still to come. A table
            # that ends long before is another one (restored, or created again): what was seen before does not apply to it.
            if upto is None and (
                _log_text(files, version - 1) is not None or newest_version(root, name) == version - 1
            ):
                return
            raise LogExpired(version)
        yield parse_change(version, text)
        version += 1


def _log_text(files: Any, version: int) -> str | None:
    try:
        with files.open_input_stream(log_name(version)) as stream:
            return str(stream.readall(), "utf-8")
    except FileNotFoundError:
        return None


def parse_change(version: int, text: str) -> VersionChange:
    """One file of the log."""
    actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return VersionChange(
        version,
        tuple(_file(a["add"]) for a in actions if "add" in a and a["add"].get("dataChange", True)),
        tuple(_file(a["remove"]) for a in actions if "remove" in a and a["remove"].get("dataChange", True)),
        metadata_text(info),
    )


def _file(action: Mapping[str, Any]) -> DataFile:
    stats = json.loads(action.get("stats") or "{}")
    return DataFile(
        action["path"],
        dict(action.get("partitionValues") or {}),
        stats.get("numRecords"),
        action.get("size") or 0,
        stats.get("minValues") or {},
        stats.get("maxValues") or {},
    )


def table_files(root: str, name: str, *, version: int | None = None) -> list[DataFile]:
    """The files of a table as of a version (now where None)."""
    import pyarrow as pa
    from deltalake import DeltaTable

    table = DeltaTable(table_uri(root, name), version=version)
    rows = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    return [
        DataFile(
            row["path"],
            {key: None if value is None else str(value) for key, value in (row.get("partition") or {}).items()},
            row.get("num_records"),
            row.get("size_bytes") or 0,
            row.get("min") or {},
            row.get("max") or {},
        )
        for row in rows
    ]

"""Versions of all tables that belong together, found while a stream writes them, from their logs alone.

Each commit of the landing names the versions of the landed tables before it, and each derived table names the versions that it
has read. Tables that were read one after the other may disagree: one names a version of another table that was committed in
between. The stream would take such a set for tables that lost commits. So a table that is behind is read again.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ingest.contract.errors import RetryableError
from lakehouse.changes import newest_version
from lakehouse.commit_metadata import CommitMetadata, metadata_text
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.health import commit_actions
from lakehouse.paths import log_name
from lakehouse.tables import TABLES
from streaming.landing_offsets import parse_mark

__all__ = ["consistent_versions"]

ROUNDS: Final = 50
"""A round takes milliseconds, and the stream commits a few times a second: two are mostly enough."""


def consistent_versions(root: Path, names: Iterable[str]) -> dict[str, int]:
    """Return a version of each table so that none names a version of another one that is not in the result.

    Raises:
        RetryableError: the tables change too fast.
    """
    # Sources come last, so that what a derived table has read is there already.
    order = sorted(names, key=lambda name: name in TABLES)
    versions = {name: newest_version(str(root), name) for name in order}
    for _ in range(ROUNDS):
        behind = _behind(root, versions)
        if not behind:
            return versions
        versions |= {name: newest_version(str(root), name) for name in behind}
    message = f"The tables in {root} changed {ROUNDS} times while their versions were read. Try again."
    raise RetryableError(message)


def _behind(root: Path, versions: Mapping[str, int]) -> set[str]:
    """Return the tables of which another table names a later version."""
    named = (_named(root / name, version) for name, version in versions.items() if name in ALL_TABLES)
    return {
        source for each in named for source, wanted in each.items() if source in versions and wanted > versions[source]
    }


def _named(folder: Path, version: int) -> Mapping[str, int]:
    """Return the versions that the newest mark or cursor up to a version names; other integers may be among them."""
    for at in range(version, -1, -1):
        if not (folder / log_name(at)).exists():
            break  # older commits were removed, and the newest one with a mark or a cursor never is
        infos = [action["commitInfo"] for action in commit_actions(folder, at) if "commitInfo" in action]
        text = metadata_text(infos[0]) if infos else None
        if mark := parse_mark(text):
            return mark.versions
        if (cursor := CommitMetadata.parse(text).derived) is not None:
            return {name: seen for name, seen in cursor.items() if isinstance(seen, int)}
    return {}

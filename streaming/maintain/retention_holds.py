"""Files and log entries of a table that are still needed: by derivations that have not read them, or by snapshots in use here."""

import time
from collections.abc import Iterator
from typing import Final

from lakehouse.catalog import table_names
from lakehouse.derived_tables import DERIVED
from lakehouse.log_holds import log_holds
from lakehouse.maintenance_log import commit_time
from lakehouse.paths import table_uri
from lakehouse.tables import TABLES
from streaming.derive.cursor import read_cursor

__all__ = ["LONGEST_SECONDS", "needed_since", "needed_versions"]

WRITING_SECONDS: Final = 3600.0
"""A file is older than its commit, by as long as its batch took to write."""
LONGEST_SECONDS: Final = 7 * 86_400.0
"""A derivation further behind than this no longer holds anything back; it is rebuilt from the whole table."""


def needed_since(root: str, name: str, *, default: float, now: float | None = None) -> float:
    """Return the time (epoch seconds) from which the files and the log of a table are kept.

    Args:
        root: of the tables.
        name: of the table that others are derived from.
        default: the result if no derivation is behind.
        now: epoch seconds; the clock's where None.
    """
    needed = default
    for seen in _cursors(root, name):
        # None: the version is still to come, or expired long ago.
        committed = commit_time(root, name, seen + 1)
        needed = min(needed, default if committed is None else committed - WRITING_SECONDS)
    return max(needed, (time.time() if now is None else now) - LONGEST_SECONDS)


def needed_versions(root: str, name: str, *, since: float, readers_seconds: float) -> frozenset[int]:
    """The versions from which somebody reads the log of a table on.

    Args:
        root: of the tables.
        name: of the table.
        since: epoch seconds; a derivation whose next version is older is rebuilt and holds nothing.
        readers_seconds: how long a plan may read a snapshot of this process after a newer one took its place.
    """
    next_versions = (seen + 1 for seen in _cursors(root, name))
    waiting = {each for each in next_versions if (at := commit_time(root, name, each)) is not None and at >= since}
    return frozenset(waiting | log_holds(table_uri(root, name)).held(readers_seconds=readers_seconds))


def _cursors(root: str, name: str) -> Iterator[int]:
    """The last version of the table that each derivation has seen."""
    if name not in TABLES:
        return
    for derived in DERIVED.keys() & set(table_names(root)):
        seen = (read_cursor(root, derived) or {}).get(name)
        if isinstance(seen, int):
            yield seen

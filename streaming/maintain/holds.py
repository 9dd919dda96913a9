"""What the slowest derivation has not seen yet: files and log that must wait for it."""

import time
from typing import Final

from lakehouse.catalog import table_names
from lakehouse.derived import DERIVED
from lakehouse.maintenance_log import commit_time
from lakehouse.tables import TABLES
from streaming.derive.cursor import read_cursor

__all__ = ["needed_since"]

WRITING_SECONDS: Final = 3600.0
"""A file is older than its commit, by as long as its batch took to write."""
LONGEST_SECONDS: Final = 7 * 86_400.0
"""A derivation that is further behind than this no longer holds anything back: it is made anew from the whole table."""


def needed_since(root: str, name: str, *, default: float) -> float:
    """From when on (epoch seconds) the files and the log of a table are kept.

    Args:
        root: of the tables.
        name: of the table that others are derived from.
        default: where nobody is behind.
    """
    needed = default
    if name not in TABLES:
        return needed
    for derived in DERIVED.keys() & set(table_names(root)):
        seen = (read_cursor(root, derived) or {}).get(name)
        if isinstance(seen, int):
            # None: the version is still to come, or expired long ago.
            committed = commit_time(root, name, seen + 1)
            needed = min(needed, default if committed is None else committed - WRITING_SECONDS)
    return max(needed, time.time() - LONGEST_SECONDS)

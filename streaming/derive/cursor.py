"""Cursor of a derived table: how far it has read its source tables, kept in the metadata of its own commits.

Rows and cursor are one atomic commit, so a crash between two commits neither repeats nor skips a change.
"""

from typing import Any, Final

from lakehouse.commit_metadata import encode_metadata, metadata_of

__all__ = ["HISTORY_LIMIT", "encode_cursor", "read_cursor"]

HISTORY_LIMIT: Final = 200
"""Commits searched for the newest cursor: compactions in between carry none."""


def encode_cursor(seen: dict[str, Any]) -> str:
    """The metadata of a commit; `seen` holds a version per source table, and what else the derivation must keep."""
    return encode_metadata({"derived": seen})


def read_cursor(root: str, table: str) -> dict[str, Any] | None:
    """Return the cursor of the table's newest own commit; None if it has none (a new table, or one to be rebuilt)."""
    from lakehouse.catalog import newest_commits, open_table

    found = (metadata_of(commit).derived for commit in newest_commits(open_table(root, table)))
    return next((cursor for cursor in found if cursor is not None), None)

"""How far a derived table has seen the tables that it is derived from: in the metadata of its own commits.

Rows and cursor are one atomic commit, so a crash between two commits neither repeats nor skips a change.
"""

import json
from typing import Any, Final

__all__ = ["encode_cursor", "read_cursor"]

HISTORY_LIMIT: Final = 200
"""Commits searched for the newest cursor: compactions in between carry none."""


def encode_cursor(seen: dict[str, Any]) -> str:
    """The userMetadata of a commit; `seen` holds a version per source table, and what else the derivation must keep."""
    return json.dumps({"derived": seen})


def read_cursor(root: str, table: str) -> dict[str, Any] | None:
    """What the table's newest commit of ours has seen; None where there is none (a new table, or one to be made anew)."""
    from lakehouse.catalog import newest_commits, open_table

    for commit in newest_commits(open_table(root, table)):
        try:
            return dict(json.loads(commit.get("userMetadata") or "")["derived"])
        except (ValueError, KeyError, TypeError):
            continue
    return None

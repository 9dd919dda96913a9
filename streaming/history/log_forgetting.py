"""Removal of an erased device from the tables' logs: statistics and requests that name it go with the oldest part of the log.

Maintenance removes a log up to its newest checkpoint that is old enough, and up to the newest commit that says how far the
table is. A table without writes gets neither. So an erasure gives each table both: a commit that repeats the newest mark, and a
checkpoint.
"""

import json
from contextlib import suppress
from typing import Any, Final

from lakehouse.append import Appender
from lakehouse.catalog import newest_commits, open_table
from lakehouse.changes import LogExpired, read_changes
from lakehouse.commit_metadata import encode_metadata, metadata_of
from lakehouse.maintenance_log import adopt_checkpoint, commit_time, write_checkpoint
from lakehouse.paths import is_local, to_path
from lakehouse.requests import Request
from lakehouse.tables import TABLES
from streaming.history.receipt import FOLDER
from streaming.history.rewrite import table_of
from streaming.writer_context import WriterContext

__all__ = ["begin_log_again", "erasure_waits"]

_NOTHING: Final = {"rows": 0, "files": 0}


def begin_log_again(writer: WriterContext, request: Request, name: str) -> int:
    """Repeat the newest mark of a table, and write a checkpoint; returns its version. No reader needs the log before it."""
    appender = Appender(writer.spark, writer.root, table_of(writer.root, name))
    if _newest_marked(writer.root, name) is not None:

        def told() -> str:
            # Nobody else of this process commits now, so this is the newest one still.
            mark = _newest_marked(writer.root, name) or {}
            if isinstance(mark.get("derived"), dict):
                mark["derived"] = _past_nothing(writer.root, mark["derived"])
            return encode_metadata({**mark, "request": request.mark(), "erased": _NOTHING})

        with appender.begin() as append:
            append.commit(told, data_change=False)
    version = write_checkpoint(writer.root, name)
    adopt_checkpoint(appender, version)
    return version


def erasure_waits(root: str, name: str) -> bool:
    """Return whether a table's log still holds content from before an erasure; its age then counts by the clock alone."""
    if not is_local(root):
        return False
    for path in (to_path(root) / FOLDER).glob("*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            version = json.loads(path.read_text("utf-8"))["tables"][name]["checkpoint"]
            if commit_time(root, name, version - 1) is not None:
                return True
    return False


def _past_nothing(root: str, cursor: dict[str, Any]) -> dict[str, Any]:
    """The cursor of a derived table, past commits that changed no rows: else it would hold back the log before them."""
    moved = dict(cursor)
    for source in TABLES:
        if isinstance(seen := cursor.get(source), int):
            with suppress(LogExpired):
                for change in read_changes(root, source, after=seen):
                    if change.added or change.removed:
                        break
                    moved[source] = change.version
    return moved


def _newest_marked(root: str, name: str) -> dict[str, Any] | None:
    """The newest metadata that says how far the table is, with the time of its commit; None where none does."""
    for commit in newest_commits(open_table(root, name)):
        metadata = metadata_of(commit)
        if metadata.says_progress:
            return {"at_ms": int(commit["timestamp"]), **metadata.data}
    return None

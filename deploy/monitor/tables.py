"""Which tables there are and how new: from the names of the newest files of their logs, at the cost of a folder's listing."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lakehouse.files import is_local

__all__ = ["tables_on_disk"]


def tables_on_disk(root: str) -> list[dict[str, Any]]:
    """Name, version and committed_at (epoch seconds) of each; none of an object store, whose listing would cost."""
    if not is_local(root):
        return []
    return sorted(_tables(Path(root.removeprefix("file://"))), key=lambda table: str(table["name"]))


def _tables(root: Path) -> Iterator[dict[str, Any]]:
    for log in root.glob("*/_delta_log"):
        newest: os.DirEntry[str] | None = None
        try:
            with os.scandir(log) as entries:
                for entry in entries:
                    if _is_commit(entry.name) and (newest is None or entry.name > newest.name):
                        newest = entry
            if newest is not None:
                at = newest.stat().st_mtime
                yield {"name": log.parent.name, "version": int(newest.name[:20]), "committed_at": at}
        except OSError:
            continue  # the table is just being dropped


def _is_commit(name: str) -> bool:
    return len(name) == 25 and name.endswith(".json") and name[:20].isdigit()

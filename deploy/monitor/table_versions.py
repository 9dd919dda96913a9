"""Existing tables and their age, from the file names of their logs.

A log may have a hundred thousand files: it is listed once, and then only checked for the version after the newest known one.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lakehouse.paths import is_local, to_path

__all__ = ["TablesOnDisk"]


class TablesOnDisk:
    """Tables under one local root; an object store gives none, since each look would cost a request."""

    def __init__(self, root: str) -> None:
        self._root = to_path(root) if is_local(root) else None
        self._known: dict[Path, int] = {}

    def look(self) -> list[dict[str, Any]]:
        """Return name, version and committed_at (epoch seconds) of each table, sorted by name."""
        return sorted(self._tables(), key=lambda table: str(table["name"]))

    def _tables(self) -> Iterator[dict[str, Any]]:
        for log in self._root.glob("*/_delta_log") if self._root is not None else ():
            # A table may be dropped during the look.
            with suppress(OSError):
                if (version := self._version(log)) is not None:
                    at = _commit(log, version).stat().st_mtime
                    yield {"name": log.parent.name, "version": version, "committed_at": at}

    def _version(self, log: Path) -> int | None:
        version = self._known.get(log)
        if version is None or not _commit(log, version).exists():
            version = _newest(log)  # a new or recreated table
        while version is not None and _commit(log, version + 1).exists():
            version += 1
        if version is not None:
            self._known[log] = version
        return version


def _commit(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"


def _newest(log: Path) -> int | None:
    with os.scandir(log) as entries:
        names = [entry.name for entry in entries if len(entry.name) == 25 and entry.name.endswith(".json")]
    return max((int(name[:20]) for name in names if name[:20].isdigit()), default=None)

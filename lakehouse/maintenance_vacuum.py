"""Deletion of data files that no kept version refers to, and of leftovers of failed commits."""

import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ingest.contract.errors import FatalError
from lakehouse.paths import table_uri

__all__ = ["SweepResult", "check_keep_hours", "sweep_files"]

LEAST_HOURS: Final = 1
"""A file is written before it is committed, and read after it was listed: nothing younger than this is looked at."""
_CHUNK: Final = 1000


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Files that a sweep deleted (or would delete, in a dry run)."""

    files: int
    bytes: int


def check_keep_hours(hours: float) -> None:
    """Refuse to delete what readers and the stream itself still use.

    Raises:
        FatalError: fewer hours than LEAST_HOURS.
    """
    if hours < LEAST_HOURS:
        message = (
            f"A vacuum that keeps {hours:g} hours would delete files that readers have open, and files that the stream has not "
            f"committed yet. Keep at least {LEAST_HOURS} hour; lake.log_retention_hours sets how far time travel reaches."
        )
        raise FatalError(message)


def sweep_files(
    root: str, name: str, *, keep_hours: float, dry_run: bool = False, now: float | None = None
) -> SweepResult:
    """Delete files that left the table more than `keep_hours` ago, and files that old which never came into it.

    Args:
        root: of the tables.
        name: of the table.
        keep_hours: how long they stay.
        dry_run: only count.
        now: epoch seconds that ages count from, where the machine's clock is not believed.

    Raises:
        FatalError: see `check_keep_hours`.
    """
    from deltalake import DeltaTable
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import FileType, PyFileSystem

    check_keep_hours(keep_hours)
    uri, wall = table_uri(root, name), time.time()
    counted = wall if now is None else min(now, wall)
    listed = DeltaTable(uri).vacuum(
        retention_hours=math.ceil(keep_hours + (wall - counted) / 3600 - 0.01),
        dry_run=True,
        enforce_retention_duration=False,
        full=True,
    )
    files = PyFileSystem(DeltaStorageHandler(uri))
    # Those that the log never named are listed at any age: one may be about to be committed.
    oldest = datetime.fromtimestamp(counted - keep_hours * 3600, UTC)
    count = size = 0
    for first in range(0, len(listed), _CHUNK):
        for info in files.get_file_info(listed[first : first + _CHUNK]):
            if info.type != FileType.File or info.mtime >= oldest:
                continue
            if not dry_run:
                files.delete_file(info.path)
            count, size = count + 1, size + (info.size or 0)
    return SweepResult(count, size)

"""Bounds how long what repairs set aside is kept: such a copy holds rows that are past their retention elsewhere."""

import shutil
from datetime import UTC, datetime, timedelta

from lakehouse.paths import is_local, to_path
from streaming.lost_records import REPAIR_FOLDER

__all__ = ["drop_old_copies"]


def drop_old_copies(root: str, *, now: float, keep_days: int) -> int:
    """Delete copies under `_repair` that are older than dead letters are kept (0 keeps all); returns how many."""
    if not is_local(root) or keep_days <= 0:
        return 0
    oldest, dropped = datetime.fromtimestamp(now, UTC) - timedelta(days=keep_days), 0
    for copy in (to_path(root) / REPAIR_FOLDER).glob("*T*"):
        try:
            made_at = datetime.strptime(copy.name, "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)
        except ValueError:
            continue  # not made by a repair
        if copy.is_dir() and made_at < oldest:
            shutil.rmtree(copy, ignore_errors=True)
            dropped += 1
    return dropped

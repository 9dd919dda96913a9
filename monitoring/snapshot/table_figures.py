"""Tables for the page: sizes from the stream's metrics, versions and commit times from the tables' logs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from monitoring.sample_history import History
from monitoring.snapshot.sums import by_label, finite

__all__ = ["METRICS", "tables"]

_FILES: Final = "tidegate_table_files"
_SMALL: Final = "tidegate_table_small_files"
_BYTES: Final = "tidegate_table_size_bytes"
_COMMITTED: Final = "tidegate_table_last_commit_timestamp_seconds"

METRICS: Final = frozenset({_FILES, _SMALL, _BYTES, _COMMITTED})


def tables(memory: History, known: Sequence[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    """Return one row per table that is on the disk or that the stream reports.

    Args:
        memory: the memory of scrapes.
        known: name, version and committed_at (epoch seconds) of the tables on the disk.
        now: epoch seconds.
    """
    told = {name: by_label(memory.latest(metric), "table") for name, metric in _TOLD.items()}
    here = {str(each["name"]): each for each in known}
    times = by_label(memory.latest(_COMMITTED), "table")
    found = []
    for name in sorted(here.keys() | {table for table, at in times.items() if at}):
        row = here.get(name, {})
        at = max(times.get(name, 0.0), row.get("committed_at") or 0.0)
        figures = {key: values.get(name) for key, values in told.items()}
        ago = finite(max(0.0, now - at), 1) if at else None
        found.append({"name": name, "version": row.get("version"), **figures, "last_commit_seconds_ago": ago})
    return found


_TOLD: Final = {"files": _FILES, "small_files": _SMALL, "bytes": _BYTES}

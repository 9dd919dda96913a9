"""Corrections by request, from the journal: their rows are gone or differ from their records on purpose."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from lakehouse.paths import is_local
from streaming.history.journal import CorrectionJournal, device_hash

__all__ = ["Correction", "read_corrections"]


class Correction(NamedTuple):
    """Readings of a device (SHA-256 of its id) with an event time in [from_us, to_us), of one metric or of all.

    Those that were received before `at_us` were changed, or (`is_deletion`) taken away.
    """

    device_sha256: str
    metric: str | None
    from_us: int | None
    to_us: int | None
    at_us: int
    is_deletion: bool


def read_corrections(root: str) -> Iterator[Correction]:
    """All that are done; the journal is kept next to local tables only."""
    if not is_local(root):
        return
    for entry in CorrectionJournal(root).entries():
        if entry.get("state") != "done":
            continue  # until it is done, what it takes away is missing
        try:
            yield _correction(entry)
        except (ValueError, KeyError, TypeError):
            continue


def _correction(entry: dict[str, Any]) -> Correction:
    device = entry.get("device_sha256") or device_hash(entry["device"])
    low, high = (_us(entry[name]) if entry.get(name) else None for name in ("from", "to"))
    return Correction(str(device), entry.get("metric"), low, high, _us(entry["at"]), bool(entry.get("delete")))


def _us(text: str) -> int:
    at = datetime.fromisoformat(text)
    return int(at.timestamp()) * 1_000_000 + at.microsecond

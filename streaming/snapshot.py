"""The known identities on disk, so that a restart reads a small file and not the whole table. It may be lost or torn."""

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_snapshot", "write_snapshot"]

logger = logging.getLogger("tidegate.streaming.snapshot")

_VERSION: Final = "2"
_READABLE: Final = ("1", "2")
"""Of version 1, which holds each line's words instead of their hash, the reader makes what it needs."""


def write_snapshot(path: Path, ranges: "pa.Table", table_id: str, since: datetime) -> None:
    """Replace the snapshot by one rename. It holds every row that landed before `since`."""
    import pyarrow.parquet as pq

    notes = {"version": _VERSION, "table": table_id, "since_us": str(int(since.timestamp() * 1_000_000))}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        pq.write_table(ranges.replace_schema_metadata(notes), fresh)
        fresh.replace(path)
    except OSError as error:
        # The disk may be full: the next start reads more of the table, nothing else.
        logger.warning("The known identities could not be saved to %s: %s", path, error)
        fresh.unlink(missing_ok=True)


def read_snapshot(path: Path, table_id: str) -> "tuple[pa.Table, datetime] | None":
    """The ranges and the time from which rows must be read again; None where there is no whole snapshot of this table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        ranges = pq.read_table(path)
        notes = {key.decode(): value.decode() for key, value in (ranges.schema.metadata or {}).items()}
        if notes.get("version") not in _READABLE or notes.get("table") != table_id:
            return None
        return ranges.replace_schema_metadata(None), datetime.fromtimestamp(int(notes["since_us"]) / 1_000_000, UTC)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        logger.warning("The known identities in %s are not readable and are built anew: %s", path, error)
        return None

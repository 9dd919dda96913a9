"""Snapshot of the known identities on disk, so that a restart does not read the whole table. It may be lost or torn."""

import json
import logging
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ingest.contract.errors import FatalError
from streaming.point_store import PointFile

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "PARTS_FOLDER",
    "SNAPSHOT_FILE",
    "IdentitySnapshot",
    "missing_file",
    "read_snapshot",
    "saved_identities",
    "write_snapshot",
]

logger = logging.getLogger("tidegate.streaming.snapshot")

SNAPSHOT_FILE: Final = "_seen.parquet"
PARTS_FOLDER: Final = "_identities"
"""Saved identities under the root: the snapshot of the driver, and the parts of executors (streaming/executors/)."""

_VERSION: Final = "3"
_READABLE: Final = ("1", "2", "3")
"""Version 1 holds each line's words instead of their hash; 1 and 2 hold points among the ranges and may lack ranges."""


class IdentitySnapshot(NamedTuple):
    """Content of a snapshot, and the time from which rows must be read again; `points` is None in one of an older version."""

    ranges: "pa.Table"
    since: datetime
    whole: bool
    points: tuple[PointFile, ...] | None


def write_snapshot(
    path: Path,
    ranges: "pa.Table",
    table_id: str,
    since: datetime,
    *,
    whole: bool = True,
    points: Iterable[PointFile] = (),
) -> bool:
    """Replace the snapshot by one rename; False where the disk refuses it.

    Args:
        path: of the snapshot.
        ranges: of counters.
        table_id: of `readings`.
        since: every row that landed before is held.
        whole: whether the ranges hold the whole table.
        points: the files of points.
    """
    import pyarrow.parquet as pq

    notes = {"version": _VERSION, "table": table_id, "since_us": str(int(since.timestamp() * 1_000_000))}
    notes |= {"whole": str(int(whole)), "points": json.dumps(list(points))}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        pq.write_table(ranges.replace_schema_metadata(notes), fresh)
        fresh.replace(path)
        return True
    except OSError as error:
        # The disk may be full: the next start reads more of the table, nothing else.
        logger.warning("cannot save the known identities to %s: %s", path, error)
        fresh.unlink(missing_ok=True)
        return False


def read_snapshot(path: Path, table_id: str) -> IdentitySnapshot | None:
    """Read the snapshot; None if there is no readable one of this table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        ranges = pq.read_table(path)
        notes = {key.decode(): value.decode() for key, value in (ranges.schema.metadata or {}).items()}
        if notes.get("version") not in _READABLE or notes.get("table") != table_id:
            return None
        since = datetime.fromtimestamp(int(notes["since_us"]) / 1_000_000, UTC)
        listed = json.loads(notes["points"]) if notes["version"] == _VERSION else None
        points = None if listed is None else tuple(PointFile(int(day), str(name), int(n)) for day, name, n in listed)
        return IdentitySnapshot(ranges.replace_schema_metadata(None), since, notes.get("whole", "0") == "1", points)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        logger.warning("cannot read the known identities in %s; building them again: %s", path, error)
        return None


def saved_identities(root: Path) -> tuple[Path, ...]:
    """Return what is saved of identities under a local root: it must go where commits of `readings` were lost."""
    return tuple(path for path in (root / SNAPSHOT_FILE, root / PARTS_FOLDER) if path.exists())


def missing_file(what: object) -> FatalError:
    """Return the error of a start whose identities are in a data file that is gone."""
    return FatalError(
        f"A data file of the table readings is missing ({what}). Run `tidegate repair` to see which rows are lost and how to fix "
        "the table."
    )

"""Old rows for a benchmark: one file of a million rows, linked into the days before under many names.

Files and log are those of a large table, and in the log each link has its own span of time; the rows of all links are the same
million. For a reader that opens the table or asks for the last hour, it is like a real large table. A reader of the old rows
would see the same values again and again. The disk has one million rows.
"""

import json
import os
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from deploy.bench.day import day_rows
from lakehouse.paths import log_name, table_uri
from lakehouse.tables import READINGS

__all__ = ["FILE_ROWS", "grow_table"]

FILE_ROWS: Final = 1_000_000
FILES_A_DAY: Final = 8
DEVICES: Final = 1000
SOURCE: Final = "linked-rows.parquet"


def grow_table(root: str, rows: int, *, after: int = 0, now: datetime | None = None) -> None:
    """Put old rows into a table that is in use, in one commit that followers of the table skip.

    Args:
        root: of the tables, a folder.
        rows: whole millions.
        after: rows that were put there before.
        now: the days before this one get the rows.
    """
    folder = Path(table_uri(root, READINGS.name))
    source = Path(root).parent / SOURCE
    if not source.exists():
        _write(source)
    bounds = _bounds(source)
    today = (now or datetime.now(UTC)).replace(hour=0, minute=0, second=0, microsecond=0)
    first, count = after // FILE_ROWS, rows // FILE_ROWS
    adds = [_link(folder, source, bounds, today, number) for number in range(first, first + count)]
    _commit(folder, adds)


def _write(path: Path) -> None:
    import pyarrow.parquet as pq

    # Not compressed: a file of usual size after a day's maintenance, which is not taken up again.
    pq.write_table(day_rows(datetime(2000, 1, 1, tzinfo=UTC), 0, 1, FILE_ROWS, DEVICES), path, compression="none")


def _bounds(path: Path) -> dict[str, tuple[Any, Any]]:
    """Return the least and the greatest value of the columns that have statistics, besides times."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows = pq.read_table(path, columns=list(READINGS.statistics))
    extremes = {name: pc.min_max(rows[name]).as_py() for name in READINGS.statistics}
    return {name: (one["min"], one["max"]) for name, one in extremes.items()}


def _link(
    folder: Path, source: Path, bounds: dict[str, tuple[Any, Any]], today: datetime, number: int
) -> dict[str, Any]:
    """One file with its entry for the log: from yesterday backwards, one stretch of time for each."""
    high = today - timedelta(days=1) / FILES_A_DAY * number - timedelta(seconds=1)
    low = high - timedelta(days=1) / FILES_A_DAY + timedelta(seconds=1)
    name = f"date={high:%Y-%m-%d}/linked-{number:06d}.parquet"
    (folder / name).parent.mkdir(exist_ok=True)
    os.link(source, folder / name)
    values = {
        column: (_text(low), _text(high)) if isinstance(least, datetime) else (least, most)
        for column, (least, most) in bounds.items()
    }
    stats = {
        "numRecords": FILE_ROWS,
        "minValues": {column: least for column, (least, _) in values.items()},
        "maxValues": {column: most for column, (_, most) in values.items()},
        "nullCount": dict.fromkeys(values, 0),
    }
    return {
        "path": name, "partitionValues": {"date": f"{high:%Y-%m-%d}"}, "size": source.stat().st_size,
        "modificationTime": int(high.timestamp() * 1000), "dataChange": False, "stats": json.dumps(stats),
    }  # fmt: skip


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}.000Z"


def _commit(folder: Path, adds: list[dict[str, Any]]) -> None:
    """Write the next version of the log; where the stream was faster, the one after that."""
    from deltalake import DeltaTable

    info = {"timestamp": int(time.time() * 1000), "operation": "OPTIMIZE", "engineInfo": "tidegate bench"}
    lines = [json.dumps({"commitInfo": info}), *(json.dumps({"add": add}) for add in adds)]
    made = folder / "_delta_log" / ".linked-rows.json"
    made.write_text("\n".join(lines) + "\n", "utf-8")
    try:
        linked = False
        while not linked:
            version = DeltaTable(str(folder)).version() + 1
            with suppress(FileExistsError):
                os.link(made, folder / log_name(version))
                linked = True
    finally:
        made.unlink()

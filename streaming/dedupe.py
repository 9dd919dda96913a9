"""Which rows are already stored: identities (message_id, device, metric, index), in compact ranges, on the driver.

A message id `bs:<boot>:<seq>` is the number seq on the line (device, metric, index, boot): a device that counts without
gaps needs one range per metric and boot, for ever. Any other id is a line with one point. A batch's key columns are read
back from the file that Spark wrote and compared here, all rows at once in DuckDB, before the file is committed.

The ranges are derived from the table and can be lost: `load` reads the snapshot on disk, if there is a fitting one, and
the rows that landed since.
"""

import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import FatalError
from lakehouse.create import table_uri
from lakehouse.dataset import dataset_of
from streaming.snapshot import read_snapshot, write_snapshot

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KEY_COLUMNS", "Seen"]

KEY_COLUMNS: Final = ("device", "metric", "index", "message_id", "boot", "seq", "partition", "offset")

RANGES_LIMIT: Final = 1_000_000
"""Ranges kept, 48 bytes each; past it those not met for longest are forgotten, so a late copy would be stored."""
FOLD_BATCHES: Final = 64
FOLD_ROWS: Final = 50_000
FOLD_SHARE: Final = 0.25
"""The newest ranges are folded into all others when they are that many of them: one fold costs a second per million."""
SAVE_SECONDS: Final = 60.0
RELOAD_MARGIN: Final = timedelta(minutes=10)
"""Read again beyond the snapshot's time, in case the clock was set back; what is known already folds into itself."""

_LINE: Final = "d, a, b"

# A line is known by the MD5 of its four words, in two halves, and its device by half of one: comparing texts costs many
# times as much, and any version of any program makes the same value of them. Each text has its length before it.
_LOW_HALF: Final = "18446744073709551615::UHUGEINT"
_HASHED: Final = f"""
    (md5_number(device) & {_LOW_HALF})::UBIGINT AS d, (line >> 64)::UBIGINT AS a, (line & {_LOW_HALF})::UBIGINT AS b FROM (
        SELECT *, md5_number(concat(length(device), ':', device, length(metric), ':', metric, index, ':', stem)) AS line
        FROM """  # noqa: S608

_KEYED: Final = f"""
    SELECT * EXCLUDE (line), {_HASHED} (
        SELECT *, row_number() OVER () AS row,
            CASE WHEN message_id = 'bs:' || boot || ':' || seq THEN 'bs:' || boot ELSE message_id END AS stem,
            CASE WHEN message_id = 'bs:' || boot || ':' || seq THEN seq ELSE 0 END AS number
        FROM rows))"""  # noqa: S608

_DUPLICATES: Final = f"""
    WITH placed AS (
        SELECT row, partition, "offset", message_id, number, a, b,
            row_number() OVER (PARTITION BY partition, "offset" ORDER BY row) - 1 AS position,
            row_number() OVER (PARTITION BY a, b, number ORDER BY row) AS copy
        FROM ({_KEYED})
    ), stored AS (
        SELECT DISTINCT placed.row FROM seen JOIN placed ON seen.a = placed.a AND seen.b = placed.b
            AND placed.number BETWEEN seen.low AND seen.high
    )
    SELECT row, partition, "offset", position FROM placed
    WHERE message_id IS NOT NULL AND (copy > 1 OR row IN (FROM stored)) ORDER BY row"""  # noqa: S608

_RANGES: Final = f"""
    SELECT d, a, b, number AS low, number AS high, $last::BIGINT AS last
    FROM ({_KEYED}) WHERE message_id IS NOT NULL"""  # noqa: S608

# Snapshots of older versions hold the four words themselves.
_CONVERTED: Final = f"SELECT low, high, last, {_HASHED} ranges)"

_WITHOUT: Final = f"SELECT * FROM ranges WHERE d <> (md5_number($device) & {_LOW_HALF})::UBIGINT"  # noqa: S608

# Gaps and islands: a range opens a new island where it does not touch what came before it on its line.
_FOLD: Final = f"""
    WITH opened AS (
        SELECT *, low - 1 > coalesce(max(high) OVER (
            PARTITION BY {_LINE} ORDER BY low, high ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), -2) AS opens
        FROM ranges
    ), numbered AS (
        SELECT *, sum(opens::INT) OVER (PARTITION BY {_LINE} ORDER BY low, high ROWS UNBOUNDED PRECEDING) AS island
        FROM opened
    )
    SELECT {_LINE}, min(low) AS low, max(high) AS high, max(last) AS last
    FROM numbered GROUP BY {_LINE}, island"""  # noqa: S608


class Seen:
    """The identities in `readings`. The landing's batch calls it, one call at a time; `forget` may come from beside."""

    def __init__(self, snapshot: Path | None = None) -> None:
        """`snapshot` is where the ranges are kept between runs; None keeps them in memory alone."""
        import duckdb

        # One thread: the work is small and Spark has the cores. What does not fit is spilled to a folder of our own.
        spill = tempfile.mkdtemp(prefix="tidegate-identities-")
        weakref.finalize(self, shutil.rmtree, spill, ignore_errors=True)
        self._duckdb = duckdb.connect(config={"threads": 1, "memory_limit": "512MB", "temp_directory": spill})
        self._duckdb.execute("SET enable_progress_bar = false")  # a log is no terminal
        self._snapshot = snapshot
        self._table_id = ""
        self._base: pa.Table = self._query(_FOLD, ranges=_empty_ranges())
        self._recent: list[pa.Table] = []
        self._saved = time.monotonic()
        self._lock = threading.RLock()

    @property
    def range_count(self) -> int:
        """Ranges held now."""
        return int(self._base.num_rows + sum(chunk.num_rows for chunk in self._recent))

    def load(self, root: str, *, horizon_days: float) -> None:
        """Learn what is stored: the snapshot, and the rows that landed since (all of the horizon where there is none).

        Raises:
            FatalError: a data file is gone; names the next step.
        """
        from deltalake import DeltaTable

        table = DeltaTable(table_uri(root, "readings"))
        self._table_id = str(table.metadata().id)
        held = read_snapshot(self._snapshot, self._table_id) if self._snapshot else None
        since = datetime.now(UTC) - timedelta(days=horizon_days)
        if held is not None:
            self._base, since = self._plain(held[0]), held[1] - RELOAD_MARGIN
        # Rows that are read again were met most recently: the limit must not forget them first.
        now = int(time.time())
        try:
            for chunk in _stored_since(table, since):
                self._recent.append(self._fold([self._query(_RANGES, {"last": now}, rows=chunk)]))
                if sum(each.num_rows for each in self._recent) >= FOLD_ROWS:
                    self._base, self._recent = self._fold([self._base, *self._recent]), []
        except FileNotFoundError as error:
            message = (
                f"The table readings misses a data file ({error}). `tidegate repair` counts what is lost and mends it."
            )
            raise FatalError(message) from error
        self._base, self._recent = self._fold([self._base, *self._recent]), []

    def duplicates(self, rows: "pa.Table") -> "pa.Table":
        """The rows of a batch that are stored already or stand twice in it: row (from 1), partition, offset, position.

        Args:
            rows: KEY_COLUMNS, in the order written; `position` counts rows of the same record.
        """
        import pyarrow as pa

        with self._lock:
            return self._query(_DUPLICATES, rows=rows, seen=pa.concat_tables([self._base, *self._recent]))

    def add(self, rows: "pa.Table", landed_at: datetime) -> None:
        """Remember the rows that were committed; `landed_at` is the time they carry."""
        with self._lock:
            self._recent.append(self._query(_RANGES, {"last": int(landed_at.timestamp())}, rows=rows))
            if len(self._recent) >= FOLD_BATCHES or sum(chunk.num_rows for chunk in self._recent[1:]) >= FOLD_ROWS:
                self._recent = [self._fold(self._recent)]
                if self._recent[0].num_rows > max(FOLD_ROWS, FOLD_SHARE * self._base.num_rows):
                    self._base, self._recent = self._fold([self._base, *self._recent]), []
                if time.monotonic() - self._saved > SAVE_SECONDS:
                    self.save(landed_at)

    def save(self, landed_at: datetime) -> None:
        """Write the snapshot; rows from `landed_at` on are read again at the next start."""
        import pyarrow as pa

        with self._lock:
            self._saved = time.monotonic()
            if self._snapshot:
                write_snapshot(self._snapshot, pa.concat_tables([self._base, *self._recent]), self._table_id, landed_at)

    def forget(self, device: str) -> None:
        """Know nothing of a device any more, here and in the snapshot: what it sent before is new if it comes again."""
        with self._lock:
            self._base, *self._recent = (self._without(ranges, device) for ranges in (self._base, *self._recent))
            if self._snapshot and (held := read_snapshot(self._snapshot, self._table_id)) is not None:
                write_snapshot(self._snapshot, self._without(self._plain(held[0]), device), self._table_id, held[1])

    def _without(self, ranges: "pa.Table", device: str) -> "pa.Table":
        return self._query(_WITHOUT, {"device": device}, ranges=ranges)

    def _plain(self, held: "pa.Table") -> "pa.Table":
        """What a snapshot holds, as this version holds it in memory."""
        held = self._query(_CONVERTED, ranges=held) if "stem" in held.column_names else held
        return held.select(self._base.column_names)

    def _fold(self, chunks: "Sequence[pa.Table]") -> "pa.Table":
        import pyarrow as pa

        folded = self._query(_FOLD, ranges=pa.concat_tables(chunks))
        if folded.num_rows > RANGES_LIMIT:
            folded = folded.sort_by([("last", "descending")]).slice(0, RANGES_LIMIT)
        return folded

    def _query(self, sql: str, given: dict[str, Any] | None = None, **tables: "pa.Table") -> "pa.Table":
        for name, table in tables.items():
            self._duckdb.register(name, table)
        return self._duckdb.sql(sql, params=given).to_arrow_table()


def _empty_ranges() -> "pa.Table":
    import pyarrow as pa

    half, number = pa.uint64(), pa.int64()
    return pa.schema(
        [("d", half), ("a", half), ("b", half), ("low", number), ("high", number), ("last", number)]
    ).empty_table()


def _stored_since(table: Any, since: datetime) -> "Iterator[pa.Table]":
    """Key columns of the rows in the table that landed since then, in chunks that fit into memory."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    # Not by received_at: what was redriven was received long before.
    condition = ds.field("landed_at") >= pa.scalar(since, pa.timestamp("us", tz="UTC"))
    batches = dataset_of(table).to_batches(columns=list(KEY_COLUMNS), filter=condition, batch_size=131_072)
    for batch in batches:
        if batch.num_rows:
            yield pa.Table.from_batches([batch])

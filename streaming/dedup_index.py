"""Index of stored identities (message_id, device, metric, index), in which the driver finds rows that are already stored.

A message id `bs:<boot>:<seq>` is the number seq on the line (device, metric, index, boot). A device that counts without gaps
needs only one range per metric and boot. Any other id is a point: a hash on disk for the time of the horizon
(streaming/point_store.py), so points never displace a range. The key columns of a batch are read back from the file that Spark
wrote, and all rows are compared here at once, before the file is committed.

Ranges and points are derived from the table and may be lost. `load` reads the snapshot, which also names the files of points,
and the rows that landed since. Without a snapshot it reads the horizon, and for the ranges the whole table.
"""

import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakehouse.dataset import dataset_of
from lakehouse.paths import table_uri
from streaming.arrow_sql import ArrowSql
from streaming.identity_snapshot import missing_file, read_snapshot, write_snapshot
from streaming.landing_offsets import newest_mark
from streaming.point_store import POINTS_LIMIT, PointStore

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

__all__ = ["KEY_COLUMNS", "DedupIndex", "points_folder"]

logger = logging.getLogger("tidegate.streaming.dedupe")

KEY_COLUMNS: Final = ("device", "metric", "index", "message_id", "boot", "seq", "partition", "offset")

RANGES_LIMIT: Final = 2_000_000
"""Ranges kept, 48 bytes each; past it those not met for longest are forgotten, so a late copy would be stored."""
FOLD_BATCHES: Final = 64
FOLD_ROWS: Final = 50_000
SAVE_POINTS: Final = 50_000
"""Points in memory alone that are worth a snapshot."""
HISTORY_PATIENCE_SECONDS: Final = 60.0
"""Time that a start waits for the ranges of the whole table; after it they are learned while landing runs."""
FOLD_SHARE: Final = 0.25
"""The newest ranges are folded into all others when they are that many of them: one fold costs a second per million."""
SAVE_SECONDS: Final = 60.0
RELOAD_MARGIN: Final = timedelta(minutes=10)
"""Read again beyond the snapshot's time, in case the clock was set back; what is known already folds into itself."""

DAY_SECONDS: Final = 86_400

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
            CASE WHEN counted THEN 'bs:' || boot ELSE message_id END AS stem, CASE WHEN counted THEN seq ELSE 0 END AS number
        FROM (SELECT *, coalesce(message_id = 'bs:' || boot || ':' || seq, false) AS counted FROM rows)))"""  # noqa: S608

_PLACED: Final = f"""
    SELECT row, partition, "offset", message_id, counted, number, a, b,
        row_number() OVER (PARTITION BY partition, "offset" ORDER BY row) - 1 AS position,
        row_number() OVER (PARTITION BY a, b, number ORDER BY row) AS copy
    FROM ({_KEYED})"""  # noqa: S608

_POINTS: Final = "SELECT a FROM placed WHERE message_id IS NOT NULL AND NOT counted AND copy = 1"

_DUPLICATES: Final = """
    WITH stored AS (
        SELECT DISTINCT placed.row FROM seen JOIN placed ON placed.counted AND seen.a = placed.a AND seen.b = placed.b
            AND placed.number BETWEEN seen.low AND seen.high
    )
    SELECT row, partition, "offset", position, FALSE AS replayed FROM placed WHERE message_id IS NOT NULL
        AND (copy > 1 OR row IN (FROM stored) OR (NOT counted AND a IN (SELECT a FROM points))) ORDER BY row"""

_RANGES: Final = f"""
    SELECT d, a, b, number AS low, number AS high, $last::BIGINT AS last FROM ({_KEYED}) WHERE counted"""  # noqa: S608

_NEW_POINTS: Final = f"""
    SELECT a, (d & 4294967295)::BIGINT AS tag FROM ({_KEYED}) WHERE message_id IS NOT NULL AND NOT counted"""  # noqa: S608

# An older version held points among the ranges: those that are the number 0 of their line.
_OLD_POINTS: Final = """
    SELECT last // 86400 AS day, a, (d & 4294967295)::BIGINT AS tag FROM ranges WHERE low = 0 AND high = 0"""

_TAG: Final = f"SELECT (md5_number($device) & {_LOW_HALF} & 4294967295)::BIGINT AS tag"

# Islands before hashes: of a table's history there are few lines and many rows.
_LINES: Final = f"""
    SELECT d, a, b, low, high, 0::BIGINT AS last FROM (
        SELECT low, high, {_HASHED} (
            SELECT device, metric, index, 'bs:' || boot AS stem, min(seq) AS low, max(seq) AS high FROM (
                SELECT *, seq - row_number() OVER (PARTITION BY device, metric, index, boot ORDER BY seq) AS island FROM (
                    SELECT DISTINCT device, metric, index, boot, seq FROM rows WHERE message_id = 'bs:' || boot || ':' || seq
                )) GROUP BY device, metric, index, boot, island)))"""  # noqa: S608

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


class DedupIndex:
    """The identities in `readings`. The landing's batch makes one call at a time; `forget` may come from another thread."""

    def __init__(self, snapshot: Path | None = None) -> None:
        """`snapshot` is where the ranges are kept between runs, the points next to it; None keeps neither."""
        self._sql, self._snapshot = _spilling_sql(), snapshot
        self._points = PointStore(points_folder(snapshot) if snapshot else None)
        self._table_id = ""
        self._base: pa.Table = self._sql.query(_FOLD, ranges=_empty_ranges())
        self._recent: list[pa.Table] = []
        self._saved = time.monotonic()
        self._lock = threading.RLock()
        self._horizon_days, self._evicted = math.inf, 0
        self._whole, self._forgotten, self._stopped = True, list[str](), threading.Event()
        self._joining, self._history = threading.Thread(), threading.Thread()

    @property
    def range_count(self) -> int:
        """Ranges held now."""
        return int(self._base.num_rows + sum(chunk.num_rows for chunk in self._recent))

    @property
    def figures(self) -> dict[str, tuple[int, float, int]]:
        """Per kind (ranges, points): the number held, the share of the limit, and the number forgotten because of the limit."""
        ranges, points = self.range_count, self._points.count
        return {
            "range": (ranges, ranges / RANGES_LIMIT, self._evicted),
            "point": (points, points / POINTS_LIMIT, self._points.evicted),
        }

    def load(self, root: str, *, horizon_days: float) -> None:
        """Learn what is stored: the snapshot, and the rows that landed since.

        Where there is no snapshot, that is the horizon, and the ranges of the whole table: those are read while landing runs
        when they take longer than a minute.

        Raises:
            FatalError: a data file is gone; names the next step.
        """
        from deltalake import DeltaTable

        table = DeltaTable(table_uri(root, "readings"))
        self._table_id, self._horizon_days = str(table.metadata().id), horizon_days
        held = read_snapshot(self._snapshot, self._table_id) if self._snapshot else None
        # Identities past the table's newest commit were lost with that commit, and their rows have to be stored again.
        if held is not None and (mark := newest_mark(root, "readings")) and mark.at_ms < held.since.timestamp() * 1000:
            held = None
        oldest = since = datetime.now(UTC) - timedelta(days=horizon_days)
        lost = self._points.open((held and held.points) or ())
        self._whole = held is not None and held.whole
        if held is not None:
            self._base, since = self._plain(held.ranges), held.since - RELOAD_MARGIN
            if held.points is None:
                # An older version held the points among the ranges, and too few of them.
                self._take_old_points()
                since = min(oldest, since)
        rows = dataset_of(table)
        try:
            for day in sorted(lost):
                begin = _begin(day)
                for chunk in _stored(rows, begin, min(begin + timedelta(days=1), since)):
                    self._add_points(chunk, day)
            self._learn_since(rows, since)
        except FileNotFoundError as error:
            raise missing_file(error) from error
        self._base, self._recent = self._fold([self._base, *self._recent]), []
        self._join_points()
        if not self._whole:
            self._history = threading.Thread(
                target=self._learn_history, args=(rows, since), name="history", daemon=True
            )
            self._history.start()
            self._history.join(HISTORY_PATIENCE_SECONDS)

    def _learn_since(self, rows: "ds.FileSystemDataset", since: datetime) -> None:
        # Rows that are read again were met most recently: the limit must not forget them first.
        now, first = datetime.now(UTC), _day(since)
        for day in range(first, max(first, _day(now)) + 1):
            self._join_points()
            end = None if day >= _day(now) else _begin(day + 1)
            for chunk in _stored(rows, max(since, _begin(day)), end):
                self._add_points(chunk, day)
                self._recent.append(self._fold([self._sql.query(_RANGES, {"last": int(now.timestamp())}, rows=chunk)]))
                if sum(each.num_rows for each in self._recent) >= FOLD_ROWS:
                    self._base, self._recent = self._fold([self._base, *self._recent]), []

    def _learn_history(self, rows: "ds.FileSystemDataset", before: datetime) -> None:
        """Ranges of all that landed before: few, however long the table is. Ends early where a file is gone or it is late."""
        sql = _spilling_sql()
        try:
            for chunk in _stored(rows, None, before, counted=True):
                if self._stopped.is_set():
                    return
                ranges = sql.query(_LINES, rows=chunk)
                with self._lock:
                    for device in self._forgotten:
                        ranges = self._without(ranges, device)
                    self._recent.append(ranges)
                    if sum(each.num_rows for each in self._recent) >= FOLD_ROWS:
                        self._base, self._recent = self._fold([self._base, *self._recent]), []
            self._whole = True
        except OSError as error:
            logger.warning("The ranges of older readings are incomplete; the next start reads them again: %s", error)

    def duplicates(self, rows: "pa.Table") -> "pa.Table":
        """Return the rows of a batch that are stored or twice in it: row (from 1), partition, offset, position, replayed.

        Args:
            rows: KEY_COLUMNS, in the order written; `position` counts rows of the same record.
        """
        import pyarrow as pa

        with self._lock:
            placed = self._sql.query(_PLACED, rows=rows)
            found = self._points.find(self._sql.query(_POINTS, placed=placed)["a"].to_pylist())
            points = pa.table({"a": pa.array(found, pa.uint64())})
            seen = pa.concat_tables([self._base, *self._recent])
            return self._sql.query(_DUPLICATES, placed=placed, seen=seen, points=points)

    def add(self, rows: "pa.Table", landed_at: datetime, *, at: datetime | None = None) -> None:
        """Remember the rows that were committed.

        Args:
            rows: KEY_COLUMNS.
            landed_at: the time they carry.
            at: Kafka's newest time of them, where it is known: the earlier of the two moves the horizon.
        """
        with self._lock:
            self._add_points(rows, _day(landed_at))
            self._recent.append(self._sql.query(_RANGES, {"last": int(landed_at.timestamp())}, rows=rows))
            due = self._points.fresh_count >= SAVE_POINTS
            if len(self._recent) >= FOLD_BATCHES or sum(chunk.num_rows for chunk in self._recent[1:]) >= FOLD_ROWS:
                due, self._recent = True, [self._fold(self._recent)]
                if self._recent[0].num_rows > max(FOLD_ROWS, FOLD_SHARE * self._base.num_rows):
                    self._base, self._recent = self._fold([self._base, *self._recent]), []
            if due and time.monotonic() - self._saved > SAVE_SECONDS:
                self._points.expire(_day(min(landed_at, at or landed_at)), self._horizon_days)
                self.save(landed_at)
                self._join_points()

    def save(self, landed_at: datetime) -> None:
        """Write the snapshot; rows from `landed_at` on are read again at the next start."""
        import pyarrow as pa

        with self._lock:
            self._saved = time.monotonic()
            self._points.flush()
            if self._snapshot:
                ranges = pa.concat_tables([self._base, *self._recent])
                self._write(ranges, landed_at)

    def close(self, landed_at: datetime | None = None) -> None:
        """End the background work, and save what landed up to `landed_at`."""
        self._stopped.set()
        for thread in (self._joining, self._history):
            if thread.is_alive():
                thread.join()
        if landed_at is not None:
            self.save(landed_at)

    def forget(self, device: str) -> None:
        """Forget a device, here and on disk: its earlier messages count as new if they come again."""
        with self._lock:
            self._forgotten.append(device)
            tag = self._tag(device)
        self._points.forget(tag)  # takes long if there are many points; the landing continues
        with self._lock:
            self._base, *self._recent = (self._without(ranges, device) for ranges in (self._base, *self._recent))
            held = read_snapshot(self._snapshot, self._table_id) if self._snapshot else None
            self._points.flush()
            if held is None:
                self._points.sweep()
            else:
                self._write(self._without(self._plain(held.ranges), device), held.since)

    def _write(self, ranges: "pa.Table", since: datetime) -> None:
        if self._snapshot and write_snapshot(
            self._snapshot, ranges, self._table_id, since, whole=self._whole, points=self._points.entries()
        ):
            self._points.sweep()

    def _add_points(self, rows: "pa.Table", day: int) -> None:
        points = self._sql.query(_NEW_POINTS, rows=rows)
        if points.num_rows:
            self._points.add(day, points["a"].to_pylist(), points["tag"].to_pylist())

    def _join_points(self) -> None:
        if not self._joining.is_alive():
            self._joining = threading.Thread(
                target=self._points.join, args=(self._stopped.is_set,), name="points", daemon=True
            )
            self._joining.start()

    def _tag(self, device: str) -> int:
        return int(self._sql.query(_TAG, {"device": device})["tag"][0].as_py())

    def _without(self, ranges: "pa.Table", device: str) -> "pa.Table":
        return self._sql.query(_WITHOUT, {"device": device}, ranges=ranges)

    def _plain(self, held: "pa.Table") -> "pa.Table":
        """Convert the ranges of a snapshot to the form of this version."""
        held = self._sql.query(_CONVERTED, ranges=held) if "stem" in held.column_names else held
        return held.select(self._base.column_names)

    def _take_old_points(self) -> None:
        for day, a, tag in zip(*self._sql.query(_OLD_POINTS, ranges=self._base).to_pydict().values(), strict=True):
            self._points.add(day, [a], [tag])

    def _fold(self, chunks: "Sequence[pa.Table]") -> "pa.Table":
        import pyarrow as pa

        folded = self._sql.query(_FOLD, ranges=pa.concat_tables(chunks))
        if folded.num_rows > RANGES_LIMIT:
            self._evicted += folded.num_rows - RANGES_LIMIT
            folded = folded.sort_by([("last", "descending")]).slice(0, RANGES_LIMIT)
        return folded


def points_folder(snapshot: Path) -> Path:
    """Return the folder of the points that belong to this snapshot."""
    return snapshot.with_name(f"{snapshot.stem}_points")


def _spilling_sql() -> ArrowSql:
    return ArrowSql("512MB", spills=True)


def _day(at: datetime) -> int:
    return int(at.timestamp() // DAY_SECONDS)


def _begin(day: int) -> datetime:
    return datetime.fromtimestamp(day * DAY_SECONDS, UTC)


def _empty_ranges() -> "pa.Table":
    import pyarrow as pa

    half, number = pa.uint64(), pa.int64()
    return pa.schema(
        [("d", half), ("a", half), ("b", half), ("low", number), ("high", number), ("last", number)]
    ).empty_table()


def _stored(
    rows: "ds.FileSystemDataset", begin: datetime | None, end: datetime | None, *, counted: bool = False
) -> "Iterator[pa.Table]":
    """Key columns of the rows that landed from begin to before end, in chunks that fit into memory.

    `counted` leaves out what has no counter.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    # Not by received_at: what was redriven was received long before.
    landed, kind = ds.field("landed_at"), pa.timestamp("us", tz="UTC")
    wanted = ds.field("message_id").is_valid()
    wanted = wanted & ds.field("boot").is_valid() & ds.field("seq").is_valid() if counted else wanted
    wanted = wanted & (landed >= pa.scalar(begin, kind)) if begin else wanted
    wanted = wanted & (landed < pa.scalar(end, kind)) if end else wanted
    for batch in rows.to_batches(columns=list(KEY_COLUMNS), filter=wanted, batch_size=131_072):
        if batch.num_rows:
            yield pa.Table.from_batches([batch])

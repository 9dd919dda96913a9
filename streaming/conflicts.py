"""Copies that say something else than what is stored under their identity: dead letters `conflicting_duplicate`.

Content is value, text, unit and the time that the device claimed (`device_time`); the receive time of a copy is always
another one and says nothing. What landed last is remembered as two hashes a row, so that the copies of a gateway's crash
are compared without a look at the table. Older ones are looked up in the table: at most `LOOKUP_FILES` files, those of the
device, the newest first, and for a bounded share of the time: a device that repeats a month must not slow the others.
What cannot be compared (its row was deleted by retention, or the look-up's share is used up) stays a plain duplicate.
"""

import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from lakehouse.create import table_uri
from lakehouse.dataset import dataset_of
from lakehouse.files import read_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COMPARED_COLUMNS", "Contents", "load_recent", "make_lookup"]

CONTENT_COLUMNS: Final = ("value", "text", "unit", "device_time", "flags")
_IDENTITY: Final = ("device", "metric", "index", "message_id", "partition", "offset")
COMPARED_COLUMNS: Final = (*_IDENTITY, *CONTENT_COLUMNS)

REMEMBERED_ROWS: Final = 500_000
"""Newest rows with an identity that are remembered, at 44 bytes each."""
FOLD_CHUNKS: Final = 64
RECENT: Final = timedelta(minutes=2)
LOOKUP_FILES: Final = 256
LOOKUP_SHARE: Final = 0.05
"""Of the time at most, over look-ups in the table."""
SHOWN_READINGS: Final = 5

_FAR: Final = datetime.max.replace(tzinfo=UTC)

# A time that the gateway made of a relative one differs at each delivery; a corrected row is no longer what was sent.
_HASHED: Final = """
    SELECT hash(device, metric, index, message_id) AS id,
        CASE WHEN list_contains(flags, 'corrected') THEN NULL ELSE hash(value, text, unit,
            CASE WHEN list_contains(flags, 'relative_time') THEN NULL ELSE epoch_us(device_time) END) END AS content,
        value, partition, "offset" FROM rows WHERE message_id IS NOT NULL"""

_NUMBERED: Final = "SELECT *, row_number() OVER () AS row FROM rows"

_COPIES: Final = f"""
    SELECT n.*, c.position, n."offset" IN (SELECT "offset" FROM kept k WHERE k.partition = n.partition) AS partial
    FROM ({_NUMBERED}) n JOIN copies c USING (row)"""  # noqa: S608

_KEPT: Final = f"SELECT * EXCLUDE (row) FROM ({_NUMBERED}) WHERE row NOT IN (SELECT row FROM copies)"  # noqa: S608

_JOINED: Final = f"""
    SELECT c.*, k.id IS NOT NULL AS known, k.value AS stored_value, k.partition AS stored_partition,
        k."offset" AS stored_offset, coalesce(k.content <> h.content, false) AS conflicts
    FROM (SELECT *, row_number() OVER () AS place FROM rows) c
    JOIN (SELECT row_number() OVER () AS place, * FROM ({_HASHED})) h USING (place)
    LEFT JOIN (SELECT id, any_value(content) AS content, any_value(value) AS value, any_value(partition) AS partition,
        any_value("offset") AS "offset" FROM known GROUP BY id) k ON k.id = h.id
    ORDER BY c.place"""  # noqa: S608

Lookup = Callable[["pa.Table"], "pa.Table"]
"""Copies -> rows of the table, COMPARED_COLUMNS, some of which may have their identities."""


class Contents:
    """What was stored last under which identity. Not thread-safe: the landing's batch calls it, or its one worker."""

    def __init__(self, lookup: Lookup | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`lookup` asks the table for copies that are not remembered; None leaves those uncompared."""
        import duckdb

        self._duckdb = duckdb.connect(config={"threads": 1, "memory_limit": "256MB"})
        self._duckdb.execute("SET enable_progress_bar = false")  # a log is no terminal
        self._lookup, self._clock = lookup, clock
        self._chunks: list[pa.Table] = []
        self._rest_until = 0.0

    @property
    def remembered(self) -> int:
        """Rows remembered now."""
        return sum(chunk.num_rows for chunk in self._chunks)

    def remember(self, rows: "pa.Table") -> None:
        """Keep the content of committed rows (COMPARED_COLUMNS)."""
        import pyarrow as pa

        if hashed := self._query(_HASHED, rows=rows):
            self._chunks.append(hashed)
        if len(self._chunks) > FOLD_CHUNKS or self.remembered > REMEMBERED_ROWS:
            whole = pa.concat_tables(self._chunks)
            kept = whole.slice(max(0, whole.num_rows - REMEMBERED_ROWS))
            self._chunks = [pa.table(kept.combine_chunks())]

    def conflicts(self, rows: "pa.Table", copies: "pa.Table") -> tuple[list[dict[str, Any]], int]:
        """The copies of a batch that contradict what is stored, one entry per record, and how many could not be compared.

        Args:
            rows: all rows of the batch, COMPARED_COLUMNS, in the order written.
            copies: those that are dropped, as `Seen.duplicates` gives them.

        Returns:
            Entries of partition, offset, path, got, wanted, partial (True where other readings of the record are stored).
        """
        import pyarrow as pa

        kept = self._query(_KEPT, rows=rows, copies=copies)
        found = self._query(_COPIES, rows=rows, copies=copies, kept=kept)
        known = [self._query(_HASHED, rows=kept), *self._chunks]
        judged = self._query(_JOINED, rows=found, known=pa.concat_tables(known))
        missing, unchecked = found.filter(_not(judged["known"])), 0
        if missing.num_rows:
            stored = self._stored(missing)
            late = self._query(_JOINED, rows=missing, known=self._query(_HASHED, rows=stored))
            unchecked = int(late.filter(_not(late["known"])).num_rows)
            judged = pa.concat_tables([judged, late])
        return _by_record(judged.filter(judged["conflicts"]).to_pylist()), unchecked

    def _stored(self, missing: "pa.Table") -> "pa.Table":
        began = self._clock()
        if self._lookup is None or began < self._rest_until:
            return missing.slice(0, 0)
        stored = self._lookup(missing)
        took = self._clock() - began
        self._rest_until = began + took / LOOKUP_SHARE
        self.remember(stored)
        return stored

    def _query(self, sql: str, **tables: "pa.Table") -> "pa.Table":
        for name, table in tables.items():
            self._duckdb.register(name, table)
        return self._duckdb.sql(sql).to_arrow_table()


def make_lookup(root: str) -> Lookup:
    """A look-up in `readings`: only files whose statistics admit the copies' devices, the newest first."""

    def lookup(copies: "pa.Table") -> "pa.Table":
        import pyarrow as pa
        import pyarrow.compute as pc

        devices = sorted(set(copies["device"].to_pylist()))
        identities, found = copies["message_id"].combine_chunks(), [copies.select(COMPARED_COLUMNS).slice(0, 0)]
        for path in _files(root, devices):
            # One that maintenance has just taken away is in the table under another name.
            with suppress(FileNotFoundError):
                rows = read_columns(table_uri(root, "readings"), [path], COMPARED_COLUMNS)
                same = pc.and_(pc.is_in(rows["message_id"], identities), pc.is_in(rows["device"], pa.array(devices)))
                found.append(rows.filter(same).cast(found[0].schema))
        return pa.concat_tables(found)

    return lookup


def load_recent(root: str, contents: Contents) -> None:
    """Remember what landed in the last minutes: what a gateway sends again after a crash of both."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    rows = dataset_of(DeltaTable(table_uri(root, "readings")))
    recent = ds.field("landed_at") >= pa.scalar(datetime.now(UTC) - RECENT, pa.timestamp("us", tz="UTC"))
    # A file that is gone is told by others; here it only means that its rows are not compared.
    with suppress(FileNotFoundError):
        for batch in rows.to_batches(columns=list(COMPARED_COLUMNS), filter=recent):
            if batch.num_rows:
                contents.remember(pa.Table.from_batches([batch]))


def _files(root: str, devices: list[str]) -> list[str]:
    """Paths of the newest data files whose rows may be of one of these devices (sorted)."""
    import pyarrow as pa
    from deltalake import DeltaTable

    actions = pa.table(DeltaTable(table_uri(root, "readings")).get_add_actions(flatten=True))
    names = ("path", "min.device", "max.device", "max.landed_at")
    columns = (actions[name].to_pylist() if name in actions.column_names else [None] * len(actions) for name in names)
    admitted = [
        (landed or _FAR, unquote(path))
        for path, low, high, landed in zip(*columns, strict=True)
        if _admits(low, high, devices)
    ]
    return [path for _, path in sorted(admitted, reverse=True)[:LOOKUP_FILES]]


def _admits(low: str | None, high: str | None, devices: list[str]) -> bool:
    # Delta cuts long texts in its statistics; a maximum is then followed by a character that sorts behind any other.
    if low is None or high is None:
        return True
    at = bisect_left(devices, low)
    return at < len(devices) and devices[at] <= high


def _by_record(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    records: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in rows:
        records.setdefault((row["partition"], row["offset"]), []).append(row)
    return [_letter(partition, offset, found) for (partition, offset), found in sorted(records.items())]


def _letter(partition: int, offset: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    first, more = rows[0], len(rows) - SHOWN_READINGS
    tail = [f"{more} more"] if more > 0 else []
    got = [_shown(row["metric"], row["value"], row["text"], row["unit"]) for row in rows[:SHOWN_READINGS]]
    stored = [_shown(row["metric"], row["stored_value"]) for row in rows[:SHOWN_READINGS]]
    origin = f"partition {first['stored_partition']} offset {first['stored_offset']}"
    wanted = f"what is stored under {first['message_id']} from {origin}: {'; '.join([*stored, *tail])}"
    return {
        "partition": partition,
        "offset": offset,
        "path": f"$.readings[{first['position']}]",
        "got": "; ".join([*got, *tail]),
        "wanted": wanted,
        "partial": bool(first["partial"]),
    }


def _shown(metric: str, value: float | None, text: str | None = None, unit: str | None = None) -> str:
    shown = text if text is not None else "another text" if value is None else f"{value:.15g}"
    return f"{metric[:60]} = {shown[:60]}{f' {unit[:20]}' if unit else ''}"


def _not(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    import pyarrow.compute as pc

    return pc.invert(column)

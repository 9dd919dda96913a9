"""Comparison of duplicates with stored rows: equal, different (`conflicting_duplicate`), not comparable (`unchecked_duplicate`).

A copy is equal if its message has the stored payload (`payload_hash`), whatever profile, unit or zone decoded the two.
Otherwise it is equal if value, text, unit and the claimed time (`device_time`) are the same. The receive time of a copy always
differs and is ignored, with one exception: a native message (`bs:`) without a time of its own that one gateway receives again,
live, more than `REDELIVERY` after the first one. A redelivery comes within minutes. So this is a device that uses a `boot` and
`seq` again, and nobody can know whether its reading is new: it is a dead letter.

The last rows are remembered as a few numbers each, so that copies after a gateway's crash need no look-up. Older rows are
looked up in the table with one scan per batch: first in the files that may have the copies' devices and event times, then in
all files that may have the devices, the newest first.

A device that repeats a month must not slow down the others, so look-ups have a bounded share of the time. A copy without time
for its look-up, or whose row was deleted by retention, is a dead letter: nothing is dropped without a comparison.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.reasons import Reason
from lakehouse.dataset import dataset_of
from lakehouse.paths import table_uri
from streaming.arrow_sql import ArrowSql
from streaming.lookups import Lookup, TimedLookup, admitted_files, matching_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COMPARED_COLUMNS", "DuplicateComparator", "load_recent", "make_lookup"]

CONTENT_COLUMNS: Final = ("value", "text", "unit", "device_time", "flags", "payload_hash")
_IDENTITY: Final = ("device", "metric", "index", "message_id", "partition", "offset")
_MESSAGE: Final = ("gateway", "gateway_epoch", "message_number")
COMPARED_COLUMNS: Final = (*_IDENTITY, *CONTENT_COLUMNS, *_MESSAGE, "event_time", "received_at")

REMEMBERED_ROWS: Final = 500_000
"""Newest rows with an identity that are remembered, at 76 bytes each."""
REDELIVERY: Final = timedelta(minutes=10)
"""Age of a copy up to which it counts as a redelivery, unless it waited somewhere."""
FOLD_CHUNKS: Final = 64
RECENT: Final = timedelta(minutes=2)
SHOWN_READINGS: Final = 5

# A time that the gateway made of a relative one differs at each delivery; a corrected row is no longer what was sent. Of a
# telegram that several receivers heard (`tg:`) each has its own time, and what they added to it (`rx:`) is theirs alone.
_HASHED: Final = """
    SELECT hash(device, metric, index, message_id) AS id,
        CASE WHEN list_contains(flags, 'corrected') THEN NULL WHEN starts_with(message_id, 'rx:') THEN 0::UBIGINT
            ELSE hash(value, text, unit, CASE WHEN list_contains(flags, 'relative_time') OR starts_with(message_id, 'tg:')
            THEN NULL ELSE epoch_us(device_time) END) END AS content,
        payload_hash, hash(gateway, gateway_epoch, message_number) AS message, value, partition, "offset",
        CASE WHEN starts_with(message_id, 'bs:') AND device_time IS NULL AND NOT list_contains(flags, 'may_have_waited')
            AND NOT list_contains(flags, 'retained') THEN epoch_us(received_at) END AS arrived, hash(gateway) AS heard_by
    FROM rows WHERE message_id IS NOT NULL"""

_NUMBERED: Final = "SELECT *, row_number() OVER () AS row FROM rows"

# Topic and payload are the whole identity of a retained message (`rt:`) and of a replay: their copies cannot differ.
_COPIES: Final = f"""
    SELECT n.*, c.position, n."offset" IN (SELECT "offset" FROM kept k WHERE k.partition = n.partition) AS partial
    FROM ({_NUMBERED}) n JOIN copies c USING (row) WHERE NOT replayed AND NOT starts_with(n.message_id, 'rt:')"""  # noqa: S608

_KEPT: Final = f"SELECT * EXCLUDE (row) FROM ({_NUMBERED}) WHERE row NOT IN (SELECT row FROM copies)"  # noqa: S608

# Two readings of one message may share an identity: the payload is then the same and says nothing.
_JUDGED: Final = f"""
    WITH copy AS (SELECT row_number() OVER () AS place, * FROM ({_HASHED})), found AS (
        SELECT place, count(k.id) > 0 AS known,
            bool_or(k.payload_hash = c.payload_hash AND k.message <> c.message) AS same_payload,
            bool_or(k.payload_hash <> c.payload_hash) AS other_payload,
            bool_or(k.content = c.content) AS same_content, bool_or(k.content <> c.content) AS other_content,
            arg_min(k.value, k.content = c.content) AS stored_value, any_value(k.partition) AS stored_partition,
            any_value(k."offset") AS stored_offset,
            min(CASE WHEN k.heard_by = c.heard_by THEN abs(c.arrived - k.arrived) ELSE 0 END) AS apart
        FROM copy c LEFT JOIN known k ON k.id = c.id GROUP BY place
    )
    SELECT n.*, f.* EXCLUDE (place, same_payload, other_payload, same_content, other_content),
        coalesce((same_payload OR same_content) AND apart > {REDELIVERY // timedelta(microseconds=1)}, FALSE) AS reused, CASE
        WHEN NOT known THEN '{Reason.UNCHECKED_DUPLICATE}'
        WHEN reused THEN '{Reason.CONFLICTING_DUPLICATE}'
        WHEN same_payload OR same_content THEN NULL
        WHEN other_content THEN '{Reason.CONFLICTING_DUPLICATE}'
        WHEN other_payload THEN '{Reason.UNCHECKED_DUPLICATE}' END AS reason
    FROM (SELECT *, row_number() OVER () AS place FROM rows) n JOIN found f USING (place) ORDER BY place"""  # noqa: S608


class DuplicateComparator:
    """Content stored last per identity. Not thread-safe: the landing's batch calls it, or its one worker."""

    def __init__(self, lookup: Lookup | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`lookup` asks the table for copies that are not remembered; None leaves those unchecked."""
        self._sql = ArrowSql()
        self._search = TimedLookup(lookup, self._sql, clock) if lookup is not None else None
        self._chunks: list[pa.Table] = []

    @property
    def remembered(self) -> int:
        """Rows remembered now."""
        return sum(chunk.num_rows for chunk in self._chunks)

    def remember(self, rows: "pa.Table") -> None:
        """Keep the content of committed rows (COMPARED_COLUMNS)."""
        self._keep(self._sql.query(_HASHED, rows=rows))

    def conflicts(self, rows: "pa.Table", copies: "pa.Table") -> tuple[list[dict[str, Any]], int]:
        """The records of a batch that become dead letters, one entry each, and how many copies could not be compared.

        Args:
            rows: all rows of the batch, COMPARED_COLUMNS, in the order written.
            copies: those that are dropped, as `Seen.duplicates` gives them.

        Returns:
            Entries of reason, partition, offset, path, got, wanted, partial (True where other readings of the record are
            stored). A record with a copy of either kind is a conflict.
        """
        import pyarrow as pa

        kept = self._sql.query(_KEPT, rows=rows, copies=copies)
        found = self._sql.query(_COPIES, rows=rows, copies=copies, kept=kept)
        known = [self._sql.query(_HASHED, rows=kept), *self._chunks]
        judged = self._sql.query(_JUDGED, rows=found, known=pa.concat_tables(known))
        missing = found.filter(_not(judged["known"]))
        if missing.num_rows:
            late = self._sql.query(_JUDGED, rows=missing, known=self._stored(missing))
            judged = pa.concat_tables([judged.filter(judged["known"]), late])
        refused = [row for row in judged.to_pylist() if row["reason"] is not None]
        unchecked = sum(row["reason"] == Reason.UNCHECKED_DUPLICATE for row in refused)
        return _by_record(refused), unchecked

    def _stored(self, missing: "pa.Table") -> "pa.Table":
        """Return the stored rows with the identities of these copies, as far as the time for look-ups allows."""
        import pyarrow as pa

        wanted = self._sql.query(_HASHED, rows=missing)
        found = self._search.find(missing, set(wanted["id"].to_pylist()), "id", _HASHED) if self._search else []
        stored = pa.concat_tables([wanted.slice(0, 0), *found])
        self._keep(stored)
        return stored

    def _keep(self, hashed: "pa.Table") -> None:
        import pyarrow as pa

        if hashed.num_rows:
            self._chunks.append(hashed)
        if len(self._chunks) > FOLD_CHUNKS or self.remembered > REMEMBERED_ROWS:
            whole = pa.concat_tables(self._chunks)
            kept = whole.slice(max(0, whole.num_rows - REMEMBERED_ROWS))
            self._chunks = [pa.table(kept.combine_chunks())]


def make_lookup(root: str) -> Lookup:
    """A look-up in `readings`: only files whose statistics admit the copies, piece by piece."""

    def lookup(copies: "pa.Table") -> "Iterator[pa.Table]":
        import pyarrow.dataset as ds
        from deltalake import DeltaTable

        table, devices = DeltaTable(table_uri(root, "readings")), sorted(set(copies["device"].to_pylist()))
        times, kind = sorted(set(copies["event_time"].to_pylist())), copies["event_time"].type
        same = ds.field("message_id").isin(copies["message_id"].combine_chunks()) & ds.field("device").isin(devices)
        files = admitted_files(table, devices)
        # A device that sends a message again says the same time, and files hold seconds of live readings.
        likely = [(each, same & within) for each in files if (within := each.between(times, kind)) is not None]
        yield from matching_rows(table, [*likely, *((each, same) for each in files)], COMPARED_COLUMNS)

    return lookup


def load_recent(root: str, contents: DuplicateComparator) -> None:
    """Remember what landed in the last minutes: what a gateway sends again after a crash of both."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    rows = dataset_of(DeltaTable(table_uri(root, "readings")))
    recent = ds.field("landed_at") >= pa.scalar(datetime.now(UTC) - RECENT, pa.timestamp("us", tz="UTC"))
    # Other code reports a missing file; here it only means that its rows are not compared.
    with suppress(FileNotFoundError):
        for batch in rows.to_batches(columns=list(COMPARED_COLUMNS), filter=recent):
            if batch.num_rows:
                contents.remember(pa.Table.from_batches([batch]))


def _by_record(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    records: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in rows:
        records.setdefault((row["partition"], row["offset"]), []).append(row)
    return [_letter(partition, offset, found) for (partition, offset), found in sorted(records.items())]


def _letter(partition: int, offset: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    conflicts = [row for row in rows if row["reason"] == Reason.CONFLICTING_DUPLICATE]
    rows = conflicts or rows
    first, more = rows[0], len(rows) - SHOWN_READINGS
    tail = [f"{more} more"] if more > 0 else []
    got = [_shown(row["metric"], row["value"], row["text"], row["unit"]) for row in rows[:SHOWN_READINGS]]
    if conflicts and first["reused"]:
        wanted = (
            f"another `boot` at each start: {first['message_id']} with the same content and no device time was received "
            f"{timedelta(seconds=first['apart'] // 1_000_000)} earlier"
        )
    elif conflicts:
        stored = [_shown(row["metric"], row["stored_value"]) for row in rows[:SHOWN_READINGS]]
        origin = f"partition {first['stored_partition']} offset {first['stored_offset']}"
        wanted = f"the content stored for {first['message_id']} from {origin}: {'; '.join([*stored, *tail])}"
    else:
        wanted = (
            f"a comparison with the stored row of {first['message_id']}: the row is deleted or corrected, or there was no time "
            "left to look for it"
        )
    return {
        "reason": first["reason"],
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

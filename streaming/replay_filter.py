"""Filter for readings of retained messages that are stored already: a broker replays these to each new subscription.

A retained message is recognised by its topic and payload, whenever it was stored and with whatever identity: the live delivery
of the same message has none if the device gives none. So the table itself is searched for the devices of the batch's retained
messages. That happens only after a new subscription. Look-ups have a bounded share of the time. A message that was not found in
that time is stored, and marked `retained` like any other replay.

If a batch runs again after `duplicates` has counted its copies, it leaves out the same ones, however long the look-up takes.
Otherwise a message would be stored and also counted as a copy.
"""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from lakehouse.paths import table_uri
from streaming.arrow_sql import ArrowSql
from streaming.duplicate_rows import CountedDuplicates
from streaming.lookups import Lookup, TimedLookup, admitted_files, matching_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["REPLAY_COLUMNS", "ReplayFilter", "make_replay_lookup"]

_KEY: Final = ("device", "metric", "index", "mqtt_topic", "payload_hash")
REPLAY_COLUMNS: Final = (*_KEY, "retained", "partition", "offset")
"""Columns of the batch's rows that are read back."""

_HASH: Final = f"hash({', '.join(_KEY)})"
_WANTED: Final = f"""
    WITH numbered AS (SELECT *, row_number() OVER () AS row FROM rows),
    placed AS (SELECT *, row_number() OVER (PARTITION BY partition, "offset" ORDER BY row) - 1 AS position FROM numbered)
    SELECT row, partition, "offset", position, {_HASH} AS key, {", ".join(_KEY)} FROM placed
    WHERE retained AND payload_hash IS NOT NULL AND row NOT IN (SELECT row FROM copies)"""  # noqa: S608
_LIVE: Final = f"SELECT DISTINCT {_HASH} AS key FROM rows WHERE NOT coalesce(retained, false)"  # noqa: S608
_KEYS: Final = f"SELECT DISTINCT {_HASH} AS key FROM rows"  # noqa: S608
_FOUND: Final = """
    SELECT row, partition, "offset", position, TRUE AS replayed FROM wanted WHERE key IN (SELECT key FROM known)
    UNION ALL SELECT row, partition, "offset", position, replayed FROM copies ORDER BY row"""

# The records that an earlier run of this batch has judged: with all of their readings left out, some, or none.
_JUDGED: Final = """
    WITH numbered AS (SELECT *, row_number() OVER () AS row FROM rows),
    placed AS (
        SELECT *, row_number() OVER (PARTITION BY partition, "offset" ORDER BY row) - 1 AS position,
            count(*) OVER (PARTITION BY partition, "offset") AS readings FROM numbered
    )
    SELECT row, p.partition, p."offset", position, coalesce(readings_dropped, 0) AS dropped, readings
    FROM placed p JOIN covered v ON v.partition = p.partition AND p."offset" < v."end"
        LEFT JOIN counted c ON c."offset" = p."offset" AND c.partition = p.partition"""
_COUNTED: Final = """
    SELECT row, partition, "offset", position, replayed FROM copies
    UNION ALL SELECT row, partition, "offset", position, TRUE FROM judged
    WHERE dropped = readings AND row NOT IN (SELECT row FROM copies) ORDER BY row"""
_STILL_WANTED: Final = "SELECT * FROM wanted WHERE row NOT IN (SELECT row FROM judged WHERE dropped = 0)"


class ReplayFilter:
    """Finds replays of retained messages. Not thread-safe: the landing's batch calls it."""

    def __init__(self, lookup: Lookup, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sql = ArrowSql()
        self._search = TimedLookup(lookup, self._sql, clock)

    def add_stored(self, rows: "pa.Table", copies: "pa.Table", counted: CountedDuplicates | None = None) -> "pa.Table":
        """The copies of a batch, and the readings of its retained messages that are stored already, by row.

        Args:
            rows: all rows of the batch, REPLAY_COLUMNS, in the order written.
            copies: as `Seen.duplicates` gives them.
            counted: what an earlier run of the batch left out; None where this is the first.
        """
        import pyarrow as pa

        judged = None if counted is None else self._judged(rows, counted)
        if judged is not None:
            copies = self._sql.query(_COUNTED, copies=copies, judged=judged)
        wanted = self._sql.query(_WANTED, rows=rows, copies=copies)
        if judged is not None:
            wanted = self._sql.query(_STILL_WANTED, wanted=wanted, judged=judged)
        if not wanted.num_rows:
            return copies
        known = [self._sql.query(_LIVE, rows=rows)]
        left = set(wanted["key"].to_pylist()) - set(known[0]["key"].to_pylist())
        known += self._search.find(wanted, left, "key", _KEYS, bounded=counted is None)
        return self._sql.query(_FOUND, wanted=wanted, copies=copies, known=pa.concat_tables(known))

    def _judged(self, rows: "pa.Table", counted: CountedDuplicates) -> "pa.Table":
        import pyarrow as pa

        schema = pa.schema([("partition", pa.int32()), ("end", pa.int64())])
        ends = [{"partition": partition, "end": end} for partition, end in counted.ends]
        return self._sql.query(_JUDGED, rows=rows, covered=pa.Table.from_pylist(ends, schema), counted=counted.records)


def make_replay_lookup(root: str) -> Lookup:
    """A look-up in `readings`: only files whose statistics admit the devices, the newest first."""

    def lookup(wanted: "pa.Table") -> "Iterator[pa.Table]":
        import pyarrow.dataset as ds
        from deltalake import DeltaTable

        table, devices = DeltaTable(table_uri(root, "readings")), sorted(set(wanted["device"].to_pylist()))
        same = ds.field("device").isin(devices) & ds.field("payload_hash").isin(wanted["payload_hash"].combine_chunks())
        yield from matching_rows(table, ((file, same) for file in admitted_files(table, devices)), _KEY)

    return lookup

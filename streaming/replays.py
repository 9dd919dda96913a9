"""Finds the readings of retained messages that are stored already: a broker replays those to each new subscription.

A retained message is recognised by its topic and payload, however long ago it was stored and whatever identity it had then:
the live delivery of the same message has none where the device gives none. So the table itself is asked, of devices that
the batch holds retained messages of. That happens only after a new subscription. Look-ups have a bounded share of the time;
what was not found in it is stored, and marked `retained` like any other replay.
"""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from lakehouse.create import table_uri
from streaming.arrow_sql import ArrowSql
from streaming.lookups import Lookup, Search, admitted_files, matching_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["REPLAY_COLUMNS", "Replays", "make_replay_lookup"]

_KEY: Final = ("device", "metric", "index", "mqtt_topic", "payload_hash")
REPLAY_COLUMNS: Final = (*_KEY, "retained", "partition", "offset")
"""What is read back of the batch's rows."""

_HASH: Final = f"hash({', '.join(_KEY)})"
_WANTED: Final = f"""
    WITH numbered AS (SELECT *, row_number() OVER () AS row FROM rows),
    placed AS (SELECT *, row_number() OVER (PARTITION BY partition, "offset" ORDER BY row) - 1 AS position FROM numbered)
    SELECT row, partition, "offset", position, {_HASH} AS key, {", ".join(_KEY)} FROM placed
    WHERE retained AND payload_hash IS NOT NULL AND row NOT IN (SELECT row FROM copies)"""  # noqa: S608
_LIVE: Final = f"SELECT DISTINCT {_HASH} AS key FROM rows WHERE NOT coalesce(retained, false)"  # noqa: S608
_KEYS: Final = f"SELECT DISTINCT {_HASH} AS key FROM rows"  # noqa: S608
_FOUND: Final = """
    SELECT row, partition, "offset", position FROM wanted WHERE key IN (SELECT key FROM known)
    UNION ALL SELECT row, partition, "offset", position FROM copies ORDER BY row"""


class Replays:
    """Not thread-safe: the landing's batch calls it."""

    def __init__(self, lookup: Lookup, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sql = ArrowSql()
        self._search = Search(lookup, self._sql, clock)

    def add_stored(self, rows: "pa.Table", copies: "pa.Table") -> "pa.Table":
        """The copies of a batch, and the readings of its retained messages that are stored already, by row.

        Args:
            rows: all rows of the batch, REPLAY_COLUMNS, in the order written.
            copies: as `Seen.duplicates` gives them.
        """
        import pyarrow as pa

        wanted = self._sql.query(_WANTED, rows=rows, copies=copies)
        if not wanted.num_rows:
            return copies
        known = [self._sql.query(_LIVE, rows=rows)]
        left = set(wanted["key"].to_pylist()) - set(known[0]["key"].to_pylist())
        known += self._search.find(wanted, left, "key", _KEYS)
        return self._sql.query(_FOUND, wanted=wanted, copies=copies, known=pa.concat_tables(known))


def make_replay_lookup(root: str) -> Lookup:
    """A look-up in `readings`: only files whose statistics admit the devices, the newest first."""

    def lookup(wanted: "pa.Table") -> "Iterator[pa.Table]":
        import pyarrow.dataset as ds
        from deltalake import DeltaTable

        table, devices = DeltaTable(table_uri(root, "readings")), sorted(set(wanted["device"].to_pylist()))
        same = ds.field("device").isin(devices) & ds.field("payload_hash").isin(wanted["payload_hash"].combine_chunks())
        yield from matching_rows(table, ((file, same) for file in admitted_files(table, devices)), _KEY)

    return lookup

"""Finds the readings of retained messages that are stored already: a broker replays those to each new subscription.

A retained message is recognised by its topic and payload, however long ago it was stored and whatever identity it had then:
the live delivery of the same message has none where the device gives none. So the table itself is asked, of devices that
the batch holds retained messages of. That happens only after a new subscription. Look-ups have a bounded share of the time;
what was not found in it is stored, and marked `retained` like any other replay.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lakehouse.create import table_uri
from lakehouse.dataset import file_dataset
from streaming.lookups import LookupTime, admitted_files

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

Lookup = Callable[["pa.Table"], Iterable["pa.Table"]]
"""Rows of retained messages -> rows of the table (device, metric, index, mqtt_topic, payload_hash), some of which equal them."""


class Replays:
    """Not thread-safe: the landing's batch calls it."""

    def __init__(self, lookup: Lookup, *, clock: Callable[[], float] = time.monotonic) -> None:
        import duckdb

        self._duckdb = duckdb.connect(config={"threads": 1, "memory_limit": "256MB"})
        self._duckdb.execute("SET enable_progress_bar = false")  # a log is no terminal
        self._lookup, self._time = lookup, LookupTime(clock)

    def add_stored(self, rows: "pa.Table", copies: "pa.Table") -> "pa.Table":
        """The copies of a batch, and the readings of its retained messages that are stored already, by row.

        Args:
            rows: all rows of the batch, REPLAY_COLUMNS, in the order written.
            copies: as `Seen.duplicates` gives them.
        """
        import pyarrow as pa

        wanted = self._query(_WANTED, rows=rows, copies=copies)
        if not wanted.num_rows:
            return copies
        known = [self._query(_LIVE, rows=rows)]
        left = set(wanted["key"].to_pylist()) - set(known[0]["key"].to_pylist())
        for piece in self._time.bounded(lambda: self._lookup(wanted)) if left else ():
            known.append(self._query(_KEYS, rows=piece))
            left.difference_update(known[-1]["key"].to_pylist())
            if not left:
                break
        return self._query(_FOUND, wanted=wanted, copies=copies, known=pa.concat_tables(known))

    def _query(self, sql: str, **tables: "pa.Table") -> "pa.Table":
        for name, table in tables.items():
            self._duckdb.register(name, table)
        return self._duckdb.sql(sql).to_arrow_table()


def make_replay_lookup(root: str) -> Lookup:
    """A look-up in `readings`: only files whose statistics admit the devices, the newest first."""

    def lookup(wanted: "pa.Table") -> "Iterator[pa.Table]":
        import pyarrow.dataset as ds
        from deltalake import DeltaTable

        table, devices = DeltaTable(table_uri(root, "readings")), sorted(set(wanted["device"].to_pylist()))
        same = ds.field("device").isin(devices) & ds.field("payload_hash").isin(wanted["payload_hash"].combine_chunks())
        for file in admitted_files(table, devices):
            # One that maintenance has just taken away is in the table under another name.
            with suppress(FileNotFoundError):
                rows = file_dataset(table, file.path)
                yield rows.to_table(list(_KEY), same, batch_readahead=2, use_threads=False)

    return lookup

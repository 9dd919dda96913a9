"""Rows of `duplicates`: one per record of a batch that has readings which were already stored."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from lakehouse.dataset import dataset_of
from lakehouse.paths import table_uri
from streaming.arrow_sql import ArrowSql

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COPIED_COLUMNS", "CountedDuplicates", "drop_landed_records", "duplicate_rows", "read_counted_duplicates"]

_MESSAGE: Final = "device, gateway, gateway_epoch, message_number"
COPIED_COLUMNS: Final = (
    "device", "received_at", "kafka_time", "message_id", "mqtt_topic", "gateway", "gateway_epoch", "message_number",
    "partition", "offset", "date",
)  # fmt: skip
"""Columns of the batch's rows that are read back."""

# A message may have two records of one device: it is a copy as a whole where none of them has a row that stays.
_ROWS: Final = f"""
    WITH numbered AS (SELECT *, row_number() OVER () AS row FROM rows),
    dropped AS (SELECT n.*, n.row IN (SELECT row FROM copies) AS is_copy FROM numbered n),
    judged AS (SELECT *, bool_and(is_copy) OVER (PARTITION BY {_MESSAGE}) AS whole FROM dropped)
    SELECT any_value(device) AS device, any_value(received_at) AS received_at, any_value(kafka_time) AS kafka_time,
        $landed_at::TIMESTAMPTZ AS landed_at, first(message_id ORDER BY row) AS message_id,
        any_value(mqtt_topic) AS mqtt_topic, any_value(gateway) AS gateway, any_value(gateway_epoch) AS gateway_epoch,
        any_value(message_number) AS message_number, count(*)::BIGINT AS readings_dropped, any_value(whole) AS whole,
        partition, "offset", any_value(date) AS date
    FROM judged WHERE is_copy GROUP BY partition, "offset" ORDER BY partition, "offset\""""  # noqa: S608


@dataclass(frozen=True, slots=True)
class CountedDuplicates:
    """Facts about a batch in earlier commits of `duplicates`.

    Attributes:
        ends: of each partition that they cover, the offset up to which they do.
        records: those with readings left out: partition, offset, readings_dropped.
    """

    ends: tuple[tuple[int, int], ...]
    records: "pa.Table"


def read_counted_duplicates(root: str, rows: "pa.Table", ends: Iterable[tuple[int, int]]) -> CountedDuplicates:
    """The records of these rows (`received_at`, partition, offset) that `duplicates` counts already."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    stored, received = dataset_of(DeltaTable(table_uri(root, "duplicates"))), ds.field("received_at")
    first, last = (
        pc.cast(at, stored.schema.field("received_at").type) for at in pc.min_max(rows["received_at"]).values()
    )
    wanted = (received >= first) & (received <= last) & ds.field("offset").isin(rows["offset"].combine_chunks())
    return CountedDuplicates(tuple(ends), stored.to_table(["partition", "offset", "readings_dropped"], filter=wanted))


def duplicate_rows(rows: "pa.Table", copies: "pa.Table", landed_at: datetime) -> "pa.Table":
    """One row per record that loses readings.

    Args:
        rows: all rows of the batch, COPIED_COLUMNS, in the order written.
        copies: those that are left out, as `Seen.duplicates` gives them.
        landed_at: when the batch began.
    """
    return ArrowSql().query(_ROWS, {"landed_at": landed_at}, rows=rows, copies=copies)


def drop_landed_records(rows: "pa.Table", topic: str, landed: Iterable[tuple[str, int, int]]) -> "pa.Table":
    """Without the records of the topic that lie before what the table's own commits cover: (topic, partition, end)."""
    import pyarrow.compute as pc

    for name, partition, end in landed:
        if name == topic:
            covered = pc.and_(pc.equal(rows["partition"], partition), pc.less(rows["offset"], end))
            rows = rows.filter(pc.invert(covered))
    return rows

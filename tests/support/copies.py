"""Tables as the landing's duplicate comparator takes them; `from tests.support.copies import COMPARED, COPIES`."""

import pyarrow as pa

COMPARED = pa.schema(
    [
        ("device", pa.string()), ("metric", pa.string()), ("index", pa.int32()), ("message_id", pa.string()),
        ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.float64()), ("text", pa.string()),
        ("unit", pa.string()), ("device_time", pa.timestamp("us", "UTC")), ("flags", pa.list_(pa.string())),
        ("payload_hash", pa.int64()), ("event_time", pa.timestamp("us", "UTC")),
        ("gateway", pa.string()), ("gateway_epoch", pa.int64()), ("message_number", pa.int64()),
        ("received_at", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip
"""Rows of a batch with the columns that are compared."""
COPIES = pa.schema(
    [
        ("row", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("position", pa.int64()),
        ("replayed", pa.bool_()),
    ]
)
"""A copy: its row in the batch, and where the first one lies."""

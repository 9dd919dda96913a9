"""Rows that the audit joins: their columns, and rows made of Kafka records and of readings as they must be stored."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from ingest.contract.dead_letter import DeadLetterRecord
from ingest.contract.reading import ReadingRecord
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.log import LogRecord

__all__ = [
    "CORRECTION_ROWS",
    "COUNTED_ROWS",
    "ERASED_ROWS",
    "GATEWAY_ROWS",
    "LANDED_ROWS",
    "LIFE_ROWS",
    "READING_ROWS",
    "RECORD_ROWS",
    "RUN_ROWS",
    "arrow_table",
    "dead_letter_row",
    "reading_rows",
    "record_row",
]

RECORD_ROWS: Final = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("at_ms", pa.int64()),
        ("gateway", pa.string()), ("epoch", pa.int64()), ("number", pa.int64()), ("received_us", pa.int64()),
        ("device", pa.string()), ("mqtt_topic", pa.string()), ("is_partial", pa.bool_()), ("is_qos_0", pa.bool_()),
        ("payload", pa.string()),
    ]
)  # fmt: skip
READING_ROWS: Final = pa.schema(
    [
        ("partition", pa.int32()), ("offset", pa.int64()), ("epoch", pa.int64()), ("number", pa.int64()),
        ("received_us", pa.int64()), ("device", pa.string()), ("metric", pa.string()), ("index", pa.int32()),
        ("message_id", pa.string()), ("value", pa.float64()), ("text", pa.string()), ("unit", pa.string()),
        ("event_us", pa.int64()), ("device_us", pa.int64()), ("is_relative", pa.bool_()), ("payload", pa.string()),
        ("replayed_topic", pa.string()),
    ]
)  # fmt: skip
COUNTED_ROWS: Final = pa.schema(
    [
        ("gateway", pa.string()), ("epoch", pa.int64()), ("minute", pa.int64()), ("device", pa.string()),
        ("accepted", pa.int64()), ("dead", pa.int64()),
    ]
)  # fmt: skip
RUN_ROWS: Final = pa.schema(
    [("gateway", pa.string()), ("epoch", pa.int64()), ("low", pa.int64()), ("high", pa.int64())]
)
LIFE_ROWS: Final = pa.schema(
    [
        ("gateway", pa.string()), ("epoch", pa.int64()), ("first_ms", pa.int64()), ("last_ms", pa.int64()),
        ("upto", pa.int64()),
    ]
)  # fmt: skip
GATEWAY_ROWS: Final = pa.schema([("gateway", pa.string())])
LANDED_ROWS: Final = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("end", pa.int64())])
ERASED_ROWS: Final = pa.schema([("device_sha256", pa.string()), ("at_us", pa.int64())])
CORRECTION_ROWS: Final = pa.schema(
    [
        ("device_sha256", pa.string()), ("metric", pa.string()), ("from_us", pa.int64()), ("to_us", pa.int64()),
        ("at_us", pa.int64()), ("is_deletion", pa.bool_()),
    ]
)  # fmt: skip
_RELATIVE: Final = "relative_time"


def record_row(record: LogRecord, message: ReadingRecord) -> tuple[Any, ...]:
    """Return a record of `telemetry.readings` as a row of RECORD_ROWS."""
    return (
        READINGS, record.partition, record.offset, record.timestamp_ms, message.gateway, message.epoch, message.number,
        message.received_us, message.device, message.topic, False, message.qos == 0, _payload(message),
    )  # fmt: skip


def dead_letter_row(record: LogRecord, letter: DeadLetterRecord) -> tuple[Any, ...]:
    """Return a record of `telemetry.dead-letters` as a row of RECORD_ROWS."""
    return (
        DEAD_LETTERS, record.partition, record.offset, record.timestamp_ms, letter.gateway, letter.epoch, letter.number,
        letter.received_us, letter.device, letter.topic, letter.partial, letter.qos == 0,
        letter.payload_sha256 or letter.payload_base64,
    )  # fmt: skip


def reading_rows(record: LogRecord, message: ReadingRecord) -> Iterator[tuple[Any, ...]]:
    """Yield the readings of a record as rows of READING_ROWS: the values that `readings` must have."""
    payload, is_relative = _payload(message), _RELATIVE in (message.flags or ())
    for one in message.readings:
        event_us = message.received_us if one.time_us is None else one.time_us
        yield (
            record.partition, record.offset, message.epoch, message.number, message.received_us, message.device,
            one.metric, one.index, one.message_id or message.message_id, one.value, one.text, one.unit, event_us,
            one.time_us if one.claimed_us is None else one.claimed_us, is_relative or _RELATIVE in (one.flags or ()),
            payload, message.topic if message.retain else None,
        )  # fmt: skip


def arrow_table(schema: pa.Schema, rows: Any) -> pa.Table:
    """Return rows as an Arrow table with these columns."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)], schema=schema
    )


def _payload(message: ReadingRecord) -> str | None:
    """Return the hash of the message's payload; None if its gateway gave none."""
    found = getattr(message, "payload_hash", None)
    return None if found is None else str(found)

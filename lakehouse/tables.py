"""Definitions of the tables as data: name, columns, partitioning, properties. They need no JVM and no vendor library.

One definition gives the Spark schema (`spark_ddl`), the Delta table (lakehouse/create.py) and the output of `tables show`.
Column names are public: add columns, never rename one.
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["DEAD_LETTERS", "DUPLICATES", "READINGS", "TABLES", "Column", "Table", "spark_ddl"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `type` is a Spark SQL type (`string`, `bigint`, `array<string>`), `comment` says what it means."""

    name: str
    type: str
    comment: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """One Delta table under the root, in the folder of its name, partitioned by `date`.

    `statistics` are the columns whose minimum and maximum are in the log, so that readers skip files; each more
    costs every commit some time.
    """

    name: str
    comment: str
    columns: tuple[Column, ...]
    statistics: tuple[str, ...]
    partitioned_by: tuple[str, ...] = ("date",)

    def properties(self, *, log_retention_hours: int) -> dict[str, str]:
        """Delta table properties. Only features that every reader knows: no deletion vectors, no column mapping."""
        kept = f"interval {log_retention_hours} hours"
        return {
            "delta.logRetentionDuration": kept,
            "delta.deletedFileRetentionDuration": kept,
            "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
            "delta.enableExpiredLogCleanup": "false",
            "delta.dataSkippingStatsColumns": ",".join(self.statistics),
            "delta.enableDeletionVectors": "false",
        }


CHECKPOINT_INTERVAL: Final = 1_000_000
"""Large enough that no commit writes a checkpoint while rows wait: maintenance writes one every 200 commits, and cleans the
log, next to the commits.
"""

_ORIGIN: Final = (
    Column("partition", "int", "Kafka partition of the record that gave this row."),
    Column("offset", "bigint", "Kafka offset of that record; (topic, partition, offset) is the row's origin."),
    Column("date", "date", "UTC day of received_at; the table is partitioned by it.", nullable=False),
)

READINGS: Final = Table(
    name="readings",
    comment="One row per device, metric and moment, in the order of arrival; not unique by time.",
    columns=(
        Column("device", "string", "Device id.", nullable=False),
        Column("metric", "string", "Name of the metric, from the device or its profile.", nullable=False),
        Column("value", "double", "The number; 1 or 0 for a boolean; null for text."),
        Column("text", "string", "The text; `true`/`false` for a boolean; all digits of an integer past 2^53."),
        Column("unit", "string", "Unit from the device or the route."),
        Column("event_time", "timestamp", "Time of the measurement; use this time in queries (UTC).", nullable=False),
        Column("device_time", "timestamp", "Time that the device claimed (UTC); null if it claimed none."),
        Column("time_source", "string", "Clock that gave event_time: `device` or `gateway`.", nullable=False),
        Column("received_at", "timestamp", "Time of receipt at the gateway (UTC).", nullable=False),
        Column("kafka_time", "timestamp", "Time at which Kafka appended the record (UTC).", nullable=False),
        Column(
            "landed_at",
            "timestamp",
            "Start of the write of this row (UTC); Delta's history has the time of the commit.",
            nullable=False,
        ),
        Column("message_id", "string", "Identity of the message; null if the device gives none."),
        Column("boot", "bigint", "Boot counter of the device."),
        Column("seq", "bigint", "Sequence number of the message within its boot."),
        Column(
            "index",
            "int",
            "Number of the value if a message holds several of one metric; 0 is the first.",
            nullable=False,
        ),
        Column(
            "flags",
            "array<string>",
            "Facts that a reader should know: `no_identity`, `beyond_double`, `sentinel`, `implausible`, …",
        ),
        Column("tags", "map<string,string>", "Fixed attributes from the topic or the route."),
        Column("mqtt_topic", "string", "Topic that the message was published to."),
        *_ORIGIN[:2],
        Column("gateway", "string", "Gateway that received the message."),
        Column("gateway_epoch", "bigint", "Connection of that gateway."),
        Column("message_number", "bigint", "Number of the message within the gateway's process, in receive order."),
        Column("trace", "string", "W3C traceparent of the message; null if it had none."),
        Column(
            "payload_hash",
            "bigint",
            "64-bit hash of the message's payload; equal hashes under one identity mean that the device sent the same again.",
        ),
        Column(
            "retained",
            "boolean",
            "True if the broker replayed a retained message to a new subscription, so that its age is unknown. Null in rows of "
            "older versions.",
        ),
        Column(
            "waited_since",
            "timestamp",
            "Time since which the message may have waited in the broker (UTC), because the gateway was away or its window full.",
        ),
        _ORIGIN[2],
    ),
    statistics=("device", "metric", "event_time", "received_at", "landed_at"),
)

DEAD_LETTERS: Final = Table(
    name="dead_letters",
    comment="One row per rejected message, or per rejected part of a stored message, with its raw bytes.",
    columns=(
        Column("reason", "string", "Reason of the rejection, from a closed list.", nullable=False),
        Column("stage", "string", "Hop that rejected the message: `gateway` or `stream`.", nullable=False),
        Column("path", "string", "JSON path of the rejected part."),
        Column("got", "string", "Value at that path."),
        Column("wanted", "string", "Value that would have been accepted."),
        Column("device", "string", "Device id, if it is known."),
        Column("mqtt_topic", "string", "Topic that the message was published to."),
        Column("payload", "binary", "The raw bytes; only their beginning if the message was too large to keep."),
        Column("payload_text", "string", "The bytes as text if they are valid UTF-8."),
        Column(
            "received_at",
            "timestamp",
            "Time of receipt at the gateway, or Kafka's time if that is unknown (UTC).",
            nullable=False,
        ),
        Column("profile", "string", "Profile that rejected the message."),
        Column("gateway", "string", "Gateway that received the message."),
        Column(
            "attempt",
            "int",
            "Number of redrives before this row was written; `tidegate dlq` counts later ones.",
            nullable=False,
        ),
        Column(
            "redriven_at",
            "timestamp",
            "Last redrive before this row was written; later redrives are in the journal of `tidegate dlq`.",
        ),
        *_ORIGIN[:2],
        Column("source_topic", "string", "Kafka topic that partition and offset refer to.", nullable=False),
        Column("gateway_epoch", "bigint", "Connection of that gateway."),
        Column("message_number", "bigint", "Number of the message within the gateway's process, in receive order."),
        Column("partial", "boolean", "True if other parts of the message were stored.", nullable=False),
        Column("payload_bytes", "bigint", "Length of the whole message in bytes."),
        Column("payload_sha256", "string", "SHA-256 of the whole message if only its beginning is kept."),
        Column("landed_at", "timestamp", "Start of the write of this row (UTC).", nullable=False),
        Column("trace", "string", "W3C traceparent of the message."),
        Column("message_id", "string", "MQTT user property `message-id` of the message, if it had one."),
        Column("retain", "boolean", "True if the broker sent it as a retained message."),
        Column(
            "may_have_waited",
            "boolean",
            "True if the message may have waited in the broker, because the gateway was away or its window full.",
        ),
        Column("waited_since", "timestamp", "Earliest time since which it may have waited (UTC); null if unknown."),
        _ORIGIN[2],
    ),
    statistics=("reason", "device", "received_at"),
)

DUPLICATES: Final = Table(
    name="duplicates",
    comment="One row per Kafka record with readings that were left out, because their identities were already stored.",
    columns=(
        Column("device", "string", "Device id of the readings that were left out.", nullable=False),
        Column("received_at", "timestamp", "Time of receipt at the gateway (UTC).", nullable=False),
        Column("kafka_time", "timestamp", "Time at which Kafka appended the record (UTC).", nullable=False),
        Column("landed_at", "timestamp", "Start of the write of this row (UTC).", nullable=False),
        Column("message_id", "string", "Identity of the message, from its first reading that was left out."),
        Column("mqtt_topic", "string", "Topic that the message was published to."),
        Column("gateway", "string", "Gateway that received the message."),
        Column("gateway_epoch", "bigint", "Connection of that gateway."),
        Column("message_number", "bigint", "Number of the message within the gateway's process, in receive order."),
        Column("readings_dropped", "bigint", "Readings of the record that were left out.", nullable=False),
        Column(
            "whole",
            "boolean",
            "True if nothing of the message was stored for this device: the ledger counts it as a duplicate, unless "
            "`dead_letters` has it because its content differs.",
            nullable=False,
        ),
        *_ORIGIN,
    ),
    statistics=("device", "received_at", "landed_at"),
)

TABLES: Final = {table.name: table for table in (READINGS, DEAD_LETTERS, DUPLICATES)}
"""The tables of the hot path: the landing appends to them."""


def spark_ddl(table: Table) -> str:
    """The table's columns as a Spark DDL string, for `StructType.fromDDL` and `CREATE TABLE`."""
    return ", ".join(
        f"`{column.name}` {column.type}{'' if column.nullable else ' NOT NULL'} COMMENT '{_quoted(column.comment)}'"
        for column in table.columns
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")

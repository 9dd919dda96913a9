"""The tables as data: name, columns, partitioning, properties. No JVM and no vendor library is needed to read them.

One definition gives the Spark schema (`spark_ddl`), the Delta table (lakehouse/create.py) and what `tables show` prints.
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

    `statistics` are the columns whose minimum and maximum stand in the log, so that readers skip files; each more
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
"""Never in a commit, while rows wait: maintenance writes a checkpoint every 200 commits, and cleans the log, beside them."""

_ORIGIN: Final = (
    Column("partition", "int", "Kafka partition of the record that this row came from."),
    Column("offset", "bigint", "Kafka offset of that record: (topic, partition, offset) is the row's origin."),
    Column("date", "date", "UTC day of received_at; the table is partitioned by it.", nullable=False),
)

READINGS: Final = Table(
    name="readings",
    comment="One row per device, metric and moment, in the order of arrival; not unique by time.",
    columns=(
        Column("device", "string", "Device id: whose reading this is.", nullable=False),
        Column("metric", "string", "What was measured, as the device or its profile names it.", nullable=False),
        Column("value", "double", "The number; 1 or 0 for a boolean; null for text."),
        Column("text", "string", "The text; `true`/`false` for a boolean; all digits of an integer past 2^53."),
        Column("unit", "string", "Unit as the device or the route gives it."),
        Column("event_time", "timestamp", "When it was measured: the time to use (UTC).", nullable=False),
        Column("device_time", "timestamp", "The time that the device claimed (UTC); null where it claimed none."),
        Column("time_source", "string", "Whose clock event_time is: `device` or `gateway`.", nullable=False),
        Column("received_at", "timestamp", "When the gateway received the message (UTC).", nullable=False),
        Column("kafka_time", "timestamp", "When Kafka appended the record (UTC).", nullable=False),
        Column(
            "landed_at",
            "timestamp",
            "When the write of this row began (UTC); Delta's history has the commit's.",
            nullable=False,
        ),
        Column("message_id", "string", "Identity of the message; null where the device gives none."),
        Column("boot", "bigint", "Boot counter of the device."),
        Column("seq", "bigint", "Sequence number of the message within its boot."),
        Column("index", "int", "Which of several values of one metric in one message; 0 is the first.", nullable=False),
        Column(
            "flags",
            "array<string>",
            "What a reader should know: `no_identity`, `beyond_double`, `sentinel`, `implausible`, …",
        ),
        Column("tags", "map<string,string>", "Fixed attributes from the topic or the route."),
        Column("mqtt_topic", "string", "Topic that the message was published to."),
        *_ORIGIN[:2],
        Column("gateway", "string", "Gateway that received the message."),
        Column("gateway_epoch", "bigint", "Connection of that gateway."),
        Column("message_number", "bigint", "Number of the message within the gateway's process, in receive order."),
        Column("trace", "string", "W3C traceparent of the message; null where it came with none."),
        Column(
            "payload_hash",
            "bigint",
            "64-bit hash of the message's payload: equal under one identity means that the device sent the same again.",
        ),
        Column(
            "retained",
            "boolean",
            "True where the broker replayed a retained message to a new subscription: nobody knows how old it is. Null in "
            "rows of older versions.",
        ),
        Column(
            "waited_since",
            "timestamp",
            "The message may have waited in the broker since then (UTC): the gateway was away, or could take no more.",
        ),
        _ORIGIN[2],
    ),
    statistics=("device", "metric", "event_time", "received_at", "landed_at"),
)

DEAD_LETTERS: Final = Table(
    name="dead_letters",
    comment="One row per refused message, or per refused part of a stored message, with its raw bytes.",
    columns=(
        Column("reason", "string", "Why it was refused: one word of a closed list.", nullable=False),
        Column("stage", "string", "Which hop refused it: `gateway` or `stream`.", nullable=False),
        Column("path", "string", "JSON path of the refused part."),
        Column("got", "string", "What stood there."),
        Column("wanted", "string", "What would have been accepted."),
        Column("device", "string", "Device, where it is known."),
        Column("mqtt_topic", "string", "Topic that the message was published to."),
        Column("payload", "binary", "The raw bytes; their beginning where the message was too large to keep."),
        Column("payload_text", "string", "The bytes as text where they are valid UTF-8."),
        Column(
            "received_at",
            "timestamp",
            "When the gateway received it; Kafka's time where that is unknown (UTC).",
            nullable=False,
        ),
        Column("profile", "string", "Profile that refused it."),
        Column("gateway", "string", "Gateway that received the message."),
        Column(
            "attempt",
            "int",
            "How often it had been redriven when it was written; `tidegate dlq` counts what came after.",
            nullable=False,
        ),
        Column(
            "redriven_at",
            "timestamp",
            "When it had been redriven before it was written; what came after stands in the journal of `tidegate dlq`.",
        ),
        *_ORIGIN[:2],
        Column("source_topic", "string", "Kafka topic that partition and offset refer to.", nullable=False),
        Column("gateway_epoch", "bigint", "Connection of that gateway."),
        Column("message_number", "bigint", "Number of the message within the gateway's process, in receive order."),
        Column("partial", "boolean", "True where other parts of the message were stored.", nullable=False),
        Column("payload_bytes", "bigint", "Length of the whole message in bytes."),
        Column("payload_sha256", "string", "SHA-256 of the whole message where only its beginning is kept."),
        Column("landed_at", "timestamp", "When the write of this row began (UTC).", nullable=False),
        Column("trace", "string", "W3C traceparent of the message."),
        Column("message_id", "string", "MQTT user property `message-id` of the message, where it had one."),
        Column("retain", "boolean", "True where the broker sent it as a retained message."),
        Column(
            "may_have_waited",
            "boolean",
            "True where the broker may have kept the message: the gateway was away, or could take no more.",
        ),
        Column("waited_since", "timestamp", "Since when at the earliest (UTC); null where nobody knows."),
        _ORIGIN[2],
    ),
    statistics=("reason", "device", "received_at"),
)

DUPLICATES: Final = Table(
    name="duplicates",
    comment="One row per Kafka record of which the landing left out readings, because their identities were stored already.",
    columns=(
        Column("device", "string", "Device id: whose readings were left out.", nullable=False),
        Column("received_at", "timestamp", "When the gateway received the message (UTC).", nullable=False),
        Column("kafka_time", "timestamp", "When Kafka appended the record (UTC).", nullable=False),
        Column("landed_at", "timestamp", "When the write of this row began (UTC).", nullable=False),
        Column("message_id", "string", "Identity of the message: that of its first reading that was left out."),
        Column("mqtt_topic", "string", "Topic that the message was published to."),
        Column("gateway", "string", "Gateway that received the message."),
        Column("gateway_epoch", "bigint", "Connection of that gateway."),
        Column("message_number", "bigint", "Number of the message within the gateway's process, in receive order."),
        Column("readings_dropped", "bigint", "Readings of the record that were left out.", nullable=False),
        Column(
            "whole",
            "boolean",
            "True where nothing of the message was stored for this device: the ledger counts it as a duplicate, unless "
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

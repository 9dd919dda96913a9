"""Decoding of Kafka records to rows of `readings` and `dead_letters`: pure DataFrame functions, only JVM expressions.

The gateway has validated every record. Other content of the topics (torn, or written by another program) is a poison record: it
becomes a dead letter `spark_corrupt_record` with its raw bytes, and stops nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.contract.reading import RECORD_VERSION
from ingest.contract.reasons import Reason, Stage
from ingest.contract.topics import DEAD_LETTERS, READINGS
from lakehouse.tables import DEAD_LETTERS as LETTERS
from lakehouse.tables import READINGS as TABLE

__all__ = [
    "CONFLICT_SCHEMA",
    "DEAD_LETTER_SCHEMA",
    "IS_READING",
    "LANDED_COLUMNS",
    "RECORD_SCHEMA",
    "conflict_rows",
    "dead_letter_rows",
    "decode_stream",
    "landed_at",
    "landed_at_sql",
    "reading_rows",
]

READING_SCHEMA: Final = (
    "STRUCT<metric STRING, value DOUBLE, text STRING, unit STRING, time_us BIGINT, claimed_us BIGINT, index INT, "
    "message_id STRING, boot BIGINT, seq BIGINT, flags ARRAY<STRING>>"
)
RECORD_SCHEMA: Final = (
    "v INT, gateway STRING, epoch BIGINT, number BIGINT, received_us BIGINT, topic STRING, device STRING, "
    f"readings ARRAY<{READING_SCHEMA}>, qos INT, dup BOOLEAN, retain BOOLEAN, message_id STRING, boot BIGINT, seq BIGINT, "
    "flags ARRAY<STRING>, tags MAP<STRING, STRING>, trace STRING, "
    "payload_hash BIGINT, waited_since_us BIGINT"
)
"""ingest.contract.reading.ReadingRecord in Spark's words; a test compares the two."""

DEAD_LETTER_SCHEMA: Final = (
    "v INT, gateway STRING, epoch BIGINT, number BIGINT, received_us BIGINT, topic STRING, reason STRING, "
    "payload_base64 STRING, payload_bytes BIGINT, stage STRING, partial BOOLEAN, path STRING, got STRING, wanted STRING, "
    "device STRING, profile STRING, attempt INT, qos INT, dup BOOLEAN, retain BOOLEAN, payload_sha256 STRING, trace STRING, "
    "message_id STRING, waited_since_us BIGINT"
)
"""ingest.contract.dead_letter.DeadLetterRecord in Spark's words."""

_ENVELOPE: Final = (
    "gateway", "epoch", "number", "received_us", "topic", "device", "message_id", "boot", "seq", "flags", "tags",
    "trace", "payload_hash", "retain", "waited_since_us",
)  # fmt: skip
_OWN_NUMBER: Final = "i.boot IS NOT NULL AND i.seq IS NOT NULL"
_NO_FLAGS: Final = "CAST(array() AS ARRAY<STRING>)"
_READING_COLUMNS: Final = (
    "r_device AS device",
    "i.metric AS metric",
    "i.value AS value",
    "i.text AS text",
    "i.unit AS unit",
    "timestamp_micros(coalesce(i.time_us, r_received_us)) AS event_time",
    "timestamp_micros(coalesce(i.claimed_us, i.time_us)) AS device_time",
    "CASE WHEN i.time_us IS NULL THEN 'gateway' ELSE 'device' END AS time_source",
    "timestamp_micros(r_received_us) AS received_at",
    "timestamp AS kafka_time",
    "coalesce(i.message_id, r_message_id) AS message_id",
    f"CASE WHEN {_OWN_NUMBER} THEN i.boot ELSE r_boot END AS boot",
    f"CASE WHEN {_OWN_NUMBER} THEN i.seq ELSE r_seq END AS seq",
    "coalesce(i.index, 0) AS index",
    f"array_distinct(concat(coalesce(r_flags, {_NO_FLAGS}), coalesce(i.flags, {_NO_FLAGS}))) AS flags",
    "r_tags AS tags",
    "r_topic AS mqtt_topic",
    "partition",
    "offset",
    "r_gateway AS gateway",
    "r_epoch AS gateway_epoch",
    "r_number AS message_number",
    "r_trace AS trace",
    "r_payload_hash AS payload_hash",
    "coalesce(r_retain, false) AS retained",
    "timestamp_micros(r_waited_since_us) AS waited_since",
    "CAST(timestamp_micros(r_received_us) AS DATE) AS date",
)
"""Expression per column of `readings`, from a record (`r_…`) and one of its readings (`i`)."""

IS_READING: Final = "position IS NOT NULL"
"""Condition that selects the readings among the decoded rows."""
LANDED_COLUMNS: Final = tuple(f"`{column.name}`" for column in TABLE.columns if column.name != "landed_at")
"""Columns of `readings` that a decoded row holds already."""

_CORRUPT: Final = "_corrupt"
_OPTIONS: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowNonNumericNumbers": "false"}
# Years 2000 to 2200: outside, a number of microseconds is not a receive time of a Tidegate gateway.
_RECEIVED_FROM_US, _RECEIVED_TO_US = 946_684_800_000_000, 7_258_118_400_000_000
# Years 1 to 9999: what every reader of the tables can show.
_TIME_FROM_US, _TIME_TO_US = -62_135_596_800_000_000, 253_402_300_799_999_999


def landed_at(now: datetime) -> Column:
    """The start of the write as a column whose value does not become part of the generated code.

    A plain literal does, and every batch would compile its code again.
    """
    return F.expr(landed_at_sql(now))


def landed_at_sql(now: datetime) -> str:
    """`landed_at` in SQL."""
    return f"get(array(timestamp_micros({int(now.timestamp() * 1_000_000)}L)), partition - partition)"


def decode_stream(records: DataFrame, topic: str = READINGS) -> DataFrame:
    """The streaming part, planned once: a row per reading, and one with a null `position` for every record without any.

    Args:
        records: Kafka records of both topics: key, value, topic, partition, offset, timestamp.
        topic: the one that holds readings.

    Returns:
        The columns of `readings` but landed_at; `position` of the reading in its record; the record's own topic and
        timestamp; raw_key, kept for records without readings only; raw_value, kept once per record.
    """
    parsed = records.withColumn("r", F.when(F.col("topic") == topic, _parse(RECORD_SCHEMA))).withColumn(
        "sound", _is_record(F.col("r"))
    )
    # explode_outer: what follows an inner explode is moved below the parsing, and Spark would parse every record twice.
    exploded = parsed.select(
        "topic", "partition", "offset", "timestamp", "sound",
        F.when(~F.col("sound"), F.col("key")).alias("raw_key"),
        F.col("value").alias("raw_value"),
        *(F.col(f"r.{name}").alias(f"r_{name}") for name in _ENVELOPE),
        F.when(F.col("sound"), F.col("r.readings")).alias("items"),
    ).select("*", F.posexplode_outer("items").alias("position", "i"))  # fmt: skip
    once = "CASE WHEN position IS NULL OR position = 0 THEN raw_value END AS raw_value"
    return exploded.selectExpr(*_READING_COLUMNS, "position", "raw_key", once, "topic", "timestamp")


def reading_rows(decoded_rows: DataFrame, landed: Column) -> DataFrame:
    """Return rows of `readings`, with `position` (of the reading in its record) added, in the order of the records."""
    rows = decoded_rows.where(IS_READING).withColumn("landed_at", landed)
    return rows.drop("raw_key", "raw_value", "topic", "timestamp")


def dead_letter_rows(
    decoded_rows: DataFrame, landed: Column, topic: str = READINGS, dead_letters_topic: str = DEAD_LETTERS
) -> DataFrame:
    """Rows of `dead_letters`: those of the gateway, and every poison record of either topic."""
    raw = decoded_rows.where("position IS NULL").selectExpr(
        "raw_key AS key", "raw_value AS value", "topic", "partition", "offset", "timestamp"
    )
    refused = raw.where(F.col("topic") == dead_letters_topic).withColumn("d", _parse(DEAD_LETTER_SCHEMA))
    poison = raw.where(F.col("topic") == topic).unionByName(refused.where(~_is_dead_letter()).drop("d"))
    return _refused_rows(refused.where(_is_dead_letter()), landed).unionByName(_poison_rows(poison, landed, topic))


CONFLICT_SCHEMA: Final = (
    "reason STRING, partition INT, offset BIGINT, path STRING, got STRING, wanted STRING, partial BOOLEAN"
)


def conflict_rows(decoded_rows: DataFrame, conflicts: DataFrame, landed: Column, topic: str = READINGS) -> DataFrame:
    """Rows of `dead_letters` for the records named in `conflicts` (CONFLICT_SCHEMA), with the record's bytes as payload."""
    records = decoded_rows.where((F.col("topic") == topic) & (F.col("position") == 0))
    found = records.join(conflicts, ["partition", "offset"])
    payload = F.col("raw_value")
    named = (
        "reason", "path", "got", "wanted", "device", "mqtt_topic", "received_at", "gateway", "partition", "offset",
        "gateway_epoch", "message_number", "partial", "trace", "message_id", "date",
    )  # fmt: skip
    return _dead_letters(
        found,
        {name: F.col(name) for name in named}
        | {
            "stage": F.lit(str(Stage.STREAM)),
            "payload": payload,
            "payload_text": F.try_validate_utf8(payload.cast("string")),
            "attempt": F.lit(0),
            "source_topic": F.col("topic"),
            "payload_bytes": F.octet_length(payload).cast("bigint"),
            "landed_at": landed,
        },
    )


def _dead_letters(rows: DataFrame, given: Mapping[str, Column]) -> DataFrame:
    """The columns of the table `dead_letters`, in its order: those that are given, and null in each other one."""
    if unknown := given.keys() - {column.name for column in LETTERS.columns}:
        raise KeyError(*sorted(unknown))
    return rows.select(
        *(given.get(column.name, F.lit(None).cast(column.type)).alias(column.name) for column in LETTERS.columns)
    )


def _parse(schema: str) -> Column:
    return F.from_json(F.col("value").cast("string"), f"{schema}, {_CORRUPT} STRING", _OPTIONS)


def _is_record(record: Column) -> Column:
    envelope = ("gateway", "epoch", "number", "topic", "device", "readings")
    sound = record[_CORRUPT].isNull() & (record["v"] == RECORD_VERSION)
    sound = sound & record["received_us"].between(_RECEIVED_FROM_US, _RECEIVED_TO_US)
    for name in envelope:
        sound = sound & record[name].isNotNull()
    return F.coalesce(sound & (F.size(record["readings"]) > 0) & _are_readings(record["readings"]), F.lit(False))


def _are_readings(readings: Column) -> Column:
    """Return whether each reading has a metric, a value or a text, and times within bounds."""
    # `array_contains` is null where the array holds a null and not the value: no parsed text is that byte, no number NaN.
    named = F.array_contains(readings["metric"], F.expr("CAST(X'FF' AS STRING)")).isNotNull()
    all_numbers = F.array_contains(readings["value"], F.lit(float("nan"))).isNotNull()
    nothing = F.expr("named_struct('value', CAST(NULL AS DOUBLE), 'text', CAST(NULL AS STRING))")
    empty = F.array_contains(F.arrays_zip(readings["value"], readings["text"]), nothing)
    return named & (all_numbers | ~empty) & _in_time(readings["time_us"]) & _in_time(readings["claimed_us"])


def _in_time(times: Column) -> Column:
    within = (F.array_min(times) >= _TIME_FROM_US) & (F.array_max(times) <= _TIME_TO_US)
    return F.coalesce(within, F.lit(True))


def _is_dead_letter() -> Column:
    sound = F.col(f"d.{_CORRUPT}").isNull() & (F.col("d.v") == RECORD_VERSION)
    sound = sound & F.col("d.received_us").between(_RECEIVED_FROM_US, _RECEIVED_TO_US)
    for name in ("gateway", "epoch", "number", "topic", "reason", "payload_bytes"):
        sound = sound & F.col(f"d.{name}").isNotNull()
    return F.coalesce(sound & F.try_to_binary("d.payload_base64", F.lit("base64")).isNotNull(), F.lit(False))


def _refused_rows(refused: DataFrame, landed: Column) -> DataFrame:
    payload = F.try_to_binary("d.payload_base64", F.lit("base64"))
    received = F.timestamp_micros("d.received_us")
    same = (
        "reason",
        "path",
        "got",
        "wanted",
        "device",
        "profile",
        "gateway",
        "payload_bytes",
        "payload_sha256",
        "trace",
        "message_id",
    )
    return _dead_letters(
        refused,
        {name: F.col(f"d.{name}") for name in same}
        | {
            "stage": F.coalesce("d.stage", F.lit(str(Stage.GATEWAY))),
            "mqtt_topic": F.col("d.topic"),
            "payload": payload,
            "payload_text": F.try_validate_utf8(payload.cast("string")),
            "received_at": received,
            "attempt": F.coalesce("d.attempt", F.lit(0)),
            "partition": F.col("partition"),
            "offset": F.col("offset"),
            "source_topic": F.col("topic"),
            "gateway_epoch": F.col("d.epoch"),
            "message_number": F.col("d.number"),
            "partial": F.coalesce("d.partial", F.lit(False)),
            "landed_at": landed,
            "retain": F.coalesce("d.retain", F.lit(False)),
            "may_have_waited": F.col("d.waited_since_us").isNotNull(),
            "waited_since": F.timestamp_micros(F.nullif("d.waited_since_us", F.lit(0))),
            "date": received.cast("date"),
        },
    )


def _poison_rows(poison: DataFrame, landed: Column, topic: str) -> DataFrame:
    value, received = F.col("value"), F.col("timestamp")
    return _dead_letters(
        poison,
        {
            "reason": F.lit(str(Reason.SPARK_CORRUPT_RECORD)),
            "stage": F.lit(str(Stage.STREAM)),
            "wanted": F.lit(f"a record of version {RECORD_VERSION} as Tidegate's gateway writes it"),
            "device": F.when(F.col("topic") == topic, F.try_validate_utf8(F.col("key").cast("string"))),
            "payload": value,
            "payload_text": F.try_validate_utf8(value.cast("string")),
            "received_at": received,
            "attempt": F.lit(0),
            "partition": F.col("partition"),
            "offset": F.col("offset"),
            "source_topic": F.col("topic"),
            "partial": F.lit(False),
            "payload_bytes": F.octet_length(value).cast("bigint"),
            "landed_at": landed,
            "date": received.cast("date"),
        },
    )

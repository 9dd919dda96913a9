"""Kafka records into rows of `readings` and `dead_letters`: pure DataFrame functions, JVM expressions only.

The gateway has validated every record. What stands in the topics beside its records (written by another program, or
torn) is a poison record: it becomes a dead letter `spark_corrupt_record` with its raw bytes and stops nothing.
"""

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.contract.reading import RECORD_VERSION
from ingest.contract.reasons import Reason, Stage
from ingest.contract.topics import DEAD_LETTERS, READINGS

__all__ = ["DEAD_LETTER_SCHEMA", "RECORD_SCHEMA", "dead_letter_rows", "landed_at", "reading_rows"]

READING_SCHEMA: Final = (
    "STRUCT<metric STRING, value DOUBLE, text STRING, unit STRING, time_us BIGINT, claimed_us BIGINT, index INT, "
    "message_id STRING, boot BIGINT, seq BIGINT, flags ARRAY<STRING>>"
)
RECORD_SCHEMA: Final = (
    "v INT, gateway STRING, epoch BIGINT, number BIGINT, received_us BIGINT, topic STRING, device STRING, "
    f"readings ARRAY<{READING_SCHEMA}>, qos INT, dup BOOLEAN, retain BOOLEAN, message_id STRING, boot BIGINT, seq BIGINT, "
    "flags ARRAY<STRING>, tags MAP<STRING, STRING>, trace STRING"
)
"""ingest.contract.reading.ReadingRecord in Spark's words; a test compares the two."""

DEAD_LETTER_SCHEMA: Final = (
    "v INT, gateway STRING, epoch BIGINT, number BIGINT, received_us BIGINT, topic STRING, reason STRING, "
    "payload_base64 STRING, payload_bytes BIGINT, stage STRING, partial BOOLEAN, path STRING, got STRING, wanted STRING, "
    "device STRING, profile STRING, attempt INT, qos INT, dup BOOLEAN, retain BOOLEAN, payload_sha256 STRING, trace STRING"
)
"""ingest.contract.dead_letter.DeadLetterRecord in Spark's words."""

_CORRUPT: Final = "_corrupt"
_OPTIONS: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowNonNumericNumbers": "false"}
# Years 2000 to 2200: outside, a number of microseconds is no receive time that a gateway of ours wrote.
_RECEIVED_FROM_US, _RECEIVED_TO_US = 946_684_800_000_000, 7_258_118_400_000_000
# Years 1 to 9999: what every reader of the tables can show.
_TIME_FROM_US, _TIME_TO_US = -62_135_596_800_000_000, 253_402_300_799_999_999


def landed_at(now: datetime) -> Column:
    """The start of the write as a column whose value does not become part of the generated code.

    A plain literal does, and every batch would compile its code anew.
    """
    return F.get(F.array(F.lit(now)), F.col("partition") - F.col("partition"))


def reading_rows(records: DataFrame, landed: Column) -> DataFrame:
    """Rows of `readings`, and beside them `position` (of the reading in its record), in the order of the records.

    Args:
        records: Kafka records of any of our topics: key, value, topic, partition, offset, timestamp.
        landed: the start of the write.
    """
    parsed = records.where(F.col("topic") == READINGS).select(
        _parse(RECORD_SCHEMA).alias("r"), "topic", "partition", "offset", "timestamp"
    )
    # explode_outer, then a filter on what came out: a filter on the parsed record would be moved below the parsing and
    # make Spark parse every record twice.
    exploded = parsed.select(
        "r", "partition", "offset", "timestamp", F.posexplode_outer(F.when(_is_record(), F.col("r.readings"))).alias("position", "i")
    ).where(F.col("position").isNotNull())
    own = F.col("i.boot").isNotNull() & F.col("i.seq").isNotNull()
    return exploded.select(
        F.col("r.device").alias("device"),
        F.col("i.metric").alias("metric"),
        F.col("i.value").alias("value"),
        F.col("i.text").alias("text"),
        F.col("i.unit").alias("unit"),
        F.timestamp_micros(F.coalesce("i.time_us", "r.received_us")).alias("event_time"),
        F.timestamp_micros(F.coalesce("i.claimed_us", "i.time_us")).alias("device_time"),
        F.when(F.col("i.time_us").isNull(), "gateway").otherwise("device").alias("time_source"),
        F.timestamp_micros("r.received_us").alias("received_at"),
        F.col("timestamp").alias("kafka_time"),
        landed.alias("landed_at"),
        F.coalesce("i.message_id", "r.message_id").alias("message_id"),
        F.when(own, F.col("i.boot")).otherwise(F.col("r.boot")).alias("boot"),
        F.when(own, F.col("i.seq")).otherwise(F.col("r.seq")).alias("seq"),
        F.coalesce("i.index", F.lit(0)).alias("index"),
        _joined("r.flags", "i.flags").alias("flags"),
        F.col("r.tags").alias("tags"),
        F.col("r.topic").alias("mqtt_topic"),
        "partition",
        "offset",
        F.col("r.gateway").alias("gateway"),
        F.col("r.epoch").alias("gateway_epoch"),
        F.col("r.number").alias("message_number"),
        F.timestamp_micros("r.received_us").cast("date").alias("date"),
        "position",
    )


def dead_letter_rows(records: DataFrame, landed: Column) -> DataFrame:
    """Rows of `dead_letters`: those of the gateway, and every poison record of either topic."""
    refused = records.where(F.col("topic") == DEAD_LETTERS).withColumn("d", _parse(DEAD_LETTER_SCHEMA))
    poison = records.where(F.col("topic") == READINGS).withColumn("r", _parse(RECORD_SCHEMA)).where(~_is_record())
    return _refused_rows(refused.where(_is_dead_letter()), landed).unionByName(
        _poison_rows(poison.drop("r").unionByName(refused.where(~_is_dead_letter()).drop("d")), landed)
    )


def _parse(schema: str) -> Column:
    return F.from_json(F.col("value").cast("string"), f"{schema}, {_CORRUPT} STRING", _OPTIONS)


def _joined(first: str, second: str) -> Column:
    nothing = F.array().cast("array<string>")
    return F.array_distinct(F.concat(F.coalesce(first, nothing), F.coalesce(second, nothing)))


def _is_record() -> Column:
    envelope = ("gateway", "epoch", "number", "topic", "device", "readings")
    sound = F.col(f"r.{_CORRUPT}").isNull() & (F.col("r.v") == RECORD_VERSION)
    sound = sound & F.col("r.received_us").between(_RECEIVED_FROM_US, _RECEIVED_TO_US)
    for name in envelope:
        sound = sound & F.col(f"r.{name}").isNotNull()
    sound = sound & (F.size("r.readings") > 0) & F.forall("r.readings", _is_reading)
    return F.coalesce(sound, F.lit(False))


def _is_reading(reading: Column) -> Column:
    held = reading["value"].isNotNull() | reading["text"].isNotNull()
    return reading["metric"].isNotNull() & held & _in_time(reading["time_us"]) & _in_time(reading["claimed_us"])


def _in_time(column: Column) -> Column:
    return column.isNull() | column.between(_TIME_FROM_US, _TIME_TO_US)


def _is_dead_letter() -> Column:
    sound = F.col(f"d.{_CORRUPT}").isNull() & (F.col("d.v") == RECORD_VERSION)
    sound = sound & F.col("d.received_us").between(_RECEIVED_FROM_US, _RECEIVED_TO_US)
    for name in ("gateway", "epoch", "number", "topic", "reason", "payload_bytes"):
        sound = sound & F.col(f"d.{name}").isNotNull()
    return F.coalesce(sound & F.try_to_binary("d.payload_base64", F.lit("base64")).isNotNull(), F.lit(False))


def _refused_rows(refused: DataFrame, landed: Column) -> DataFrame:
    payload = F.try_to_binary("d.payload_base64", F.lit("base64"))
    received = F.timestamp_micros("d.received_us")
    return refused.select(
        F.col("d.reason").alias("reason"),
        F.coalesce("d.stage", F.lit(str(Stage.GATEWAY))).alias("stage"),
        F.col("d.path").alias("path"),
        F.col("d.got").alias("got"),
        F.col("d.wanted").alias("wanted"),
        F.col("d.device").alias("device"),
        F.col("d.topic").alias("mqtt_topic"),
        payload.alias("payload"),
        F.try_validate_utf8(payload.cast("string")).alias("payload_text"),
        received.alias("received_at"),
        F.col("d.profile").alias("profile"),
        F.col("d.gateway").alias("gateway"),
        F.coalesce("d.attempt", F.lit(0)).alias("attempt"),
        F.lit(None).cast("timestamp").alias("redriven_at"),
        "partition",
        "offset",
        F.col("topic").alias("source_topic"),
        F.col("d.epoch").alias("gateway_epoch"),
        F.col("d.number").alias("message_number"),
        F.coalesce("d.partial", F.lit(False)).alias("partial"),
        F.col("d.payload_bytes").alias("payload_bytes"),
        F.col("d.payload_sha256").alias("payload_sha256"),
        landed.alias("landed_at"),
        F.col("d.trace").alias("trace"),
        received.cast("date").alias("date"),
    )


def _poison_rows(poison: DataFrame, landed: Column) -> DataFrame:
    nothing = F.lit(None).cast("string")
    return poison.select(
        F.lit(str(Reason.SPARK_CORRUPT_RECORD)).alias("reason"),
        F.lit(str(Stage.STREAM)).alias("stage"),
        nothing.alias("path"),
        nothing.alias("got"),
        F.lit(f"a record of version {RECORD_VERSION} as Tidegate's gateway writes it").alias("wanted"),
        F.when(F.col("topic") == READINGS, F.try_validate_utf8(F.col("key").cast("string"))).alias("device"),
        nothing.alias("mqtt_topic"),
        F.col("value").alias("payload"),
        F.try_validate_utf8(F.col("value").cast("string")).alias("payload_text"),
        F.col("timestamp").alias("received_at"),
        nothing.alias("profile"),
        nothing.alias("gateway"),
        F.lit(0).alias("attempt"),
        F.lit(None).cast("timestamp").alias("redriven_at"),
        "partition",
        "offset",
        F.col("topic").alias("source_topic"),
        F.lit(None).cast("bigint").alias("gateway_epoch"),
        F.lit(None).cast("bigint").alias("message_number"),
        F.lit(False).alias("partial"),
        F.octet_length("value").cast("bigint").alias("payload_bytes"),
        nothing.alias("payload_sha256"),
        landed.alias("landed_at"),
        nothing.alias("trace"),
        F.col("timestamp").cast("date").alias("date"),
    )



"""Output frame of a definition: the same statement over a stream, over a range of Kafka offsets, or over a table.

Each stream has its own Spark session in the process, so that names of views and settings do not collide.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings
from lakehouse.paths import table_uri
from lakehouse.spark_statement import ReadOnlyError, reading_session
from lakehouse.tables import READINGS
from streaming.decode import decode_stream, reading_rows
from streaming.kafka_source import LandedTopics, kafka_options
from streaming.landing_offsets import Offsets
from streaming.sql.header import StreamDefinition
from streaming.sql.statement import StatementSources, StreamSource, first_line, read_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TIME_FORMAT", "from_history", "from_kafka", "from_stream", "make_frame", "new_session", "run_statement"]

TIME_FORMAT: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
"""Format of times in the JSON of topics: microseconds, as in the tables."""

SKEW_SECONDS: Final = 10
"""Largest lead over Kafka's clock of a time that moves a watermark, so that one device's wrong clock makes no other late."""

_AT: Final = "_tidegate_at"
_COLUMNS: Final = tuple(column.name for column in READINGS.columns)


def new_session(spark: "SparkSession", *, partitions: int) -> "SparkSession":
    """A session for one stream.

    State is kept by Spark's HDFS-backed store: RocksDB's commit fails on the local file system that this process uses
    for its speed.
    """
    session = reading_session(spark)
    settings = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        ),
        "spark.sql.streaming.minBatchesToRetain": "20",
        # Late rows are counted from these: they must last while the chores' thread is busy elsewhere.
        "spark.sql.streaming.numRecentProgressUpdates": "100",
        "spark.sql.session.timeZone": "UTC",
    }
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def make_frame(
    session: "SparkSession",
    definition: StreamDefinition,
    sources: StatementSources,
    root: str,
    read: Callable[[StreamSource], "DataFrame"],
) -> "DataFrame":
    """The statement's output.

    Args:
        session: of this stream.
        definition: the stream.
        sources: what it reads.
        root: of the static tables, which are read as they are at each batch.
        read: gives the rows of a streaming source.

    Raises:
        ConfigError: Spark does not understand the statement; its words.
    """
    for source in sources.streams:
        _watermarked(read(source), definition).drop(_AT).createOrReplaceTempView(source.name)
    for name in sources.tables:
        session.read.format("delta").load(table_uri(root, name)).createOrReplaceTempView(name)
    return run_statement(session, definition)


def run_statement(session: "SparkSession", definition: StreamDefinition) -> "DataFrame":
    """The statement's output, once all that it reads has a view in the session.

    Raises:
        ConfigError: the statement is not one query that only reads, or Spark does not understand it; its words.
    """
    from pyspark.errors import AnalysisException

    where = f"{definition.name}.sql"
    query = read_statement(session, definition.body, where)
    try:
        return query.frame()
    except (AnalysisException, ReadOnlyError) as error:
        msg = f"{where}: {first_line(error)}"
        raise ConfigError(msg) from error


def from_stream(
    session: "SparkSession", kafka: KafkaSettings, start: Offsets, *, max_records: int | None
) -> Callable[[StreamSource], "DataFrame"]:
    """Reads sources as streams that begin at `start` where their checkpoint is new; real-time mode bounds no batch."""

    def read(source: StreamSource) -> "DataFrame":
        options = _options(kafka, source.topic, start=start, max_records=max_records)
        return _rows(session.readStream.format("kafka").options(**options).load(), source)

    return read


def from_kafka(
    session: "SparkSession", kafka: KafkaSettings, starts: Offsets, ends: Offsets
) -> Callable[[StreamSource], "DataFrame"]:
    """Reads exactly the records of a span."""

    def read(source: StreamSource) -> "DataFrame":
        options = _options(kafka, source.topic, start=starts, max_records=None)
        options["endingOffsets"] = json.dumps({source.topic: ends[source.topic]})
        return _rows(session.read.format("kafka").options(**options).load(), source)

    return read


def from_history(
    session: "SparkSession", root: str, before: Mapping[int, int], since: datetime | None, after: Mapping[int, int]
) -> Callable[[StreamSource], "DataFrame"]:
    """Reads from the table `readings` what Kafka no longer has: rows whose offset lies before the partition's oldest.

    `after`: per partition the first offset that is wanted; without it all are.
    """

    def read(source: StreamSource) -> "DataFrame":
        rows = session.read.format("delta").load(table_uri(root, READINGS.name))
        gone = F.lit(False)
        for partition, offset in before.items():
            is_wanted = (F.col("offset") >= after.get(partition, 0)) & (F.col("offset") < offset)
            gone = gone | ((F.col("partition") == partition) & is_wanted)
        rows = rows.where(gone)
        if since is not None:
            rows = rows.where(F.col("kafka_time") >= F.lit(since))
        return rows.select(*_COLUMNS, F.col("kafka_time").alias(_AT))

    return read


def _options(kafka: KafkaSettings, topic: str, *, start: Offsets, max_records: int | None) -> dict[str, str]:
    mine = {topic: start[topic]} if topic in start else {}
    options = kafka_options(kafka, LandedTopics(topic, topic), start=mine, max_records=max_records or 1)
    if max_records is None:
        del options["maxOffsetsPerTrigger"]
    return {**options, "subscribe": topic, "startingOffsets": json.dumps(mine) if mine else "earliest"}


def _rows(records: "DataFrame", source: StreamSource) -> "DataFrame":
    raw = records.select("key", "value", "topic", "partition", "offset", "timestamp")
    if source.schema is None:
        rows = reading_rows(decode_stream(raw, source.topic), F.current_timestamp())
        return rows.select(*_COLUMNS, F.col("kafka_time").alias(_AT))
    # A record that is not a JSON object of this shape is skipped: only Tidegate's own sink should write there.
    schema = StructType.fromJson(json.loads(source.schema)).add("_corrupt", "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt", "timestampFormat": TIME_FORMAT}
    parsed = raw.select(F.from_json(F.col("value").cast("string"), schema, options).alias("r"), "timestamp")
    sound = parsed.where("r IS NOT NULL AND r._corrupt IS NULL")
    return sound.select("r.*", F.col("timestamp").alias(_AT)).drop("_corrupt")


def _watermarked(rows: "DataFrame", definition: StreamDefinition) -> "DataFrame":
    watermark = definition.watermark
    if watermark is None or watermark.column not in rows.columns:
        return rows
    at: Any = F.col(_AT) + F.expr(f"INTERVAL {SKEW_SECONDS} SECONDS")
    capped = rows.withColumn(watermark.column, F.least(F.col(watermark.column), at))
    return capped.withWatermark(watermark.column, watermark.delay)

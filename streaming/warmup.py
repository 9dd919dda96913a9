"""Runs the landing's own code once on made-up records, into a table that is thrown away, before the stream says it is ready.

The JVM loads and compiles some thousand classes in the first write; the first real readings should not wait for that.
"""

import logging
import tempfile
import threading
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.contract.reading import Reading, ReadingRecord, encode_record
from ingest.contract.topics import READINGS
from lakehouse.append import Appender
from lakehouse.commit_metadata import encode_metadata
from lakehouse.create import create_table
from lakehouse.tables import DEAD_LETTERS, TABLES
from lakehouse.tables import READINGS as READINGS_TABLE
from streaming.decode import dead_letter_rows, decode_stream, landed_at, reading_rows
from streaming.dedup_index import KEY_COLUMNS, DedupIndex

__all__ = ["warm_up"]

logger = logging.getLogger("tidegate.streaming.warmup")

ROUNDS: Final = 1
_RECORDS: Final = 200


def warm_up(spark: SparkSession, stop: threading.Event) -> None:
    """Land made-up records into a table in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="tidegate-warm-up-") as root:
        for table in TABLES.values():
            create_table(root, table, log_retention_hours=1)
        readings, dead_letters = (Appender(spark, root, table) for table in (READINGS_TABLE, DEAD_LETTERS))
        records, seen = spark.range(_RECORDS, numPartitions=1), DedupIndex()
        record = encode_record(_record()).decode()
        for _ in range(ROUNDS):
            if stop.is_set():
                return
            now = datetime.now(UTC)
            raw = decode_stream(
                records.select(
                    F.lit(b"warm-up").alias("key"),
                    F.when(F.col("id") % 20 == 0, F.lit("{").cast("binary"))
                    .otherwise(F.lit(record).cast("binary"))
                    .alias("value"),
                    F.lit(READINGS).alias("topic"),
                    F.col("id").cast("int").alias("partition"),
                    F.col("id").alias("offset"),
                    F.lit(now).alias("timestamp"),
                )
            )
            for appender, rows in (
                (readings, reading_rows(raw, landed_at(now)).drop("position")),
                (dead_letters, dead_letter_rows(raw, landed_at(now))),
            ):
                append = appender.begin()
                append.write(rows.coalesce(1))
                if appender is readings:
                    seen.duplicates(append.read_back(KEY_COLUMNS))
                append.commit(encode_metadata({"warm-up": True}))


def _record() -> ReadingRecord:
    received_us = int(datetime.now(UTC).timestamp() * 1_000_000)
    readings = [Reading("temperature", value=21.5, unit="°C", time_us=received_us), Reading("state", text="on")]
    return ReadingRecord(
        v=1, gateway="warm-up", epoch=1, number=1, received_us=received_us, topic="warm-up", device="warm-up", readings=readings,
        message_id="bs:1:1", boot=1, seq=1,
    )  # fmt: skip

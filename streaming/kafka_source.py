"""The Kafka source: both topics of the gateway in one stream, so that one batch holds a span of both."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.security import jvm_conf
from streaming.landing_offsets import Offsets
from streaming.stream_settings import BatchCut

__all__ = ["LandedTopics", "cut_options", "kafka_options", "read_topics"]


@dataclass(frozen=True, slots=True)
class LandedTopics:
    """The two topics that are landed, and the one that says what the gateways counted."""

    readings: str = READINGS
    dead_letters: str = DEAD_LETTERS
    outcomes: str = OUTCOMES

    @property
    def names(self) -> tuple[str, str]:
        """The two that are landed."""
        return self.readings, self.dead_letters


def kafka_options(settings: KafkaSettings, topics: LandedTopics, *, start: Offsets, max_records: int) -> dict[str, str]:
    """Every option of Spark's Kafka source.

    Args:
        settings: the cluster.
        topics: what to read.
        start: where a new checkpoint begins, every partition named; an existing checkpoint knows better.
        max_records: of one batch.
    """
    return {
        **{f"kafka.{key}": value for key, value in jvm_conf(settings).items()},
        "subscribe": ",".join(topics.names),
        "startingOffsets": json.dumps(start),
        # Offsets that Kafka no longer has stop the query: rows are never skipped in silence.
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": str(max_records),
        # A batch's records of one partition in one poll instead of 500 at a time.
        "kafka.max.poll.records": "10000",
        # Spark asks for a partition's bounds in every fetch, on the connection where the consumer's fetch-ahead waits at
        # the broker for records that may not come: half a second by default, and a busy pipeline stopped for it.
        "kafka.fetch.max.wait.ms": "5",
        "fetchOffset.numRetries": "1",
        "kafka.default.api.timeout.ms": "15000",
        "kafka.request.timeout.ms": "10000",
    }


def cut_options(cut: BatchCut, max_records: int) -> dict[str, str]:
    """Options that let records gather in Kafka before a batch begins; none where it begins at once.

    They decide only where a batch ends, and its end is in the checkpoint before it runs. A query that lands what is there and
    ends (`availableNow`) does without them, for it has nothing to wait for.
    """
    if not cut.records or not cut.seconds:
        return {}
    return {
        "minOffsetsPerTrigger": str(min(cut.records, max_records)),
        "maxTriggerDelay": f"{max(1, round(cut.seconds * 1000))}ms",
    }


def read_topics(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The stream of raw records: key, value, topic, partition, offset, timestamp."""
    records = spark.readStream.format("kafka").options(**options).load()
    return records.select("key", "value", "topic", "partition", "offset", "timestamp")

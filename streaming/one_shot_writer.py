"""The writer for one command where no stream runs: lock, tables and a Spark session, without a query."""

from collections.abc import Iterator
from contextlib import contextmanager

from ingest.kafka_settings import KafkaSettings
from lakehouse.jvm import JvmOptions
from lakehouse.lake_settings import LakeSettings
from monitoring.metrics.stream import StreamMetrics
from streaming.kafka_source import LandedTopics
from streaming.locked_writer import acquire_writer
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

__all__ = ["one_shot_writer"]


@contextmanager
def one_shot_writer(
    kafka: KafkaSettings, stream: StreamSettings, lake: LakeSettings, jvm: JvmOptions, metrics: StreamMetrics
) -> Iterator[WriterContext]:
    """Yield a `WriterContext` while the block runs; Kafka is not needed. A stream cannot start in the meantime.

    Raises:
        FatalError: another process writes there, or a table's log is damaged.
    """
    with acquire_writer(lake, stream) as sole, sole.session(jvm, app_name="tidegate-command") as session:
        yield WriterContext(session.spark, kafka, sole.stream, sole.lake, metrics, LandedTopics())

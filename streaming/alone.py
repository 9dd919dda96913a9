"""The writer for one command where no stream runs: lock, tables and a Spark session, without a query."""

from collections.abc import Iterator
from contextlib import contextmanager

from ingest.settings import KafkaSettings
from lakehouse.jvm import JvmOptions
from lakehouse.settings import LakeSettings
from monitoring.metrics.stream import StreamMetrics
from streaming.settings import StreamSettings
from streaming.sole import sole_writer
from streaming.source import LandedTopics
from streaming.writer import Writer

__all__ = ["writer_alone"]


@contextmanager
def writer_alone(
    kafka: KafkaSettings, stream: StreamSettings, lake: LakeSettings, jvm: JvmOptions, metrics: StreamMetrics
) -> Iterator[Writer]:
    """Yield a `Writer` while the block runs; Kafka is not needed. A stream cannot start in the meantime.

    Raises:
        FatalError: another process writes there, or a table's log is damaged.
    """
    with sole_writer(lake, stream) as sole, sole.session(jvm, app_name="tidegate-command") as session:
        yield Writer(session.spark, kafka, sole.stream, sole.lake, metrics, LandedTopics())

"""The writer for one command where no stream runs: lock, tables and a Spark session, without a query."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from ingest.settings import KafkaSettings
from lakehouse.create import ensure_tables
from lakehouse.derived import ALL_TABLES
from lakehouse.health import refuse_damaged
from lakehouse.jvm import JvmOptions
from lakehouse.session import open_session
from lakehouse.settings import LakeSettings
from monitoring.metrics.stream import StreamMetrics
from streaming.service import absolute, take_locks
from streaming.settings import StreamSettings
from streaming.source import LandedTopics
from streaming.writer import Writer

__all__ = ["writer_alone"]


@contextmanager
def writer_alone(
    kafka: KafkaSettings, stream: StreamSettings, lake: LakeSettings, jvm: JvmOptions, metrics: StreamMetrics
) -> Iterator[Writer]:
    """A `Writer` while the block runs; Kafka need not be there. A stream that starts meanwhile is refused.

    Raises:
        FatalError: another process writes there, or a table's log is damaged.
    """
    with ExitStack() as cleanup:
        lake = lake.model_copy(update={"root": absolute(lake.root)})
        stream = stream.model_copy(update={"checkpoint": absolute(stream.checkpoint)})
        locks = take_locks(lake, stream, cleanup)
        refuse_damaged(lake.root, ALL_TABLES)
        ensure_tables(lake.root, ALL_TABLES.values(), log_retention_hours=lake.log_retention_hours)
        session = open_session(
            replace(jvm, heap=stream.driver_memory),
            master=stream.master,
            app_name="tidegate-command",
            extra=stream.extra,
            keep_open=[lock.fd for lock in locks],
        )
        cleanup.callback(session.close)
        yield Writer(session.spark, kafka, stream, lake, metrics, LandedTopics())

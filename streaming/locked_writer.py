"""The only writer of a set of tables: its locks or its writer epoch, the check and creation of the tables, its Spark session.

The stream holds it while it runs; a command can hold it only while no stream runs.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings
from lakehouse.conditional_puts import check_conditional_put, conditional_conf, define_log_store
from lakehouse.create import check_tables, ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.health import refuse_damaged
from lakehouse.jvm import JvmOptions
from lakehouse.lake_settings import LakeSettings
from lakehouse.lock import WriterLock
from lakehouse.object_store import is_s3, s3_spark_conf, store_errors, store_text, use_s3
from lakehouse.paths import is_local, to_path
from lakehouse.session import LakeSession, open_session
from lakehouse.writer_epoch import take_tables
from monitoring.metrics.stream import StreamMetrics
from streaming.kafka_source import LandedTopics
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LockedWriter", "acquire_writer", "one_shot_writer"]

logger = logging.getLogger("tidegate.streaming.writer")


@dataclass(frozen=True, slots=True)
class LockedWriter:
    """Holder of the locks; `lake` and `stream` have absolute paths, so that Spark's JVM and this process agree on places."""

    lake: LakeSettings
    stream: StreamSettings
    locks: tuple[WriterLock, ...]

    @contextmanager
    def session(
        self, jvm: JvmOptions, *, app_name: str, may_take: "Callable[[SparkSession], bool]" = lambda spark: True
    ) -> Iterator[LakeSession]:
        """Yield a Spark session; all tables exist then.

        The JVM holds the locks too, so that a JVM without its process still keeps other writers out. The tables of an object
        store are taken over from an earlier writer when this session can write there and `may_take` says so, and not before;
        it may raise instead. Without it they stay as they are, and the caller must not write.

        Raises:
            ConfigError: the versions do not fit, or a setting lets two writers of an object store overwrite each other.
            FatalError: the object store cannot be written, or does not have conditional puts.
            FencedError: another writer took over the tables at the same time.
            UnavailableError: the object store does not answer.
        """
        buckets = [place for place in (self.lake.root, self.stream.checkpoint) if is_s3(place)]
        store = s3_spark_conf(self.lake, self.stream.checkpoint)
        if buckets:
            store |= conditional_conf(self.stream.extra)
        with ExitStack() as cleanup:
            session = open_session(
                replace(jvm, heap=self.stream.driver_memory),
                master=self.stream.master,
                app_name=app_name,
                extra={**store, **self.stream.extra},
                secret=self.stream.auth_secret,
                keep_open=[lock.fd for lock in self.locks],
            )
            try:
                if buckets:
                    define_log_store(session.spark)
                for place in buckets:
                    check_conditional_put(session.spark, place)
                if is_s3(self.lake.root) and may_take(session.spark):
                    self._take_tables(cleanup)
                yield session
            finally:
                session.close()

    def _take_tables(self, cleanup: ExitStack) -> None:
        from deltalake.exceptions import DeltaError

        try:
            with store_errors(self.lake.root):
                epoch = cleanup.enter_context(take_tables(self.lake.root, ALL_TABLES, lambda: _ensure(self.lake)))
        except DeltaError as error:
            message = (
                f"The tables at {self.lake.root} cannot be created or changed ({store_text(error)}). If another stream starts "
                "there, stop one of the two, then start again."
            )
            raise UnavailableError(message) from error
        logger.info("writing the tables at %s with writer epoch %d", self.lake.root, epoch)


@contextmanager
def acquire_writer(lake: LakeSettings, stream: StreamSettings) -> Iterator[LockedWriter]:
    """Yield the only writer while the block runs. Local tables exist then; those of an object store are checked, not changed.

    Raises:
        FatalError: another process writes there, a table's log is damaged, or a table has other columns.
        UnavailableError: the object store does not answer.
    """
    lake = lake.model_copy(update={"root": _absolute(lake.root)})
    stream = stream.model_copy(update={"checkpoint": _absolute(stream.checkpoint)})
    with ExitStack() as cleanup:
        locks = _take_locks(lake, stream, cleanup)
        refuse_damaged(lake.root, ALL_TABLES)
        use_s3(lake)
        if is_s3(lake.root):
            with store_errors(lake.root):
                check_tables(lake.root, ALL_TABLES.values())
        else:
            _ensure(lake)
        yield LockedWriter(lake, stream, tuple(locks))


def _ensure(lake: LakeSettings) -> None:
    ensure_tables(lake.root, ALL_TABLES.values(), log_retention_hours=lake.log_retention_hours)


def _take_locks(lake: LakeSettings, stream: StreamSettings, cleanup: ExitStack) -> list[WriterLock]:
    """Lock what is on a local disk. Tables in an object store are taken over instead (lakehouse/writer_epoch.py)."""
    locks = []
    for uri, what in ((lake.root, "tables"), (stream.checkpoint, "checkpoint")):
        if is_local(uri):
            locks.append(WriterLock(Path(uri), what=what))
            cleanup.callback(locks[-1].close)
    return locks


def _absolute(uri: str) -> str:
    """Return a path that Spark's JVM and this process understand in the same way."""
    return str(to_path(uri).absolute()) if is_local(uri) else uri


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

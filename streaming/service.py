"""The stream's run loop: it takes the locks, starts Spark and the query, waits out temporary errors, and drains at the end.

Before the stream reports ready, the landing runs once with artificial records into a temporary table. The JVM loads and
compiles some thousand classes in the first write, and the first real readings should not wait for that.
"""

import logging
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.contract.errors import FatalError, RetryableError, TidegateError
from ingest.contract.reading import Reading, ReadingRecord, encode_record
from ingest.contract.topics import READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import wait_for_kafka
from ingest.topics.offsets import end_offsets
from lakehouse.append import Appender
from lakehouse.commit_metadata import encode_metadata
from lakehouse.create import create_table
from lakehouse.jvm import JvmOptions
from lakehouse.lake_settings import LakeSettings
from lakehouse.paths import table_uri
from lakehouse.session import LakeSession
from lakehouse.tables import DEAD_LETTERS, TABLES
from lakehouse.tables import READINGS as READINGS_TABLE
from lakehouse.writer_epoch import CommitConflictError, fence_of, find_takeover, refuse_overtaken
from monitoring.metrics.stream import StreamMetrics
from streaming.background_tasks import BackgroundTasks, make_background_tasks
from streaming.decode import dead_letter_rows, decode_stream, landed_at, reading_rows
from streaming.dedup_index import KEY_COLUMNS, DedupIndex
from streaming.drain_deadline import DrainDeadline
from streaming.executors.executor_check import check_login
from streaming.kafka_source import LandedTopics
from streaming.landing_offsets import Offsets, newest_mark, record_count
from streaming.landing_progress import LandingProgress, StreamState, unseen_reports
from streaming.locked_writer import acquire_writer
from streaming.query_failures import classify_query_failure
from streaming.start_landing import LAND, LandQuery, open_check, start_landing
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

__all__ = ["LandingService", "run"]

logger = logging.getLogger("tidegate.streaming.service")

POLL_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
_WARM_UP_ROUNDS: Final = 1
_WARM_UP_RECORDS: Final = 200


def run(
    kafka: KafkaSettings,
    stream: StreamSettings,
    lake: LakeSettings,
    jvm: JvmOptions,
    metrics: StreamMetrics,
    stop: threading.Event,
    *,
    state: StreamState | None = None,
    mirror: Callable[[Offsets], object] = lambda offsets: None,
    topics: LandedTopics | None = None,
) -> None:
    """Land until `stop` is set; return when the current batch is committed and Spark has ended.

    Args:
        kafka: the cluster.
        stream: settings of the query; `driver_memory` becomes the JVM's heap.
        lake: settings of the tables.
        jvm: Java, jars, log folder and flags.
        metrics: metrics of this process.
        stop: ends the run.
        state: receives the state; the exporter asks its `healthy`.
        mirror: receives the stored offsets after each batch; must not block.
        topics: the landed topics, by default those of the contract.

    Raises:
        FatalError: another process writes there, the tables have another schema, the checkpoint is damaged, Kafka lost
            records, or Spark ended; the text has the next step.
        ConfigError: the installed versions do not fit together.
    """
    told = state or StreamState()
    with acquire_writer(lake, stream) as sole:
        told.set(ready=False, detail="starting Spark")

        def can_land(spark: SparkSession) -> bool:
            # An earlier stream on an object store must not end for one that cannot land.
            if not wait_for_kafka(kafka, stop, lambda why: told.set(ready=False, detail=why)):
                return False
            if sole.stream.checks_on_executors:
                check_login(sole.lake.root, spark)
            return not stop.is_set()

        with sole.session(jvm, app_name="tidegate-land", may_take=can_land) as session:
            LandingService(session, kafka, sole.stream, sole.lake, metrics, told, mirror, topics or LandedTopics()).run(
                stop
            )
    told.set(ready=False, detail="stopped")


@dataclass(slots=True)
class LandingService:
    """One Spark session and its query, which restarts after each temporary error."""

    session: LakeSession
    kafka: KafkaSettings
    settings: StreamSettings
    lake: LakeSettings
    metrics: StreamMetrics
    state: StreamState
    mirror: Callable[[Offsets], object]
    topics: LandedTopics

    def run(self, stop: threading.Event) -> None:
        """Start the query, and restart it after temporary errors, until `stop` is set or a permanent error is raised."""
        # Driver and executors must both see the temporary table, so they must share this machine's disk.
        if self.settings.warm_up and self.settings.master.startswith("local") and not self._is_behind():
            self.state.set(ready=False, detail="warming Spark up")
            _warm_up(self.session.spark, stop)
        pause = 0.0
        while not stop.wait(pause):
            if not wait_for_kafka(self.kafka, stop, lambda why: self.state.set(ready=False, detail=why)):
                return
            began = time.monotonic()
            try:
                self._land_until(stop)
                return
            except RetryableError as error:
                if time.monotonic() - began > LONGEST_PAUSE_SECONDS:
                    pause = 0.0  # it landed for a while, so this is a new error
                pause = min(max(error.retry_after_seconds, 2 * pause), LONGEST_PAUSE_SECONDS)
                self.metrics.restarts.inc()
                self.state.set(ready=False, detail=str(error))

    def _is_behind(self) -> bool:
        """Return whether Kafka has unread records: landing them is enough warm-up."""
        with suppress(TidegateError, OSError):
            mark = newest_mark(self.lake.root, "readings")
            topic = self.topics.readings
            return mark is not None and record_count(mark.ends, {topic: end_offsets(self.kafka, topic)}, topic) > 0
        return False

    def _land_until(self, stop: threading.Event) -> None:
        with DrainDeadline(self.session.spark, stop) as deadline:
            try:
                land, chores, progress = self._start(deadline)
                try:
                    with self._named_errors():
                        self._await(land, chores, progress, stop)
                finally:
                    deadline.begin()
                    chores.stop()
                    self._drain(land)
            except CommitConflictError:
                raise
            except TidegateError as error:
                if not (stop.is_set() and deadline.expired):
                    raise
                logger.debug("cancelled by the stop", exc_info=error)

    def _start(self, deadline: DrainDeadline) -> tuple[LandQuery, BackgroundTasks, LandingProgress]:
        progress = LandingProgress(self.metrics, LAND, late_seconds=self.settings.watermark_delay_seconds)
        spark, root = self.session.spark, self.lake.root
        # An overtaken process deletes nothing, and reads no checkpoint that the other stream moves.
        with self._named_errors():
            refuse_overtaken(self._readings)
            check, seen = open_check(spark, root, self.settings, progress)
            try:
                land = start_landing(spark, root, self.kafka, self.settings, check, progress, self.mirror, self.topics)
            except BaseException:
                with suppress(Exception):
                    check.close(None)
                raise
        writer = WriterContext(
            spark, self.kafka, self.settings, self.lake, self.metrics, self.topics, seen,
            jvm_runs=lambda: self.session.jvm.process.poll() is None, is_cancelled=lambda: deadline.expired,
        )  # fmt: skip
        chores = BackgroundTasks(writer, make_background_tasks(writer))
        chores.start()
        return land, chores, progress

    def _await(
        self, land: LandQuery, chores: BackgroundTasks, progress: LandingProgress, stop: threading.Event
    ) -> None:
        self.state.set(ready=True, detail="landing")
        while not stop.wait(POLL_SECONDS):
            self._check_jvm()
            if chores.conflict is not None:
                raise chores.conflict
            if not land.query.isActive:
                failure = land.landing.failure or land.query.exception()
                raise failure if isinstance(failure, Exception) else FatalError("The landing query ended unexpectedly.")
            # The question costs the JVM some milliseconds, so do not ask an idle stream.
            if progress.awaits_report:
                progress.spark(unseen_reports(land.query, progress.reported))
            else:
                progress.idle()

    def _drain(self, land: LandQuery) -> None:
        """Let the current batch finish, then stop. After an interrupt the batch would only be replayed."""
        with suppress(Exception):
            land.landing.stop()
            land.query.stop()
        with suppress(Exception):
            land.landing.close()

    def _check_jvm(self, patience_seconds: float = 0.0) -> None:
        with suppress(subprocess.TimeoutExpired):
            code = self.session.jvm.process.wait(patience_seconds)
            message = f"Spark's JVM ended unexpectedly with code {code}; see {self.session.jvm.log}."
            raise FatalError(message)

    @property
    def _readings(self) -> str:
        return table_uri(self.lake.root, READINGS_TABLE.name)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Give each error of the block its sentence."""
        try:
            yield
        except Exception as error:
            named = self._fault(error)
            if named is error:
                raise
            raise named from error

    def _fault(self, error: Exception) -> TidegateError:
        logger.debug("the query ended", exc_info=error)
        if isinstance(error, CommitConflictError):
            return error
        # Two streams also meet in the checkpoint. There Spark only says that a file exists, and what one of them reads while the
        # other one lands may look like lost commits.
        if fence_of(self._readings) is not None:
            self.state.set(ready=False, detail="the query ended; reading whether another stream has the tables")
            if (taken := find_takeover(self._readings)) is not None:
                return taken
        try:
            # py4j's error does not say that the JVM has ended, and its end may show only a moment later.
            self._check_jvm(0.5)
        except FatalError as ended:
            return ended
        return classify_query_failure(
            error,
            bootstrap_servers=self.kafka.bootstrap_servers,
            log=str(self.session.jvm.log),
            root=self.lake.root,
            checkpoint=self.settings.checkpoint,
        )


def _warm_up(spark: SparkSession, stop: threading.Event) -> None:
    """Land artificial records into a table in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="tidegate-warm-up-") as root:
        for table in TABLES.values():
            create_table(root, table, log_retention_hours=1)
        readings, dead_letters = (Appender(spark, root, table) for table in (READINGS_TABLE, DEAD_LETTERS))
        records, seen = spark.range(_WARM_UP_RECORDS, numPartitions=1), DedupIndex()
        record = encode_record(_warm_up_record()).decode()
        for _ in range(_WARM_UP_ROUNDS):
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


def _warm_up_record() -> ReadingRecord:
    received_us = int(datetime.now(UTC).timestamp() * 1_000_000)
    readings = [Reading("temperature", value=21.5, unit="°C", time_us=received_us), Reading("state", text="on")]
    return ReadingRecord(
        v=1, gateway="warm-up", epoch=1, number=1, received_us=received_us, topic="warm-up", device="warm-up", readings=readings,
        message_id="bs:1:1", boot=1, seq=1,
    )  # fmt: skip

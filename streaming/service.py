"""The stream's run loop: tables, lock, Spark, query; waits out passing faults; back only when drained.

Before the stream says that it is ready, the landing's own code runs once on made-up records, into a table that is thrown away.
The JVM loads and compiles some thousand classes in the first write, and the first real readings should not wait for that.
"""

import logging
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
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
from lakehouse.paths import is_local
from lakehouse.session import LakeSession
from lakehouse.tables import DEAD_LETTERS, TABLES
from lakehouse.tables import READINGS as READINGS_TABLE
from monitoring.metrics.stream import StreamMetrics
from streaming.background_tasks import BackgroundTasks, make_background_tasks
from streaming.decode import dead_letter_rows, decode_stream, landed_at, reading_rows
from streaming.dedup_index import KEY_COLUMNS, DedupIndex
from streaming.kafka_source import LandedTopics
from streaming.landing_offsets import Offsets, newest_mark, record_count
from streaming.landing_progress import LandingProgress, StreamState, unseen_reports
from streaming.locked_writer import acquire_writer
from streaming.query_failures import classify_query_failure
from streaming.start_landing import LAND, LandQuery, start_landing
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

__all__ = ["LandingService", "run"]

logger = logging.getLogger("tidegate.streaming.service")

POLL_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
SNAPSHOT_NAME: Final = "_seen.parquet"
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
    """Land until `stop` is set; returns when the batch in hand is committed and Spark is gone.

    Args:
        kafka: the cluster.
        stream: the query's settings; `driver_memory` becomes the JVM's heap.
        lake: where the tables are.
        jvm: Java, jars, log folder and flags.
        metrics: of this process.
        stop: ask to end.
        state: receives the state; the exporter asks its `healthy`.
        mirror: receives the stored offsets after each batch; must not block.
        topics: the two topics, by default those of the contract.

    Raises:
        FatalError: another writer is at work, the tables have another shape, the checkpoint is damaged, Kafka lost
            records, or Spark ended; one sentence with the next step.
        ConfigError: the installed versions do not fit.
    """
    told = state or StreamState()
    with acquire_writer(lake, stream) as sole:
        told.set(ready=False, detail="starting Spark")
        with sole.session(jvm, app_name="tidegate-land") as session:
            LandingService(session, kafka, sole.stream, sole.lake, metrics, told, mirror, topics or LandedTopics()).run(
                stop
            )
    told.set(ready=False, detail="stopped")


@dataclass(slots=True)
class LandingService:
    """One session and the query on it, started again after each passing fault."""

    session: LakeSession
    kafka: KafkaSettings
    settings: StreamSettings
    lake: LakeSettings
    metrics: StreamMetrics
    state: StreamState
    mirror: Callable[[Offsets], object]
    topics: LandedTopics

    def run(self, stop: threading.Event) -> None:
        """Start, await, restart; until `stop` or a fault that does not pass."""
        # Only where driver and executors share this machine's disk can both see the throw-away table.
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
                    pause = 0.0  # it had landed for a while: a new fault, not the old one again
                pause = min(max(error.retry_after_seconds, 2 * pause), LONGEST_PAUSE_SECONDS)
                self.metrics.restarts.inc()
                self.state.set(ready=False, detail=str(error))

    def _is_behind(self) -> bool:
        """Return whether records wait in Kafka behind the stored rows: landing those is enough warm-up."""
        with suppress(TidegateError):
            mark = newest_mark(self.lake.root, "readings")
            topic = self.topics.readings
            return mark is not None and record_count(mark.ends, {topic: end_offsets(self.kafka, topic)}, topic) > 0
        return False

    def _land_until(self, stop: threading.Event) -> None:
        progress = LandingProgress(self.metrics, LAND, late_seconds=self.settings.watermark_delay_seconds)
        seen = DedupIndex(Path(self.lake.root) / SNAPSHOT_NAME if is_local(self.lake.root) else None)
        seen.load(self.lake.root, horizon_days=self.settings.horizon_days)
        try:
            land = start_landing(
                self.session.spark, self.lake.root, self.kafka, self.settings, seen, progress, self.mirror, self.topics
            )
        except TidegateError:
            raise
        except Exception as error:
            raise self._fault(error) from error
        writer = WriterContext(
            self.session.spark, self.kafka, self.settings, self.lake, self.metrics, self.topics, seen
        )
        chores = BackgroundTasks(writer, make_background_tasks(writer))
        chores.start()
        try:
            self._await(land, progress, stop)
        except TidegateError:
            raise
        except Exception as error:
            raise self._fault(error) from error
        finally:
            chores.stop()
            self._drain(land)

    def _await(self, land: LandQuery, progress: LandingProgress, stop: threading.Event) -> None:
        self.state.set(ready=True, detail="landing")
        while not stop.wait(POLL_SECONDS):
            self._check_jvm()
            if not land.query.isActive:
                error = (
                    land.landing.failure
                    or land.query.exception()
                    or FatalError("The landing query ended unexpectedly.")
                )
                raise self._fault(error) from error
            # Asking costs the JVM some milliseconds: an idle stream is not asked.
            if progress.awaits_report:
                progress.spark(unseen_reports(land.query, progress.reported))
            else:
                progress.idle()

    def _drain(self, land: LandQuery) -> None:
        """Let the batch in hand finish, then stop: an interrupt in the middle of one would only have it replayed."""
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

    def _fault(self, error: BaseException) -> TidegateError:
        logger.debug("the query ended", exc_info=error)
        try:
            # py4j's error about a JVM that is gone does not name it; its end may be seen a moment later.
            self._check_jvm(0.5)
        except FatalError as ended:
            return ended
        return classify_query_failure(
            error, bootstrap_servers=self.kafka.bootstrap_servers, log=str(self.session.jvm.log)
        )


def _warm_up(spark: SparkSession, stop: threading.Event) -> None:
    """Land made-up records into a table in a temporary folder."""
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

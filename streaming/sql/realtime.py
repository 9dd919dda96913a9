"""Real-time mode: records do not wait for the end of a batch, and a start sends none of them twice.

After a stop or a crash Spark repeats the whole current batch, and in this mode a batch lasts for `BATCH`. So a start never uses
the checkpoint of the one before. Each start looks up the records that the newest incarnation sent since its last finished
batch, sends the rest of Kafka's records, and begins a new incarnation after that. The header `batch` is the time at which a
batch began. Spark's log of offsets has that time too, so records that were sent after the end of a batch can be recognised.
"""

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from ingest.contract.errors import ConfigError, TidegateError
from ingest.contract.topics import stream_topic
from ingest.security import jvm_conf
from ingest.topics.offsets import end_offsets
from streaming.landing_offsets import Offsets
from streaming.sql.applied_streams import AppliedStream, new_incarnation
from streaming.sql.position import refuse_lost_records
from streaming.sql.sent_records import SentFile, sent_after, sent_since, separate_unsent
from streaming.sql.sinks import numbered_records, partial_batch_name, send_records, topic_rows
from streaming.sql.spans import kafka_rows
from streaming.sql.stream_offsets import StreamCheckpoint, checkpoint_path
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["catch_up_stream", "check_slots", "start_realtime"]

BATCH: Final = "1 minute"
"""Length of a batch: the span that a start compares with the topic, and the age of the consumer group's offsets."""
LEFT_CORES: Final = 2


def check_slots(writer: WriterContext, applied: AppliedStream) -> None:
    """Refuse a real-time stream that would leave the landing without cores: its tasks run for minutes, one per partition.

    Raises:
        ConfigError: says how many there are and are wanted.
    """
    cores, tasks = writer.spark.sparkContext.defaultParallelism, sum(len(parts) for parts in applied.start.values())
    if cores < tasks + LEFT_CORES:
        message = (
            f"Stream {applied.name} in real-time mode occupies {tasks} of {cores} cores all the time, one per Kafka partition, "
            f"but the landing needs {LEFT_CORES}. Set stream.master to local[{tasks + LEFT_CORES}] or more, or use "
            "`-- trigger: 100 milliseconds`."
        )
        raise ConfigError(message)


def start_realtime(writer: WriterContext, applied: AppliedStream, rows: "DataFrame") -> Any:
    """Start the query; returns Spark's handle of it."""
    options = {f"kafka.{key}": value for key, value in jvm_conf(writer.kafka).items()}
    began = F.unix_millis(F.current_timestamp()).cast("string")  # one time for all records of a batch
    sink = topic_rows(rows, applied, batch=began).writeStream.queryName(applied.name).format("kafka").options(**options)
    sink = sink.option("topic", stream_topic(applied.name)).outputMode("update")
    path = checkpoint_path(writer.settings.checkpoint, applied.name, applied.incarnation)
    trigger: Any = {"realTime": BATCH}  # PySpark's type hints do not know it yet
    return sink.option("checkpointLocation", path).trigger(**trigger).start()


def catch_up_stream(
    writer: WriterContext, applied: AppliedStream, *, then: AppliedStream | None = None
) -> AppliedStream:
    """Send the rest of what Kafka has, and begin a new incarnation behind it; call it while the stream does not run.

    Of a stream that remembers nothing and writes a topic, in either mode. Killed at any step, the next call does the rest.
    `then` is what is applied next: where the statement of today fails on a record, that one gives the rest.

    Raises:
        FatalError: the checkpoint is damaged, or Kafka lost what comes next.
        RetryableError: Kafka does not answer.
    """
    path = checkpoint_path(writer.settings.checkpoint, applied.name, applied.incarnation)
    checkpoint = StreamCheckpoint(writer.spark, path)
    done = checkpoint.finished()
    reached = applied.start if done is None else checkpoint.ends(done)
    refuse_lost_records(writer, applied, reached, path)
    ends: Offsets = {topic: end_offsets(writer.kafka, topic) for topic in applied.start}
    starts = {topic: {part: reached.get(topic, {}).get(part, 0) for part in parts} for topic, parts in ends.items()}
    if starts != ends:
        since = _next_number(checkpoint, applied, done)
        try:
            _send_rest(writer, applied, applied, starts, ends, since=since)
        except TidegateError:
            raise
        except Exception:
            if then is None:
                raise
            _send_rest(writer, applied, then, starts, ends, since=since)
    anew = replace(applied, incarnation=new_incarnation(), start=ends, history=False)
    anew.save(writer.root)
    checkpoint.delete()
    return anew


def _next_number(checkpoint: StreamCheckpoint, applied: AppliedStream, done: int | None) -> int:
    """The smallest number in the header `batch` of records that were sent after the newest batch that is done."""
    if done is None:
        return 0
    return (checkpoint.began_ms(done) if applied.shape.trigger_seconds is None else done) + 1


def _send_rest(
    writer: WriterContext,
    applied: AppliedStream,
    statement: AppliedStream,
    starts: Offsets,
    ends: Offsets,
    *,
    since: int,
) -> None:
    topic, incarnation = stream_topic(applied.name), applied.incarnation
    kept = SentFile(writer.root, applied.name, incarnation).read(since)
    if kept is None:
        sent = sent_since(writer.kafka, topic, incarnation=incarnation, number=since).records
    else:  # of batches, whose numbers say little after plans were lost
        left = kept[0]
        sent = left.records + sent_after(writer.kafka, topic, incarnation=incarnation, offsets=left.ends).records
    records = numbered_records(kafka_rows(writer, statement, starts, ends), statement).persist()
    try:
        rest, _ = separate_unsent(records, sent)
        # A name of its own, of this batch or a later one: so a second call finds what the first one sent.
        send_records(rest, writer.kafka, applied, batch=partial_batch_name(since, ends))
    finally:
        with suppress(Exception):
            records.unpersist()

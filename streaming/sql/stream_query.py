"""Start of one applied stream with its own session, checkpoint, consumer group and sinks."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import functions as F

from ingest.contract.errors import FatalError
from ingest.contract.topics import stream_group
from ingest.groups.offset_mirror import group_lag
from lakehouse.atomic_file import write_json
from streaming.landing_offsets import Offsets
from streaming.sql.applied_streams import AppliedStream, new_incarnation, read_json, streams_folder
from streaming.sql.marks import newest_stream_mark
from streaming.sql.output_frame import from_stream, make_frame, new_session
from streaming.sql.output_table import time_expression
from streaming.sql.position import PositionFollower, refuse_lost_records, resume_offsets
from streaming.sql.realtime import catch_up_stream, check_slots, start_realtime
from streaming.sql.sinks import StreamSink
from streaming.sql.spans import kafka_rows, sources_of, write_history
from streaming.sql.stream_offsets import StreamCheckpoint, checkpoint_path
from streaming.sql.swap import finished
from streaming.writer_context import WriterContext

__all__ = ["RunningStream", "progress_of", "resolve_incarnation", "start_stream", "was_started"]


@dataclass(slots=True)
class RunningStream:
    """A started stream."""

    applied: AppliedStream
    query: Any
    sink: StreamSink | None

    def stop(self) -> None:
        """Let the batch in hand finish, then end."""
        with suppress(Exception):
            if self.sink is not None:
                self.sink.stop()
            self.query.stop()
        if self.sink is not None:
            self.sink.close()

    def failure(self) -> BaseException | None:
        """Error that ended the stream; None while it runs."""
        if self.query.isActive:
            return None
        told: BaseException | None = self.sink.failure if self.sink is not None else None
        return told or self.query.exception() or FatalError(f"Stream {self.applied.name} ended unexpectedly.")


def resolve_incarnation(writer: WriterContext, applied: AppliedStream) -> AppliedStream:
    """The stream to start: itself, or where its checkpoint is gone a new incarnation from what its table or group says.

    A swap that was committed before a crash is finished, and history that was not written yet is. In real-time mode it is a new
    incarnation at each start but the first.

    Raises:
        FatalError: its checkpoint is gone, and it remembers rows or nothing says how far it was.
    """
    applied = finished(writer, applied)
    if applied.shape.trigger_seconds is None and was_started(writer.root, applied):
        return catch_up_stream(writer, applied)
    path = checkpoint_path(writer.settings.checkpoint, applied.name, applied.incarnation)
    if StreamCheckpoint(writer.spark, path).query_id() is not None:
        return applied
    mark = newest_stream_mark(writer.root, applied.name)
    own = mark if mark is not None and mark.incarnation == applied.incarnation else None
    if applied.history and own is None:
        write_history(writer, applied)
    if not was_started(writer.root, applied) and (own is None or own.batch < 0):
        return applied
    reached = own.reach if own is not None else _of_group(writer, applied)
    if applied.shape.stateful or reached is None:
        message = (
            f"The checkpoint {path} of stream {applied.name} is gone, and with it the stream's offsets and state. Rebuild the "
            f"stream: `tidegate streams rewind {applied.name} --since TIME --into shadow`, then `--swap`; or drop and apply it."
        )
        raise FatalError(message)
    start = resume_offsets(writer, applied, reached)
    anew = replace(applied, incarnation=new_incarnation(), start=start, history=False)
    anew.save(writer.root)
    return anew


def was_started(root: str, applied: AppliedStream) -> bool:
    """Return whether this incarnation ran before: then a missing checkpoint was lost."""
    started = read_json(streams_folder(root) / f"{applied.name}.started") or {}
    return started.get("incarnation") == applied.incarnation


def _of_group(writer: WriterContext, applied: AppliedStream) -> Offsets | None:
    """Return the position that a stream without a table, whose topic may repeat rows, mirrored to its consumer group."""
    if "table" in applied.shape.sinks:
        return None
    lag = group_lag(writer.kafka, stream_group(applied.name), list(applied.start))
    reached = {topic: {part: at for part, (at, _) in parts.items()} for topic, parts in lag.items()}
    whole = all(set(parts) <= set(reached.get(topic, {})) for topic, parts in applied.start.items())
    return reached if whole else None


def start_stream(
    writer: WriterContext,
    applied: AppliedStream,
    mirror: Callable[[Offsets], object],
    *,
    table_name: str | None = None,
    only_available: bool = False,
) -> RunningStream:
    """Start it on its checkpoint, or at its `start` where that is new.

    Args:
        writer: the writing process.
        applied: the stream.
        mirror: receives the offsets after each batch.
        table_name: of a shadow, which writes no topic.
        only_available: end once what Kafka has now is read.

    Raises:
        ConfigError: what it reads is not there any more.
        FatalError: the checkpoint is damaged, or Kafka lost what comes next.
        RetryableError: Kafka does not answer.
    """
    path = checkpoint_path(writer.settings.checkpoint, applied.name, applied.incarnation)
    checkpoint = StreamCheckpoint(writer.spark, path)
    if checkpoint.query_id() is not None:
        refuse_lost_records(writer, applied, checkpoint.next_offsets() or {}, path)
    rows = _rows(writer, applied)
    if table_name is None:
        write_json(streams_folder(writer.root) / f"{applied.name}.started", {"incarnation": applied.incarnation})
    query = rows.writeStream.queryName(table_name or applied.name).option("checkpointLocation", path)
    if applied.shape.trigger_seconds is None:
        check_slots(writer, applied)
        return RunningStream(applied, start_realtime(writer, applied, rows), None)
    sink = StreamSink(
        writer.spark,
        writer.root,
        writer.kafka,
        applied,
        ends=checkpoint.ends,
        again=lambda starts, ends: kafka_rows(writer, applied, starts, ends),
        mirror=mirror,
        follow=PositionFollower(writer, applied) if table_name is None else None,
        topic=table_name is None,
        table_name=table_name,
        log_retention_hours=writer.lake.log_retention_hours,
        fsync=writer.settings.fsync,
    )
    if only_available:
        query = query.trigger(availableNow=True)
    else:
        query = query.trigger(processingTime=f"{round(applied.shape.trigger_seconds * 1000)} milliseconds")
    return RunningStream(applied, query.foreachBatch(sink).start(), sink)


def _rows(writer: WriterContext, applied: AppliedStream) -> Any:
    session = new_session(writer.spark, partitions=applied.shape.partitions)
    realtime = applied.shape.trigger_seconds is None
    most = None if realtime else writer.settings.max_records_per_batch
    read = from_stream(session, writer.kafka, applied.start, max_records=most)
    rows = make_frame(session, applied.definition, sources_of(writer, session, applied), writer.root, read)
    if applied.floor is not None:
        rows = rows.where(F.expr(time_expression(rows.schema)[1]) >= F.lit(applied.floor).cast("timestamp"))
    return rows


def progress_of(query: Any, after: str) -> list[dict[str, Any]]:
    """Spark's reports of triggers that began after this time (ISO, as the reports have it), oldest first.

    Read as JSON, newest first and only those that are new: each field of a report as an object is a call into the JVM.
    """
    reports = query._jsq.recentProgress()
    found: list[dict[str, Any]] = []
    for at in range(len(reports) - 1, -1, -1):
        if reports[at].timestamp() <= after:
            break
        found.insert(0, json.loads(reports[at].json()))
    return found

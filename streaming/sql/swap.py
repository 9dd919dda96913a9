"""Swap of a rewound shadow with the live table in one Delta commit, so that readers see either the old or the new table.

The commit removes the live table's files and adds its rows from before `since`, the shadow's rows, and what both streams read
since the rewind (from the table `readings` if Kafka no longer has it). It has the mark of the new incarnation. After a crash
the next start finishes the swap.

The topic is not written again, but gets the missing records. Without state these are the records that the live stream did not
read. With state these are the shadow's windows that are newer than those of the live table. The new stream closes again the
windows that the live stream closed after the rewind, and compares them with the topic.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from ingest.contract.errors import TidegateError
from ingest.contract.topics import stream_topic
from ingest.topics.offsets import begin_offsets, end_offsets
from lakehouse.append import Appender
from lakehouse.catalog import open_table
from lakehouse.changes import table_files
from lakehouse.commit_metadata import metadata_of
from lakehouse.paths import table_uri
from lakehouse.requests import Request
from lakehouse.tables import READINGS
from streaming.landing_offsets import Offsets, has_records, largest_offsets
from streaming.sql.applied_streams import (
    AppliedStream,
    ShadowStream,
    load_applied,
    load_shadow,
    remove_file,
    streams_folder,
)
from streaming.sql.marks import StreamMark, newest_stream_mark
from streaming.sql.output_table import delete_table, ensure_table, time_expression
from streaming.sql.position import newest_position
from streaming.sql.sent_records import SentFile, SentRecords, UnmatchedRecords, sent_since
from streaming.sql.sinks import counted_records, write_topic
from streaming.sql.spans import history_rows, kafka_rows
from streaming.sql.stream_offsets import StreamCheckpoint, checkpoint_path
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "find_expired_offsets",
    "finished",
    "forget_shadow",
    "refuse_rows_lost",
    "sent_until",
    "shadow_name",
    "swap_stream",
]


def shadow_name(name: str) -> str:
    """The table of a stream's shadow."""
    return f"{name}__shadow"


def swap_stream(writer: WriterContext, request: Request) -> dict[str, Any]:
    """Make the shadow live, with the stream stopped.

    Raises:
        TidegateError: there is no shadow, or Kafka lost what it lacks of the live table.
    """
    from streaming.sql.stream_supervisor import supervisor_of

    name = request.arguments["name"]
    live = load_applied(writer.root).get(name)
    shadow = load_shadow(writer.root, name)
    if live is None or shadow is None:
        if live is not None and _swapped_by(writer, name, request):
            return {"name": name, "swapped": True, "incarnation": live.incarnation}
        message = (
            f"Stream {name} has no shadow. Build one: `tidegate streams rewind {name} --since TIME --into shadow`."
        )
        raise TidegateError(message)
    if supervisor := supervisor_of(writer.root):
        supervisor.stop_stream(name)
    mark = newest_stream_mark(writer.root, name)
    missing: dict[str, Any] = {}
    if mark is None or mark.incarnation != shadow.applied.incarnation:
        missing = _commit(writer, live, shadow, mark, request)
    applied = finished(writer, live)
    answer = {"name": name, "swapped": True, "incarnation": applied.incarnation, "since": shadow.since}
    return answer | {"missing": missing}


def finished(writer: WriterContext, live: AppliedStream) -> AppliedStream:
    """Return the applied stream after a committed swap; the stream itself if there was none."""
    shadow = load_shadow(writer.root, live.name)
    if shadow is None:
        return live
    mark = newest_stream_mark(writer.root, live.name)
    if mark is None or mark.incarnation != shadow.applied.incarnation:
        return live
    applied = shadow.applied if shadow.applied.shape.stateful else replace(shadow.applied, start=mark.offsets)
    applied.save(writer.root)
    if live.incarnation != applied.incarnation:
        StreamCheckpoint(writer.spark, _path(writer, live)).delete()
    forget_shadow(writer, live.name)
    return applied


def forget_shadow(writer: WriterContext, name: str) -> None:
    """Delete the shadow's file and table."""
    remove_file(streams_folder(writer.root) / f"{name}.shadow")
    delete_table(writer, shadow_name(name))


def sent_until(root: str, live: AppliedStream, finished: Offsets) -> Offsets:
    """Return how far the topic of the live stream is; `finished` is what its checkpoint says.

    A stop waits for the batch in hand and then interrupts Spark, mostly before the checkpoint says that the batch is finished.
    """
    reached = newest_position(root, live)
    return finished if reached is None else largest_offsets(finished, reached.offsets)


def _commit(
    writer: WriterContext, live: AppliedStream, shadow: ShadowStream, mark: StreamMark | None, request: Request
) -> dict[str, Any]:
    """Commit; returns the offsets whose output stays missing, since neither Kafka nor `readings` has it."""
    applied, name = shadow.applied, live.name
    done = StreamCheckpoint(writer.spark, _path(writer, live)).next_offsets() or live.start
    # A table gets a batch after its topic: what is stored was sent.
    own = mark if mark is not None and mark.incarnation == live.incarnation else None
    done = largest_offsets(sent_until(writer.root, live, done), own.reach if own is not None else {})
    oldest = {topic: begin_offsets(writer.kafka, topic) for topic in applied.start}
    if applied.shape.stateful or not _is_kept(applied):
        refuse_rows_lost(shadow, oldest if applied.shape.stateful else done, oldest)
    hours = writer.lake.log_retention_hours
    table = ensure_table(writer.root, name, applied.schema, log_retention_hours=hours)
    spark = writer.spark
    old = spark.read.format("delta").load(table_uri(writer.root, name))
    fresh = spark.read.format("delta").load(table_uri(writer.root, shadow_name(name)))
    parts, missing = [], dict[str, Any]()
    if applied.shape.stateful:
        newest = newest_stream_mark(writer.root, shadow_name(name))
        checkpoint = StreamCheckpoint(writer.spark, _path(writer, applied))
        batch, ends = max(checkpoint.planned() or 0, newest.batch if newest else 0), shadow.ends
        if "topic" in live.shape.sinks and "topic" in applied.shape.sinks:
            late, more = _other_windows(old, fresh)
            sent = _sent_last(writer, live, own).records
            write_topic(late, writer.kafka, applied, batch="swap", sent=sent)
            if live.shape.columns == applied.shape.columns:
                _keep_sent(writer, applied, more, done)
    else:
        batch, ends = -1, largest_offsets(done, shadow.ends, oldest)
        parts = _caught_up(writer, shadow, done, ends, oldest)
        if not _is_kept(applied):
            missing = find_expired_offsets((done, shadow.ends), oldest)
        if "topic" in applied.shape.sinks and has_records(done, ends):
            rows = _between(writer, applied, done, ends, oldest)
            write_topic(rows, writer.kafka, applied, batch="swap", sent=_sent_last(writer, live, own).records)
    columns = [field.name for field in open_table(writer.root, name).schema().fields]
    rows = _aligned(old.where(_before(old, shadow)), old, columns).unionByName(_aligned(fresh, old, columns))
    for part in parts:
        rows = rows.unionByName(_aligned(part, old, columns))
    with Appender(spark, writer.root, table).begin() as append:
        append.write(rows)
        append.replace(table_files(writer.root, name))
        append.commit(StreamMark(name, applied.incarnation, batch, ends).encode(request=request.mark()))
    return missing


def _sent_last(writer: WriterContext, live: AppliedStream, mark: StreamMark | None) -> SentRecords:
    """Return the topic's records of unfinished batches of the live stream, which may have died between topic and table."""
    if "topic" not in live.shape.sinks:
        return SentRecords()
    known = newest_position(writer.root, live)
    finished = max(known.batch if known is not None else -1, mark.batch if mark is not None else -1)
    return sent_since(writer.kafka, stream_topic(live.name), incarnation=live.incarnation, number=finished + 1)


def _other_windows(old: "DataFrame", fresh: "DataFrame") -> "tuple[DataFrame, DataFrame]":
    """The shadow's windows that the live stream did not close, and those that it alone closed: by their times."""
    found = []
    for rows, others in ((fresh, old), (old, fresh)):
        (when, than) = (time_expression(each.schema)[1] for each in (rows, others))
        newest = others.selectExpr(f"unix_micros(max({than}))").first()
        least = newest[0] if newest is not None else None
        found.append(rows if least is None else rows.where(f"unix_micros({when}) > {least}"))
    return found[0], found[1]


def _keep_sent(writer: WriterContext, applied: AppliedStream, rows: "DataFrame", done: Offsets) -> None:
    """Have the new incarnation find these rows in the topic, as if batches of its own had sent them."""
    records = counted_records(rows.select(*(column for column, _ in applied.shape.columns)), applied)
    left = UnmatchedRecords(records, end_offsets(writer.kafka, stream_topic(applied.name)))
    if records:
        SentFile(writer.root, applied.name, applied.incarnation).write(
            -1, newest=-1, until=done, before=left, after=left
        )


def _caught_up(
    writer: WriterContext, shadow: ShadowStream, stored: Offsets, ends: Offsets, oldest: Offsets
) -> list["DataFrame"]:
    """Return the rows that the shadow has not read yet, and rows from before `since` that the live table lacks."""
    parts = []
    if has_records(shadow.ends, ends):
        rows = _between(writer, shadow.applied, shadow.ends, ends, oldest)
        parts.append(rows.where(~_before(rows, shadow)))
    if has_records(stored, ends):
        rows = _between(writer, shadow.applied, stored, ends, oldest)
        parts.append(rows.where(_before(rows, shadow)))
    return parts


def _between(
    writer: WriterContext, applied: AppliedStream, starts: Offsets, ends: Offsets, oldest: Offsets
) -> "DataFrame":
    """The output of a span: what Kafka no longer has of it comes from the table `readings`, where the stream reads that alone."""
    rows = kafka_rows(writer, applied, largest_offsets(starts, oldest), ends)
    if has_records(starts, oldest) and _is_kept(applied):
        topic = writer.topics.readings
        rows = rows.unionByName(history_rows(writer, applied, oldest[topic], None, starts.get(topic)))
    return rows


def _is_kept(applied: AppliedStream) -> bool:
    """Return whether a table holds the records that Kafka no longer has."""
    return applied.shape.sources == (READINGS.name,)


def refuse_rows_lost(shadow: ShadowStream, done: Offsets, oldest: Offsets) -> None:
    """Refuse where Kafka lost records that the shadow did not read, and that the live stream read up to `done`.

    With state nothing may be missing: the shadow's checkpoint continues after what it read.

    Raises:
        TidegateError: names the partition and the next step.
    """
    for topic, parts in find_expired_offsets((shadow.ends,), oldest).items():
        for part, (begin, edge) in parts.items():
            if done.get(topic, {}).get(part, 0) > begin:
                name = shadow.applied.name
                message = (
                    f"Kafka no longer has offsets {begin} to {edge - 1} of {topic} partition {part}, and the shadow of {name} "
                    "did not read them. Nothing was changed. Build the shadow again: "
                    f"`tidegate streams rewind {name} --since TIME --into shadow`."
                )
                raise TidegateError(message)


def find_expired_offsets(starts: tuple[Offsets, ...], oldest: Offsets) -> dict[str, Any]:
    """Per topic and partition the offsets of these spans that Kafka no longer has."""
    found: dict[str, Any] = {}
    for topic, parts in oldest.items():
        for part, edge in parts.items():
            begin = min(each.get(topic, {}).get(part, edge) for each in starts)
            if begin < edge:
                found.setdefault(topic, {})[part] = [begin, edge]
    return found


def _before(rows: "DataFrame", shadow: ShadowStream) -> Any:
    """Rows of before `since`, and those without a time: these a rewind leaves as they are."""
    since = F.lit(shadow.since).cast("timestamp")
    return F.coalesce(F.expr(time_expression(rows.schema)[1]) < since, F.lit(True))


def _aligned(rows: "DataFrame", like: "DataFrame", columns: list[str]) -> "DataFrame":
    kinds = {field.name: field.dataType for field in like.schema.fields}
    have = set(rows.columns)
    return rows.select(
        *(F.col(name) if name in have else F.lit(None).cast(kinds[name]).alias(name) for name in columns)
    )


def _swapped_by(writer: WriterContext, name: str, request: Request) -> bool:
    history = open_table(writer.root, name).history(50)
    return any(metadata_of(commit).request.get("id") == request.id for commit in history)


def _path(writer: WriterContext, applied: AppliedStream) -> str:
    return checkpoint_path(writer.settings.checkpoint, applied.name, applied.incarnation)

"""Puts a rewound shadow in the place of the live table: one Delta commit, so that readers see the old or the new whole.

The commit removes the live table's files and adds: its rows from before `since`, the shadow's rows, and what both streams
read since the rewind. It carries the new incarnation's mark; a crash after it is finished at the next start.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from ingest.contract.errors import TidegateError
from lakehouse.append import Appender
from lakehouse.catalog import open_table
from lakehouse.changes import table_files
from lakehouse.create import table_uri
from lakehouse.requests import Request
from streaming.offsets import Offsets, largest, moved
from streaming.sql.applied import Applied, Shadow, load_applied, load_shadow, remove_file, streams_folder
from streaming.sql.marks import StreamMark, newest_stream_mark
from streaming.sql.offsets import StreamCheckpoint, checkpoint_path
from streaming.sql.position import newest_position
from streaming.sql.sinks import ensure_table, write_topic
from streaming.sql.spans import kafka_rows
from streaming.sql.times import time_expression
from streaming.writer import Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["finished", "forget_shadow", "sent_until", "shadow_name", "swap_stream"]


def shadow_name(name: str) -> str:
    """The table of a stream's shadow."""
    return f"{name}__shadow"


def swap_stream(writer: Writer, request: Request) -> dict[str, Any]:
    """Make the shadow live, with the stream stopped.

    Raises:
        TidegateError: there is no shadow.
    """
    from streaming.sql.supervisor import supervisor_of

    name = request.arguments["name"]
    live = load_applied(writer.root).get(name)
    shadow = load_shadow(writer.root, name)
    if live is None or shadow is None:
        if live is not None and _swapped_by(writer, name, request):
            return {"name": name, "swapped": True, "incarnation": live.incarnation}
        message = f"Stream {name} has no shadow. Make one: `tidegate streams rewind {name} --since TIME --into shadow`."
        raise TidegateError(message)
    if supervisor := supervisor_of(writer.root):
        supervisor.stop_stream(name)
    mark = newest_stream_mark(writer.root, name)
    if mark is None or mark.incarnation != shadow.applied.incarnation:
        _commit(writer, live, shadow, mark, request)
    applied = finished(writer, live)
    return {"name": name, "swapped": True, "incarnation": applied.incarnation, "since": shadow.since}


def finished(writer: Writer, live: Applied) -> Applied:
    """What is applied after a swap whose commit is there; the stream itself where there is none."""
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


def forget_shadow(writer: Writer, name: str) -> None:
    """Take the shadow's file and table away."""
    from streaming.sql.tables import delete_table

    remove_file(streams_folder(writer.root) / f"{name}.shadow")
    delete_table(writer, shadow_name(name))


def sent_until(root: str, live: Applied, finished: Offsets) -> Offsets:
    """How far the topic of the live stream is; `finished` is what its checkpoint says.

    A stop waits for the batch in hand and then interrupts Spark, mostly before the checkpoint says that the batch is finished.
    """
    reached = newest_position(root, live)
    return finished if reached is None else largest(finished, reached.offsets)


def _commit(writer: Writer, live: Applied, shadow: Shadow, mark: StreamMark | None, request: Request) -> None:
    applied, name = shadow.applied, live.name
    done = StreamCheckpoint(writer.spark, _path(writer, live)).next_offsets() or live.start
    stored = largest(done, mark.offsets) if mark is not None and mark.incarnation == live.incarnation else done
    hours = writer.lake.log_retention_hours
    table = ensure_table(writer.root, name, applied.schema, log_retention_hours=hours)
    if applied.shape.stateful:
        newest = newest_stream_mark(writer.root, shadow_name(name))
        checkpoint = StreamCheckpoint(writer.spark, _path(writer, applied))
        batch, ends = max(checkpoint.planned() or 0, newest.batch if newest else 0), shadow.ends
        parts = []
    else:
        batch, ends = -1, largest(stored, shadow.ends)
        parts = _caught_up(writer, shadow, stored, ends)
        sent = sent_until(writer.root, live, done)
        if "topic" in applied.shape.sinks and moved(sent, ends):
            write_topic(kafka_rows(writer, applied, sent, ends), writer.kafka, applied, batch="swap")
    spark = writer.spark
    old = spark.read.format("delta").load(table_uri(writer.root, name))
    fresh = spark.read.format("delta").load(table_uri(writer.root, shadow_name(name)))
    columns = [field.name for field in open_table(writer.root, name).schema().fields]
    rows = _aligned(old.where(_before(old, shadow)), old, columns).unionByName(_aligned(fresh, old, columns))
    for part in parts:
        rows = rows.unionByName(_aligned(part, old, columns))
    with Appender(spark, writer.root, table).begin() as append:
        append.write(rows)
        append.replace(table_files(writer.root, name))
        append.commit(StreamMark(name, applied.incarnation, batch, ends).encode(request=request.mark()))


def _caught_up(writer: Writer, shadow: Shadow, stored: Offsets, ends: Offsets) -> list["DataFrame"]:
    """What the shadow has not read yet; and rows of before `since` that the live table has not."""
    parts = []
    if moved(shadow.ends, ends):
        rows = kafka_rows(writer, shadow.applied, shadow.ends, ends)
        parts.append(rows.where(~_before(rows, shadow)))
    if moved(stored, ends):
        rows = kafka_rows(writer, shadow.applied, stored, ends)
        parts.append(rows.where(_before(rows, shadow)))
    return parts


def _before(rows: "DataFrame", shadow: Shadow) -> Any:
    """Rows of before `since`, and those without a time: these a rewind leaves as they are."""
    since = F.lit(shadow.since).cast("timestamp")
    return F.coalesce(F.expr(time_expression(rows.schema)[1]) < since, F.lit(True))


def _aligned(rows: "DataFrame", like: "DataFrame", columns: list[str]) -> "DataFrame":
    kinds = {field.name: field.dataType for field in like.schema.fields}
    have = set(rows.columns)
    return rows.select(
        *(F.col(name) if name in have else F.lit(None).cast(kinds[name]).alias(name) for name in columns)
    )


def _swapped_by(writer: Writer, name: str, request: Request) -> bool:
    history = open_table(writer.root, name).history(50)
    return any(request.id in (commit.get("userMetadata") or "") for commit in history)


def _path(writer: Writer, applied: Applied) -> str:
    return checkpoint_path(writer.settings.checkpoint, applied.name, applied.incarnation)

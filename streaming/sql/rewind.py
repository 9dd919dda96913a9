"""Rebuild of a stream from a past time into a shadow table next to the live one, with a report of the differences.

The rows come from Kafka by time. Before Kafka's retention, streams without state get them from the table `readings`; partition
and offset show exactly where one source ends and the other begins. Reading begins before `since`, by the time that the gateway
lets a device's clock run ahead. Of the output, only rows of `since` and later count.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ingest.contract.errors import ConfigError, FatalError, TidegateError
from ingest.topics.offsets import begin_offsets, end_offsets, offsets_at
from lakehouse.append import Appender
from lakehouse.paths import table_uri
from lakehouse.requests import Request
from streaming.landing_offsets import Offsets
from streaming.sql.applied_streams import AppliedStream, ShadowStream, load_applied, load_shadow, new_incarnation
from streaming.sql.definition_changes import compare, refused
from streaming.sql.marks import StreamMark
from streaming.sql.output_table import ensure_table, refuse_other_types, time_expression
from streaming.sql.prepare_stream import PreparedStream, prepare_stream
from streaming.sql.spans import history_rows, kafka_rows
from streaming.sql.stream_offsets import StreamCheckpoint, checkpoint_path
from streaming.sql.stream_query import start_stream
from streaming.sql.swap import forget_shadow, shadow_name
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["closed_before", "rewind_stream"]

AHEAD_SECONDS: Final = 600
"""Largest lead of a device's clock if the request does not say it: the default of gateway.max_future_seconds."""
EXAMPLES: Final = 5
_LATER: Final = ("aggregate", "distinct")
"""Operators whose rows come out once the watermark has passed them."""


def rewind_stream(writer: WriterContext, request: Request) -> dict[str, Any]:
    """Build the shadow; the live stream runs on.

    Raises:
        ConfigError: the stream has no table, no column that is a time, or a column of another type than its table's.
        TidegateError: Kafka no longer has what is needed, and Delta can't replace it; or the live stream still keeps rows of
            before `since`.
    """
    name, since = request.arguments["name"], datetime.fromisoformat(request.arguments["since"])
    earliest = since - timedelta(seconds=request.arguments.get("ahead_seconds", AHEAD_SECONDS))
    live = load_applied(writer.root).get(name)
    if live is None:
        message = f"There is no applied stream {name}. Apply it: `tidegate streams apply {name}`."
        raise TidegateError(message)
    prepared = prepare_stream(writer, name, request.arguments["text"])
    applied = _shadow_of(live, prepared, request)
    refuse_other_types(writer.root, name, prepared.schema)
    schema: Any = StructType.fromJson(json.loads(applied.schema))
    column, when = time_expression(schema, name)
    begin = {topic: begin_offsets(writer.kafka, topic) for topic in prepared.sources.topics}
    starts = {topic: _offsets_since(writer, topic, earliest) for topic in prepared.sources.topics}
    gone = {
        topic: {part: at for part, at in parts.items() if 0 < at == begin[topic][part]}
        for topic, parts in starts.items()
    }
    if applied.shape.stateful:
        _refuse_gone(gone, since)
    _refuse_open(writer, live, since)
    if (older := load_shadow(writer.root, name)) is not None:
        path = checkpoint_path(writer.settings.checkpoint, name, older.applied.incarnation)
        StreamCheckpoint(writer.spark, path).delete()
    forget_shadow(writer, name)
    applied, from_delta = replace(applied, start=starts), dict[str, Any]()
    if applied.shape.stateful:
        ends = _build_stateful(writer, applied)
    else:
        ends, from_delta = _build_stateless(writer, applied, gone, since, earliest, when)
    ShadowStream(applied, since.isoformat(), ends, column).save(writer.root)
    return {
        "name": name,
        "shadow": shadow_name(name),
        "since": since.isoformat(),
        "from_kafka": {
            topic: {part: [at, ends[topic][part]] for part, at in parts.items()} for topic, parts in starts.items()
        },
        "from_delta": from_delta,
        "diff": _diff(writer, name, since, when),
    }


def _shadow_of(live: AppliedStream, prepared: PreparedStream, request: Request) -> AppliedStream:
    if "table" not in live.shape.sinks or "table" not in prepared.shape.sinks:
        msg = f"Stream {live.name} does not write a table, so a rewind has nothing to rebuild; readers can read its topic again."
        raise ConfigError(msg)
    changes = compare(live.shape, prepared.shape)
    if refused(changes):
        shown = "; ".join(f"{change.what} ({change.why})" for change in changes if change.verdict == "refused")
        msg = f"This rewind of stream {live.name} is not possible: {shown}."
        raise ConfigError(msg)
    floor = request.arguments["since"] if prepared.shape.stateful else None
    return AppliedStream(
        name=live.name,
        text=prepared.definition.text,
        incarnation=new_incarnation(),
        schema=prepared.schema,
        shape=prepared.shape,
        start={},
        applied_at=request.at,
        author=request.author,
        floor=floor,
    )


def _offsets_since(writer: WriterContext, topic: str, since: datetime) -> dict[int, int]:
    return offsets_at(writer.kafka, topic, int(since.timestamp() * 1000))


def _build_stateless(
    writer: WriterContext, applied: AppliedStream, gone: Offsets, since: datetime, earliest: datetime, when: str
) -> tuple[Offsets, dict[str, Any]]:
    ends = {topic: end_offsets(writer.kafka, topic) for topic in applied.start}
    rows = kafka_rows(writer, applied, applied.start, ends)
    told: dict[str, Any] = {}
    before = gone.get(writer.topics.readings, {})
    if any(gone.values()):
        rows = rows.unionByName(history_rows(writer, applied, before, earliest))
        told = {writer.topics.readings: {part: f"offsets before {at}" for part, at in before.items()}}
    rows = rows.where(F.expr(when) >= F.lit(since.isoformat()).cast("timestamp"))
    hours = writer.lake.log_retention_hours
    table = ensure_table(writer.root, shadow_name(applied.name), applied.schema, log_retention_hours=hours)
    with Appender(writer.spark, writer.root, table).begin() as append:
        append.write(rows)
        append.commit(StreamMark(applied.name, applied.incarnation, -1, ends).encode())
    return ends, told


def _refuse_gone(gone: Offsets, since: datetime) -> None:
    for topic, parts in gone.items():
        if parts and since > datetime.fromtimestamp(0, UTC):
            part, at = next(iter(parts.items()))
            message = (
                f"Kafka's oldest record of {topic} partition {part} is offset {at}, and deleted records may belong to "
                f"{since.isoformat()} or later. A stream with state is rebuilt from Kafka alone: name a later --since."
            )
            raise TidegateError(message)


def _refuse_open(writer: WriterContext, live: AppliedStream, since: datetime) -> None:
    """Refuse if windows that began before `since` are still open: no stream would write them after the swap.

    The swap deletes what the live stream remembers, and the shadow leaves out what is of before `since`. Windows of one length
    close in their order: one that is in the table says that all before it are closed. So does the watermark, if no row came out.
    """
    if not any(state.startswith(_LATER) for state in live.shape.state):
        return
    schema: Any = StructType.fromJson(json.loads(live.schema))
    rows = writer.spark.read.format("delta").load(table_uri(writer.root, live.name))
    found = rows.selectExpr(f"unix_micros(max({time_expression(schema, live.name)[1]}))").first()
    closed = [] if found is None or found[0] is None else [int(found[0])]
    path = checkpoint_path(writer.settings.checkpoint, live.name, live.incarnation)
    closed += closed_before(live.shape.state, StreamCheckpoint(writer.spark, path).watermark_ms())
    newest = datetime.fromtimestamp(max(closed) / 1_000_000, UTC) if closed else None
    if newest is not None and since <= newest:
        return
    ways = "Wait for its first window, or drop the stream and apply it with `-- backfill: earliest`"
    message = (
        f"Stream {live.name} has not yet written all windows that begin before {since.isoformat()}; a swap would lose them. "
        + (f"The newest possible --since is {newest.isoformat()}." if newest is not None else f"{ways}.")
    )
    raise TidegateError(message)


def closed_before(states: Sequence[str], watermark_ms: int) -> list[int]:
    """The time (epoch us) before which no window begins that is open at this watermark; nothing where that is not known."""
    text = "; ".join(states)
    if watermark_ms <= 0 or "session_window" in text:
        return []
    spans = re.findall(r"\bwindow [^(]*\(([^)]*)\)", text)
    lengths = [max(map(int, re.findall(r"\b[0-9]{4,}\b", span)), default=watermark_ms * 1000) for span in spans]
    return [watermark_ms * 1000 - sum(lengths)]  # windows of windows close one after the other


def _build_stateful(writer: WriterContext, applied: AppliedStream) -> Offsets:
    running = start_stream(
        writer, applied, lambda offsets: None, table_name=shadow_name(applied.name), only_available=True
    )
    running.query.awaitTermination()
    if running.sink is not None and running.sink.failure is not None:
        raise running.sink.failure
    path = checkpoint_path(writer.settings.checkpoint, applied.name, applied.incarnation)
    ends = StreamCheckpoint(writer.spark, path).next_offsets()
    if ends is None:
        message = f"Kafka holds no record for stream {applied.name} since then."
        raise FatalError(message)
    return ends


def _diff(writer: WriterContext, name: str, since: datetime, when: str) -> dict[str, Any]:
    """Rows of `since` and later, as multisets over the columns that both tables have."""
    live = writer.spark.read.format("delta").load(table_uri(writer.root, name))
    shadow = writer.spark.read.format("delta").load(table_uri(writer.root, shadow_name(name)))
    common = [column for column in shadow.columns if column in live.columns]
    bound = F.expr(when) >= F.lit(since.isoformat()).cast("timestamp")
    counted = _counted(live.where(bound), common, "live").join(_counted(shadow, common, "shadow"), "row", "full_outer")
    counted = counted.na.fill(0, ["live", "shadow"]).persist()
    try:
        only_live, only_shadow = (
            F.greatest(F.col("live") - F.col("shadow"), F.lit(0)),
            F.greatest(F.col("shadow") - F.col("live"), F.lit(0)),
        )
        sums = counted.select(
            F.sum(F.least("live", "shadow")).alias("same"),
            F.sum(only_live).alias("only_live"),
            F.sum(only_shadow).alias("only_shadow"),
        ).first()
        assert sums is not None  # noqa: S101
        found: dict[str, Any] = {key: int(sums[key] or 0) for key in ("same", "only_live", "only_shadow")}
        for key, more in (("only_live", only_live), ("only_shadow", only_shadow)):
            found[f"{key}_examples"] = [row["row"] for row in counted.where(more > 0).limit(EXAMPLES).collect()]
    finally:
        counted.unpersist()
    return found


def _counted(rows: "DataFrame", columns: list[str], name: str) -> "DataFrame":
    text = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("row")
    return rows.select(text).groupBy("row").agg(F.count(F.lit(1)).alias(name))

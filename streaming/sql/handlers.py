"""Handlers of requests about streams in the writing process: plan, apply, drop. A second run of a request changes nothing."""

from dataclasses import replace
from typing import Any

from ingest.contract.errors import ConfigError, TidegateError
from ingest.contract.topics import stream_group, stream_topic
from ingest.groups.offset_mirror import delete_group
from ingest.topics.offsets import begin_offsets, end_offsets
from ingest.topics.rights import check_stream_rights
from ingest.topics.setup import create_topic, delete_topic
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.requests import Request
from streaming.landing_offsets import Offsets
from streaming.sql.applied_streams import (
    AppliedStream,
    load_applied,
    load_shadow,
    new_incarnation,
    remove_file,
    streams_folder,
)
from streaming.sql.definition_changes import DefinitionChange, compare, refused, survives
from streaming.sql.output_table import delete_table, ensure_table, refuse_other_types
from streaming.sql.prepare_stream import PreparedStream, prepare_stream
from streaming.sql.realtime import catch_up_stream, check_slots
from streaming.sql.stream_offsets import StreamCheckpoint, checkpoint_path
from streaming.sql.stream_query import was_started
from streaming.sql.stream_supervisor import supervisor_of
from streaming.sql.swap import forget_shadow, shadow_name
from streaming.writer_context import WriterContext

__all__ = ["apply_stream", "drop_stream", "plan_stream"]


def plan_stream(writer: WriterContext, request: Request) -> dict[str, Any]:
    """Return the effect of applying the file; changes nothing.

    Raises:
        ConfigError: the definition can't run.
    """
    prepared = prepare_stream(writer, request.arguments["name"], request.arguments["text"])
    applied = load_applied(writer.root).get(prepared.definition.name)
    changes = compare(applied.shape, prepared.shape) if applied else []
    if applied is None:
        _refuse_foreign_table(writer, prepared)
    elif "table" in prepared.shape.sinks and not refused(changes):
        refuse_other_types(writer.root, applied.name, prepared.schema)
    return {
        "name": prepared.definition.name,
        "applied": applied is not None,
        "columns": [{"name": name, "type": kind} for name, kind in prepared.shape.columns],
        "sources": [{"name": source.name, "topic": source.topic} for source in prepared.sources.streams],
        "tables": list(prepared.shape.tables),
        "state": list(prepared.shape.state),
        "partitions": prepared.shape.partitions,
        "sinks": _sinks(prepared),
        "changes": [_told(change) for change in changes],
        "checkpoint": _verdict(applied, changes),
    }


def apply_stream(writer: WriterContext, request: Request) -> dict[str, Any]:
    """Make a definition the one that runs; the next pass of the chore starts it, also one that is applied and failed.

    Raises:
        ConfigError: the definition can't run, its checkpoint would not survive, or its table has other columns.
        MissingRightError: this user may not create, write or read the stream's topic; nothing was stopped.
        RetryableError: Kafka does not answer.
    """
    prepared = prepare_stream(writer, request.arguments["name"], request.arguments["text"])
    name = prepared.definition.name
    applied = load_applied(writer.root).get(name)
    if applied is not None and applied.definition.sha256 == prepared.definition.sha256:
        supervisor = supervisor_of(writer.root)
        restarted = supervisor is not None and supervisor.retry_stream(name)
        return {"name": name, "changed": False, "incarnation": applied.incarnation, "restarted": restarted}
    before = applied
    if applied is None:
        _refuse_foreign_table(writer, prepared)
        applied = _first(writer, prepared, request.author)
    else:
        changes = compare(applied.shape, prepared.shape)
        if not survives(changes):
            raise ConfigError(_no_way(name, changes))
        if "table" in prepared.shape.sinks:
            refuse_other_types(writer.root, name, prepared.schema)
        applied = replace(
            applied,
            text=prepared.definition.text,
            schema=prepared.schema,
            shape=prepared.shape,
            applied_at=request.at,
            author=request.author,
        )
    if applied.shape.trigger_seconds is None:
        check_slots(writer, applied)
    make_topic(writer, prepared)
    # A table gets its new columns while nothing writes it; a shadow of the older definition is of no use any more.
    if supervisor := supervisor_of(writer.root):
        supervisor.stop_stream(name)
    if load_shadow(writer.root, name) is not None:
        forget_shadow(writer, name)
    if before is not None and _must_catch_up(writer, before, applied):
        ended = catch_up_stream(writer, before, then=applied)
        applied = replace(applied, incarnation=ended.incarnation, start=ended.start, history=False)
    make_table(writer, prepared)
    applied.save(writer.root)
    return {"name": name, "changed": True, "incarnation": applied.incarnation, "sinks": _sinks(prepared)}


def _must_catch_up(writer: WriterContext, before: AppliedStream, applied: AppliedStream) -> bool:
    """Return whether real-time mode starts, ends, or goes on with another statement: its batches have other numbers."""
    modes = (before.shape.trigger_seconds, applied.shape.trigger_seconds)
    return None in modes and "topic" in before.shape.sinks and was_started(writer.root, before)


def drop_stream(writer: WriterContext, request: Request) -> dict[str, Any]:
    """Stop a stream and take away what is its own: checkpoint, topic, consumer group, and its table unless kept.

    Raises:
        TidegateError: another stream reads its topic, or its table where that would go.
    """
    name, keep_table = request.arguments["name"], bool(request.arguments.get("keep_table"))
    applied = load_applied(writer.root)
    readers = [other.name for other in applied.values() if name in other.shape.sources and other.name != name]
    if readers:
        message = (
            f"Other streams read stream {name}: {', '.join(readers)}. Drop them first: "
            f"`tidegate streams drop {readers[0]}`."
        )
        raise TidegateError(message)
    stream = applied.get(name)
    if stream is not None and "table" in stream.shape.sinks and not keep_table:
        _refuse_joined_table(name, applied)
    shadow = load_shadow(writer.root, name)
    if stream is None:
        return {"name": name, "dropped": False}
    if supervisor := supervisor_of(writer.root):
        supervisor.stop_stream(name)
    StreamCheckpoint(writer.spark, checkpoint_path(writer.settings.checkpoint, name)).delete()
    dropped = []
    if "topic" in stream.shape.sinks:
        delete_topic(writer.kafka, stream_topic(name))
        dropped.append(stream_topic(name))
    delete_group(writer.kafka, stream_group(name))
    if shadow is not None:
        delete_table(writer, shadow_name(name))
    if "table" in stream.shape.sinks and not keep_table:
        delete_table(writer, name)
        dropped.append(f"table {name}")
    # Last: killed before it, the same request does the rest.
    for kind in ("shadow", "started", "position", "sent", "json"):
        remove_file(streams_folder(writer.root) / f"{name}.{kind}")
    return {"name": name, "dropped": True, "gone": dropped}


def _refuse_joined_table(name: str, applied: dict[str, AppliedStream]) -> None:
    if joiners := [other.name for other in applied.values() if name in other.shape.tables and other.name != name]:
        message = (
            f"Other streams join the table {name}, and their next batch would fail without it: {', '.join(joiners)}. Drop those "
            f"first (`tidegate streams drop {joiners[0]}`), or keep the table: `tidegate streams drop {name} --keep-table`."
        )
        raise TidegateError(message)


def make_topic(writer: WriterContext, prepared: PreparedStream) -> None:
    """Create the topic where it is missing.

    Raises:
        MissingRightError: this user may not create it, or not write and read it.
    """
    name = prepared.definition.name
    if "topic" in prepared.definition.sinks:
        create_topic(writer.kafka, stream_topic(name), partitions=writer.kafka.partitions)
        check_stream_rights(writer.kafka, name)


def make_table(writer: WriterContext, prepared: PreparedStream) -> None:
    """Create the table where it is missing, or add new columns to it."""
    name = prepared.definition.name
    if "table" in prepared.definition.sinks:
        hours = writer.lake.log_retention_hours
        ensure_table(writer.root, name, prepared.schema, log_retention_hours=hours)


def starts_of(writer: WriterContext, prepared: PreparedStream) -> Offsets:
    """Return the start of a first incarnation."""
    ask = end_offsets if prepared.definition.backfill == "latest" else begin_offsets
    return {topic: ask(writer.kafka, topic) for topic in prepared.sources.topics}


def _first(writer: WriterContext, prepared: PreparedStream, author: str) -> AppliedStream:
    return AppliedStream(
        name=prepared.definition.name,
        text=prepared.definition.text,
        incarnation=new_incarnation(),
        schema=prepared.schema,
        shape=prepared.shape,
        start=starts_of(writer, prepared),
        author=author,
        history=prepared.definition.backfill == "delta",
    )


def _refuse_foreign_table(writer: WriterContext, prepared: PreparedStream) -> None:
    """Refuse to write into a table of this name that does not belong to a stream."""
    from lakehouse.catalog import open_table, table_names

    name = prepared.definition.name
    if name in ALL_TABLES:
        msg = f"{name}.sql: {name} is a table of Tidegate. Choose another name for the stream."
        raise ConfigError(msg)
    if "table" not in prepared.definition.sinks or name not in table_names(writer.root):
        return
    stored = {field.name for field in open_table(writer.root, name).schema().fields}
    wanted = {column for column, _ in prepared.shape.columns}
    if stored - wanted:
        msg = (
            f"{name}.sql: a table {name} with other columns already exists ({', '.join(sorted(stored - wanted))}). Choose "
            "another name for the stream, or move that table away."
        )
        raise ConfigError(msg)
    refuse_other_types(writer.root, name, prepared.schema, other_fix="move that table away")


def _sinks(prepared: PreparedStream) -> list[str]:
    name, sinks = prepared.definition.name, prepared.definition.sinks
    return [stream_topic(name) if sink == "topic" else f"table {name}" for sink in sinks]


def _told(change: DefinitionChange) -> dict[str, str]:
    return {"what": change.what, "verdict": change.verdict, "why": change.why}


def _verdict(applied: AppliedStream | None, changes: list[DefinitionChange]) -> str:
    if applied is None:
        return "new"
    if not changes:
        return "unchanged"
    return "survives" if survives(changes) else "refused" if refused(changes) else "rewind"


def _no_way(name: str, changes: list[DefinitionChange]) -> str:
    shown = "; ".join(f"{change.what} ({change.why})" for change in changes if change.verdict != "keeps")
    if refused(changes):
        return f"This change of stream {name} is not possible: {shown}."
    return (
        f"Stream {name} can't go on from its checkpoint: {shown}. Rebuild it next to the running one, look at the difference, "
        f"then swap: `tidegate streams rewind {name} --since TIME --into shadow`, `tidegate streams rewind {name} --swap`."
    )

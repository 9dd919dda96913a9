"""Preparation of a stream's file for `apply`: a check against the present sources, without starting anything."""

from dataclasses import dataclass

from streaming.sql.applied_streams import load_applied
from streaming.sql.definition_changes import CheckpointShape
from streaming.sql.header import StreamDefinition, parse_definition
from streaming.sql.output_frame import from_stream, make_frame, new_session
from streaming.sql.output_table import table_schema
from streaming.sql.shape import check_streamable, shape_of
from streaming.sql.statement import StatementSources, find_sources
from streaming.writer_context import WriterContext

__all__ = ["PreparedStream", "prepare_stream"]


@dataclass(frozen=True, slots=True)
class PreparedStream:
    """A definition that can run; `schema` is its output as Spark's JSON, all nullable."""

    definition: StreamDefinition
    sources: StatementSources
    shape: CheckpointShape
    schema: str


def prepare_stream(writer: WriterContext, name: str, text: str) -> PreparedStream:
    """Check a definition by planning it; Kafka is not asked.

    Raises:
        ConfigError: it can't run; one sentence.
    """
    where = f"{name}.sql"
    definition = parse_definition(name, text)
    applied = {other: each for other, each in load_applied(writer.root).items() if other != name}
    partitions = definition.partitions or int(writer.spark.conf.get("spark.sql.shuffle.partitions") or 2)
    session = new_session(writer.spark, partitions=partitions)
    sources = find_sources(
        session, definition, root=writer.root, readings_topic=writer.topics.readings, applied=applied, where=where
    )
    rows = make_frame(session, definition, sources, writer.root, from_stream(session, writer.kafka, {}, max_records=1))
    shape = shape_of(definition, rows, sources=sources.names, tables=sources.tables, partitions=partitions)
    check_streamable(definition, shape, rows, where)
    return PreparedStream(definition, sources, shape, table_schema(rows.schema.json()))

"""A definition over a closed range: of Kafka's records, or of rows of `readings` if Kafka no longer has the records."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from ingest.contract.errors import TidegateError
from streaming.landing_offsets import Offsets
from streaming.sql.applied_streams import AppliedStream, load_applied
from streaming.sql.marks import StreamMark
from streaming.sql.output_frame import from_history, from_kafka, make_frame, new_session
from streaming.sql.output_table import ensure_table
from streaming.sql.sinks import write_topic
from streaming.sql.statement import StatementSources, StreamSource, find_sources
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["history_rows", "kafka_rows", "sources_of", "write_history"]


def sources_of(writer: WriterContext, session: "SparkSession", applied: AppliedStream) -> StatementSources:
    """Return the present sources of an applied stream; `session` is the stream's.

    Raises:
        ConfigError: a source is not there any more.
    """
    others = {name: each for name, each in load_applied(writer.root).items() if name != applied.name}
    return find_sources(
        session,
        applied.definition,
        root=writer.root,
        readings_topic=writer.topics.readings,
        applied=others,
        where=f"{applied.name}.sql",
    )


def kafka_rows(writer: WriterContext, applied: AppliedStream, starts: Offsets, ends: Offsets) -> "DataFrame":
    """Return the stream's output of exactly these records; for streams without state."""
    return _over(writer, applied, lambda session: from_kafka(session, writer.kafka, starts, ends))


def history_rows(
    writer: WriterContext,
    applied: AppliedStream,
    before: Mapping[int, int],
    since: datetime | None,
    after: Mapping[int, int] | None = None,
) -> "DataFrame":
    """The stream's output of the rows of `readings` whose records Kafka no longer has; see `from_history`.

    Raises:
        TidegateError: it reads another stream too, whose records no table holds as they were.
    """
    if applied.shape.sources != ("readings",):
        others = ", ".join(name for name in applied.shape.sources if name != "readings")
        message = (
            f"Stream {applied.name} reads {others}; records of it that Kafka has deleted can't be read from Delta."
        )
        raise TidegateError(message)
    return _over(writer, applied, lambda session: from_history(session, writer.root, before, since, after or {}))


def write_history(writer: WriterContext, applied: AppliedStream) -> None:
    """Write what lies before the stream's first record in Kafka, as one commit marked batch -1."""
    from lakehouse.append import Appender

    rows = history_rows(writer, applied, applied.start[writer.topics.readings], None)
    table = ensure_table(writer.root, applied.name, applied.schema, log_retention_hours=writer.lake.log_retention_hours)
    if "topic" in applied.shape.sinks:
        write_topic(rows, writer.kafka, applied, batch="history")
    with Appender(writer.spark, writer.root, table).begin() as append:
        append.write(rows)
        append.commit(StreamMark(applied.name, applied.incarnation, -1, applied.start).encode())


def _over(
    writer: WriterContext,
    applied: AppliedStream,
    read: Callable[["SparkSession"], Callable[[StreamSource], "DataFrame"]],
) -> "DataFrame":
    session = new_session(writer.spark, partitions=applied.shape.partitions)
    return make_frame(session, applied.definition, sources_of(writer, session, applied), writer.root, read(session))

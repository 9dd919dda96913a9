"""The statement of a SQL stream as Spark parses it: one read-only query, and its sources.

A source is a stream (a topic in Kafka) or a static Delta table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.contract.errors import ConfigError
from ingest.contract.topics import stream_topic
from lakehouse.catalog import table_names
from lakehouse.spark_statement import CheckedQuery, ReadOnlyError, read_query
from streaming.sql.applied_streams import AppliedStream
from streaming.sql.header import StreamDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StatementSources", "StreamSource", "find_sources", "first_line", "read_statement"]


def read_statement(session: "SparkSession", body: str, where: str) -> CheckedQuery:
    """Parse and check a statement without running it.

    Args:
        session: session of the stream.
        body: the statement.
        where: name of the file, for error texts.

    Raises:
        ConfigError: it is not SQL, or not a single read-only query.
    """
    from pyspark.errors import ParseException

    try:
        return read_query(session, body)
    except (ReadOnlyError, ParseException) as error:
        msg = f"{where}: {first_line(error)}"
        raise ConfigError(msg) from error


def first_line(error: BaseException) -> str:
    """Return Spark's first sentence about a wrong statement, without plan and stack; at most 600 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:600] if lines else type(error).__name__


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A stream that a statement reads; `schema` is the JSON schema of a SQL stream's output, None for `readings`."""

    name: str
    topic: str
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class StatementSources:
    """All sources of a statement."""

    streams: tuple[StreamSource, ...]
    tables: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the streams."""
        return tuple(source.name for source in self.streams)

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics of the streams."""
        return tuple(source.topic for source in self.streams)


def find_sources(
    session: "SparkSession",
    definition: StreamDefinition,
    *,
    root: str,
    readings_topic: str,
    applied: Mapping[str, AppliedStream],
    where: str,
) -> StatementSources:
    """Find the source of each relation of the statement: `readings`, else an applied stream with a topic, else a table.

    Raises:
        ConfigError: the statement is not a single read-only query, or it names an unknown source or its own stream.
    """
    relations = read_statement(session, definition.body, where).relations
    streams, tables = [], []
    known = table_names(root)
    for name in relations:
        other = applied.get(name)
        if name == "readings":
            streams.append(StreamSource(name, readings_topic))
        elif name == definition.name:
            msg = f"{where}: the stream reads itself; wanted `readings` or another stream after FROM."
            raise ConfigError(msg)
        elif other is not None and "topic" in other.shape.sinks:
            streams.append(StreamSource(name, stream_topic(name), other.schema))
        elif name in known:
            tables.append(name)
        else:
            have = ", ".join(["readings", *sorted(set(applied) | set(known) - {"readings"})])
            msg = (
                f"{where}: the query reads {name!r}, which is neither a table nor an applied stream; there are: {have}. Apply "
                f"a stream before the streams that read it: `tidegate streams apply {name}`."
            )
            raise ConfigError(msg)
    return StatementSources(tuple(streams), tuple(tables))

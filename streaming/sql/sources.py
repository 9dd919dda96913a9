"""Sources of a statement: streams (topics in Kafka) and static Delta tables, found by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.contract.errors import ConfigError
from ingest.contract.topics import stream_topic
from lakehouse.catalog import table_names
from streaming.sql.applied_streams import AppliedStream
from streaming.sql.header import StreamDefinition
from streaming.sql.statement import read_statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StatementSources", "StreamSource", "find_sources"]


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A stream: its topic, and for another stream's output the schema of its JSON (None for `readings`)."""

    name: str
    topic: str
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class StatementSources:
    """All that a statement reads."""

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
    """Each relation of the statement: `readings`, else an applied stream with a topic, else a table under the root.

    Raises:
        ConfigError: the statement is not one query that only reads, or a name is none of these.
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

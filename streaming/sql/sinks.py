"""Where a stream's batches go: its Delta table exactly once, its topic at least once with replays to be recognised.

Each commit of the table says which stream, incarnation and batch it is and where that ended in Kafka. The newest one is
looked up at start, and its offsets decide, never a batch's number alone: a checkpoint that lost its newest plan gives the same
number to a batch that ends later, and the rest of that batch is written then.
The table is written first. A batch that is run again after a crash is sent to the topic again, with the same headers
`stream`, `incarnation`, `batch` and `row`: a reader that keeps the newest batch and row per incarnation drops it. Of a batch that
ends later than before, the rest is sent as batch `<number>-rest`.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from ingest.contract.errors import ConfigError, FatalError
from ingest.contract.topics import stream_topic
from ingest.record_names import Names
from ingest.security import jvm_conf
from ingest.settings import KafkaSettings
from lakehouse.append import Appender
from lakehouse.catalog import newest_commits, open_table
from lakehouse.create import table_uri
from lakehouse.tables import Column, Table
from streaming.batches import Batches
from streaming.offsets import Offsets, largest, moved, parse_names, parse_offsets
from streaming.sql.applied import Applied
from streaming.sql.frame import TIME_FORMAT
from streaming.sql.prepare import table_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streaming.sql.position import Follower

__all__ = [
    "Sink",
    "StreamMark",
    "ensure_table",
    "newest_stream_mark",
    "refuse_other_types",
    "stream_marks",
    "table_of",
    "topic_rows",
    "unstored",
    "write_topic",
]

_PLAIN: Final = ("string", "timestamp", "date", "bigint", "int", "double")


@dataclass(frozen=True, slots=True)
class StreamMark:
    """What a commit of a stream's table says: batch -1 is what was written before the first batch.

    `topics` and `last` are as in the landing's marks: Kafka's ids of the topics, and the names of the last records.
    """

    stream: str
    incarnation: str
    batch: int
    offsets: Offsets
    topics: Mapping[str, str] = field(default_factory=dict)
    last: Names = field(default_factory=dict)
    at_ms: int = field(default=0, compare=False)

    def encode(self, **more: Any) -> str:
        """As it stands in userMetadata."""
        fields: dict[str, Any] = {"incarnation": self.incarnation, "batch": self.batch, "offsets": self.offsets}
        fields |= {"topics": dict(self.topics)} if self.topics else {}
        fields |= {"last": self.last} if self.last else {}
        return json.dumps({"stream": self.stream, **fields, **more})


def newest_stream_mark(root: str, name: str) -> StreamMark | None:
    """The newest mark in the table of a stream; None where it has none."""
    return next(stream_marks(root, name), None)


def stream_marks(root: str, name: str) -> Iterator[StreamMark]:
    """The marks in the table of a stream, newest first."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(table_uri(root, name)):
        return
    for commit in newest_commits(open_table(root, name)):
        try:
            data = json.loads(commit.get("userMetadata") or "")
            offsets, last = parse_offsets(data["offsets"]), parse_names(data.get("last", {}))
            mark = StreamMark(data["stream"], data["incarnation"], data["batch"], offsets, data.get("topics", {}), last)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        yield replace(mark, at_ms=int(data.get("at_ms") or commit.get("timestamp") or 0))


def unstored(starts: Offsets, ends: Offsets, stored: Offsets, *, replay: bool) -> Offsets | None:
    """From where a batch's records are not in the table yet; None where all of them are, its own start where none is.

    `replay`: the batch's number is one that the table knows. A batch without records is one of its own unless it is that.
    """
    known = largest(starts, stored)
    begin = {
        topic: {part: min(known.get(topic, {}).get(part, 0), end) for part, end in parts.items()}
        for topic, parts in ends.items()
    }
    left = moved(begin, ends)
    if not left and (replay or moved(starts, ends)):
        return None
    return begin


def table_of(name: str, columns: tuple[tuple[str, str], ...]) -> Table:
    """The definition of a stream's table: partitioned by `date` where the output has such a day."""
    plain = [column for column, kind in columns if kind in _PLAIN]
    return Table(
        name=name,
        comment="Output of a SQL-defined stream: `tidegate streams ls`.",
        columns=tuple(Column(column, kind, "") for column, kind in columns),
        statistics=tuple(plain[:8]),
        partitioned_by=("date",) if ("date", "date") in columns else (),
    )


def ensure_table(root: str, name: str, schema: str, *, log_retention_hours: int) -> Table:
    """Make the table, or add the columns that are new; `schema` is Spark's JSON, which is Delta's too.

    Raises:
        ConfigError: a column that is there has another type.
    """
    from deltalake import DeltaTable, Schema

    wanted = Schema.from_json(schema)
    columns = tuple((field["name"], _kind(field["type"])) for field in json.loads(schema)["fields"])
    table, uri = table_of(name, columns), table_uri(root, name)
    if not DeltaTable.is_deltatable(uri):
        properties = dict(table.properties(log_retention_hours=log_retention_hours))
        DeltaTable.create(
            uri, schema=wanted, partition_by=list(table.partitioned_by), name=name, description=table.comment,
            configuration=properties,
        )  # fmt: skip
        return table
    refuse_other_types(root, name, schema)
    stored = DeltaTable(uri)
    known = {field.name for field in stored.schema().fields}
    if new := [field for field in wanted.fields if field.name not in known]:
        stored.alter.add_columns(new)
    return Table(table.name, table.comment, table.columns, table.statistics, tuple(stored.metadata().partition_columns))


def refuse_other_types(root: str, name: str, schema: str, *, anew: str | None = None) -> None:
    """Refuse a definition whose column has another type than the table's column of that name; its other columns may differ.

    Args:
        root: of the tables.
        name: of the table.
        schema: what is to be written, as Spark's JSON.
        anew: how the table would be made anew, where that is not by dropping the stream.

    Raises:
        ConfigError: names the column, both types and what to do.
    """
    from deltalake import DeltaTable, Schema

    if not DeltaTable.is_deltatable(uri := table_uri(root, name)):
        return
    stored, wanted = _types(DeltaTable(uri).schema().to_json()), _types(Schema.from_json(schema).to_json())
    for column, kind in wanted.items():
        if stored.get(column, kind) != kind:
            anew = anew or f"drop the stream without --keep-table and apply it anew (`tidegate streams drop {name}`)"
            msg = (
                f"Column {column} of the table {name} is {_kind(stored[column])}, and the statement gives {_kind(kind)}: a "
                f"table's column keeps its type. CAST it back to {_kind(stored[column])}, or {anew}."
            )
            raise ConfigError(msg)


def _types(schema: str) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in json.loads(table_schema(schema))["fields"]}


def _kind(kind: Any) -> str:
    names = {"long": "bigint", "integer": "int"}
    return names.get(kind, kind) if isinstance(kind, str) else json.dumps(kind)


class Sink(Batches):
    """Of one applied stream, or of its shadow."""

    def __init__(
        self,
        spark: "SparkSession",
        root: str,
        kafka: KafkaSettings,
        applied: Applied,
        *,
        ends: Callable[[int], Offsets],
        again: Callable[[Offsets, Offsets], "DataFrame"],
        mirror: Callable[[Offsets], object],
        follow: "Follower | None" = None,
        topic: bool = True,
        table_name: str | None = None,
        log_retention_hours: int,
        fsync: bool = False,
    ) -> None:
        """A sink that goes on from what its table says.

        Args:
            spark: the session.
            root: where the tables are.
            kafka: the cluster of its topic.
            applied: the stream.
            ends: where a batch ends in Kafka.
            again: the stream's output of exactly the records between two positions.
            mirror: told the offsets after each batch.
            follow: keeps the stream's position; None for a shadow.
            topic: False leaves the topic out.
            table_name: of a shadow.
            log_retention_hours: of a new table.
            fsync: each commit is on the disk when it returns.
        """
        super().__init__()
        self._kafka, self._applied, self._ends, self._mirror = kafka, applied, ends, mirror
        self._topic = topic and "topic" in applied.shape.sinks
        self._appender: Appender | None = None
        self._again, self._follow, self._reached = again, follow, applied.start
        self._number = 0
        self.done, self.stored = -2, Offsets()
        name = table_name or applied.name
        if "table" in applied.shape.sinks:
            table = ensure_table(root, name, applied.schema, log_retention_hours=log_retention_hours)
            self._appender = Appender(spark, root, table, fsync=fsync)
            mark = newest_stream_mark(root, name)
            if mark is not None and mark.incarnation == applied.incarnation:
                self.done, self.stored = mark.batch, mark.offsets
        self.rows = 0
        self.committed_at: float | None = None

    def _write(self, rows: "DataFrame", number: int) -> None:
        starts, ends = self._starts(number), self._ends(number)
        if self._follow is not None:
            self._follow.begin(starts, ends)
        begin = (
            unstored(starts, ends, self.stored, replay=number <= self.done) if self._appender is not None else starts
        )
        if begin is not None and moved(starts, begin):
            self._write_rest(number, starts, begin, ends)
        else:
            self._write_all(rows, number, ends, table=begin is not None)
        self._number, self._reached = number + 1, ends
        self.committed_at = time.time()
        if self._follow is not None:
            self._follow.reached(ends, self._appender.version if self._appender is not None else -1)
        self._mirror(ends)

    def close(self) -> None:
        """Free what follows the stream's position; call it when the query has ended."""
        if self._follow is not None:
            self._follow.close()

    def _starts(self, number: int) -> Offsets:
        """Where the batch began: where the one before it ended, or the stream itself."""
        if number > 0 and number != self._number:
            return self._ends(number - 1)
        return self._reached

    def _write_all(self, rows: "DataFrame", number: int, ends: Offsets, *, table: bool) -> None:
        both = self._topic and self._appender is not None
        if both:
            rows = rows.persist()
        try:
            if self._appender is not None and table:
                self._commit(self._appender, rows, number, ends)
            if self._topic:
                self._send(rows, str(number))
        finally:
            if both:
                with suppress(Exception):
                    rows.unpersist()

    def _write_rest(self, number: int, starts: Offsets, begin: Offsets, ends: Offsets) -> None:
        """Of a batch whose first records are in the table: the rest into the table, all of it to the topic.

        Raises:
            FatalError: the stream remembers rows, so its output of the rest alone is not known.
        """
        name = self._applied.name
        if self._applied.shape.stateful or self._appender is None:
            message = (
                f"The table of stream {name} holds a part of batch {number} already: its checkpoint is older than the table, as "
                f"after a power cut. Nothing is written twice: rebuild it with `tidegate streams rewind {name} --since TIME "
                "--into shadow`, then `--swap`."
            )
            raise FatalError(message)
        rest = self._again(begin, ends)
        self._commit(self._appender, rest, number, ends)
        if self._topic:
            self._send(self._again(starts, begin), str(number))
            self._send(rest, f"{number}-rest")

    def _commit(self, appender: Appender, rows: "DataFrame", number: int, ends: Offsets) -> None:
        with appender.begin() as append:
            append.write(rows if self._applied.shape.stateful else rows.coalesce(1))
            if not append.paths:
                return
            stored = next(name for name in rows.columns if name not in appender.table.partitioned_by)
            self.rows += append.read_back([stored]).num_rows
            topics, last = self._follow.names(ends) if self._follow is not None else ({}, {})
            mark = StreamMark(self._applied.name, self._applied.incarnation, number, ends, topics, last)
            append.commit(mark.encode())

    def _send(self, rows: "DataFrame", batch: str) -> None:
        write_topic(rows, self._kafka, self._applied, batch=batch)


def write_topic(rows: "DataFrame", kafka: KafkaSettings, applied: Applied, *, batch: str) -> None:
    """Send rows to the stream's topic: key as text, value as JSON, and where they come from as headers."""
    options = {f"kafka.{key}": value for key, value in jvm_conf(kafka).items()}
    writer = topic_rows(rows, applied, batch=batch).write.format("kafka").options(**options)
    writer.option("topic", stream_topic(applied.name)).save()


def topic_rows(rows: "DataFrame", applied: Applied, *, batch: str) -> "DataFrame":
    """Records of the topic. `row` is the same in each run of a batch: what comes out of a shuffle is sorted for that.

    In real-time mode rows are not counted: it is a hash of key and value, the same in each run too.
    """
    value = F.to_json(F.struct(*rows.columns), {"timestampFormat": TIME_FORMAT, "ignoreNullFields": "false"})
    key = F.col(applied.definition.key or rows.columns[0]).cast("string")
    records = rows.select(key.alias("key"), value.alias("value"))
    if applied.shape.stateful:
        records = records.sortWithinPartitions("key", "value")
    realtime = applied.shape.trigger_seconds is None
    row = F.hex(F.xxhash64("key", "value")) if realtime else F.monotonically_increasing_id().cast("string")
    return records.withColumn("headers", _headers(applied, batch, row))


def _headers(applied: Applied, batch: str, row: Any) -> Any:
    texts: Mapping[str, Any] = {
        "stream": F.lit(applied.name),
        "incarnation": F.lit(applied.incarnation),
        "batch": F.lit(batch),
        "row": row,
    }
    return F.array(
        *(F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in texts.items())
    )

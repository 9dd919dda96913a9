"""Outputs of a stream's batches: first its topic, for which others wait, then its Delta table.

Each commit of the table names the stream, the incarnation, the batch and its ends in Kafka. A start looks up the newest one.
Its offsets decide, never a batch's number alone: a checkpoint that lost its newest plan gives the same number to a batch that
ends later, and the rest of that batch is then written.

Batches that may have been sent before a crash are compared with the topic, and only the rest of them is sent, as batch
`<number>-rest-<ends>`. A batch that the table has (or, without a table, that `<name>.position` has) was sent completely, so it
is not sent again. If the table has a part of a batch, only the rest is sent. So a stream that reads the topic sees no record
twice.

There are four exceptions, in which a record comes a second time: a request that the client gave up reaches Kafka late; the
statement gives another row for a batch that was cut off (it uses the time of the run, or a joined table changed); the topic no
longer has the records to compare with; or a new incarnation begins after a lost checkpoint.
"""

import json
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from ingest.contract.errors import FatalError
from ingest.contract.topics import stream_topic
from ingest.kafka_settings import KafkaSettings
from ingest.security import jvm_conf
from ingest.topics.offsets import end_offsets
from lakehouse.append import Appender
from streaming.batches import BatchRunner
from streaming.landing_offsets import Offsets, beyond, has_records, largest_offsets
from streaming.sql.applied_streams import AppliedStream
from streaming.sql.marks import StreamMark, newest_stream_mark
from streaming.sql.output_frame import TIME_FORMAT
from streaming.sql.output_table import ensure_table
from streaming.sql.sent_records import (
    Records,
    SentFile,
    SentRecords,
    UnmatchedRecords,
    sent_after,
    sent_since,
    separate_unsent,
)

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from streaming.sql.position import PositionFollower, StreamPosition

__all__ = [
    "StreamSink",
    "counted_records",
    "find_unstored_start",
    "numbered_records",
    "partial_batch_name",
    "send_records",
    "topic_rows",
    "write_topic",
]


def find_unstored_start(starts: Offsets, ends: Offsets, stored: Offsets, *, replay: bool) -> Offsets | None:
    """Return where a batch's unstored records begin; None if all are stored, the batch's own start if none are.

    `replay`: the batch's number is one that the table knows. A batch without records is one of its own unless it is that.
    """
    known = largest_offsets(starts, stored)
    begin = {
        topic: {part: min(known.get(topic, {}).get(part, 0), end) for part, end in parts.items()}
        for topic, parts in ends.items()
    }
    left = has_records(begin, ends)
    if not left and (replay or has_records(starts, ends)):
        return None
    return begin


class StreamSink(BatchRunner):
    """Output of one applied stream, or of its shadow."""

    _known: "StreamPosition | None" = None
    _kept: SentFile | None = None
    _begun: Offsets | None = None

    def __init__(
        self,
        spark: "SparkSession",
        root: str,
        kafka: KafkaSettings,
        applied: AppliedStream,
        *,
        ends: Callable[[int], Offsets],
        again: Callable[[Offsets, Offsets], "DataFrame"],
        mirror: Callable[[Offsets], object],
        follow: "PositionFollower | None" = None,
        topic: bool = True,
        table_name: str | None = None,
        log_retention_hours: int,
        fsync: bool = False,
    ) -> None:
        """Create a sink that goes on from its table's state.

        Args:
            spark: the session.
            root: where the tables are.
            kafka: the cluster of its topic.
            applied: the stream.
            ends: where a batch ends in Kafka.
            again: the stream's output of exactly the records between two positions.
            mirror: receives the offsets after each batch.
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
        self._sent: SentRecords | None = None
        self._seen: dict[int, int] = {}
        self._sent_before = Offsets()
        self._kept = SentFile(root, applied.name, applied.incarnation) if self._topic else None
        self.done, self.stored, self._done_ends = -2, Offsets(), Offsets()
        name = table_name or applied.name
        if "table" in applied.shape.sinks:
            table = ensure_table(root, name, applied.schema, log_retention_hours=log_retention_hours)
            self._appender = Appender(spark, root, table, fsync=fsync)
            mark = newest_stream_mark(root, name)
            if mark is not None and mark.incarnation == applied.incarnation:
                self.done, self.stored, self._begun = mark.batch, mark.reach, mark.starts or None
                self._done_ends = mark.offsets
        known = follow.known if follow is not None else None
        if known is not None and (self._appender is None or known.version < 0):  # there was no table until now
            self._known = known
            if not applied.shape.stateful:
                self.done, self.stored, self._done_ends = known.batch, known.offsets, known.offsets
        self.rows = 0
        self.committed_at: float | None = None

    def _write(self, rows: "DataFrame", number: int) -> None:
        starts, ends = self._starts(number), self._ends(number)
        if self._follow is not None:
            self._follow.begin(starts, ends)
        begin = self._begin(starts, ends, number)
        self._refuse_other_plan(starts, ends, number, begin)
        if begin is not None and has_records(starts, begin):
            rest = self._again(begin, ends)
            self._send(rest, number, ends)
            if self._appender is not None:
                self._commit(self._appender, rest, number, ends)
        elif begin is not None and self._appender is not None:
            self._write_both(self._appender, rows, number, ends)
        elif begin is not None:
            self._send(rows, number, ends)
        self._number, self._reached = number + 1, ends
        self.committed_at = time.time()
        if self._follow is not None:
            self._follow.reached(ends, self._appender.version if self._appender is not None else -1, number)
        self._mirror(ends)

    def close(self) -> None:
        """Free what follows the stream's position; call it when the query has ended."""
        if self._follow is not None:
            self._follow.close()

    def _starts(self, number: int) -> Offsets:
        """Return the start of the batch: the end of the one before it, or the start of the stream."""
        if number > 0 and number != self._number:
            return self._ends(number - 1)
        return self._reached

    def _begin(self, starts: Offsets, ends: Offsets, number: int) -> Offsets | None:
        """Return where to start writing a batch; None if all is written. The topic comes first, so it has what the table has."""
        known = self._known
        if known is None and self._appender is None:
            return starts
        # The output of a stream with state also depends on the batches before: only the very same batch is known to be there.
        if known is not None and (known.batch, known.starts, known.offsets) == (number, starts, ends):
            return None
        return find_unstored_start(starts, ends, self.stored, replay=number <= self.done)

    def _write_both(self, appender: Appender, rows: "DataFrame", number: int, ends: Offsets) -> None:
        if self._topic:
            rows = rows.persist()
        try:
            self._send(rows, number, ends)
            self._commit(appender, rows, number, ends)
        finally:
            if self._topic:
                with suppress(Exception):
                    rows.unpersist()

    def _refuse_other_plan(self, starts: Offsets, ends: Offsets, number: int, begin: Offsets | None) -> None:
        """Refuse to go on where the table of a stream with state holds rows of a plan that was lost.

        Numbers and offsets then disagree: a batch that the table knows has other bounds, or a new one gives what is there. A
        batch without records counts too, for it closes windows.

        Raises:
            FatalError: the output of the part that is missing is not known.
        """
        if self._appender is None or not self._applied.shape.stateful:
            return
        begun = self._begun or starts  # of the batch `done`; older marks do not say it
        is_other = number == self.done and (has_records(ends, self.stored) or starts != begun)
        is_other |= number < self.done and self._begun is not None and has_records(self._begun, ends)
        is_part = begin is not None and has_records(starts, begin)
        if not is_other and not is_part and (number <= self.done) == (begin is None):
            return
        name = self._applied.name
        message = (
            f"The table of stream {name} already holds a part of batch {number}: the checkpoint is older than the table, as "
            f"after a power cut. To avoid writing rows twice, the stream stopped. Rebuild it with `tidegate streams rewind "
            f"{name} --since TIME --into shadow`, then `--swap`."
        )
        raise FatalError(message)

    def _commit(self, appender: Appender, rows: "DataFrame", number: int, ends: Offsets) -> None:
        with appender.begin() as append:
            append.write(rows if self._applied.shape.stateful else rows.coalesce(1))
            if not append.paths:
                return
            stored = next(name for name in rows.columns if name not in appender.table.partitioned_by)
            self.rows += append.read_back([stored]).num_rows
            topics, last = self._follow.names(ends) if self._follow is not None else ({}, {})
            mark = StreamMark(self._applied.name, self._applied.incarnation, number, ends, topics, last)
            done = ((topic, part, end) for topic, parts in self.stored.items() for part, end in parts.items())
            further = {} if self._applied.shape.stateful else beyond(ends, done)
            append.commit(replace(mark, starts=self._starts(number), beyond=further).encode())

    def _send(self, rows: "DataFrame", number: int, ends: Offsets) -> None:
        if not self._topic:
            return
        applied, topic = self._applied, stream_topic(self._applied.name)
        if self._sent is None:  # the first batch since the start
            self._sent, self._sent_before, self._seen = self._look(topic, number, ends)
        sent, is_before = self._sent, has_records(self._starts(number), self._sent_before)
        # Windows come a batch later than the records that close them, so the first batch behind it is compared too.
        if number > sent.newest and not (sent.records and (is_before or applied.shape.stateful)):
            if self._kept is not None:
                self._kept.remove()
            write_topic(rows, self._kafka, applied, batch=str(number))
            return
        records = _records(rows, applied).persist()  # read twice, and a statement may give other rows the second time
        try:
            before = sent.records
            left, again = separate_unsent(records, before)
            sent.records = before - again
            _produce(_with_headers(left, applied, partial_batch_name(number, ends)), self._kafka, applied)
        finally:
            with suppress(Exception):
                records.unpersist()
        if number >= sent.newest and not is_before:
            sent.records = Counter()
        if self._kept is not None and (sent.records or number < sent.newest or self._kept.is_there):
            was, self._seen = self._seen, end_offsets(self._kafka, topic)
            states = {"before": UnmatchedRecords(before, was), "after": UnmatchedRecords(sent.records, self._seen)}
            self._kept.write(number, newest=sent.newest, until=self._sent_before, **states)

    def _look(self, topic: str, number: int, sources: Offsets) -> tuple[SentRecords, Offsets, dict[int, int]]:
        """Return the topic's possible records of this batch and later, offsets with none behind them, and the offsets read to.

        Another plan may spread it over other numbers; what was sent read nothing behind the end of the sources.
        """
        seen, before = end_offsets(self._kafka, topic), Offsets()
        done = self.done if self._appender is not None or self._known is not None else -1
        # A batch that is done and planned again is there in part: what it met is behind it.
        kept = self._kept.read(max(number, done + 1)) if self._kept is not None else None
        if kept is None:
            sent = news = self._look_back(topic, number, done)
        else:
            left, newest, before = kept
            incarnation = self._applied.incarnation
            news = sent_after(self._kafka, topic, incarnation=incarnation, offsets=left.ends)
            sent = SentRecords(left.records + news.records, max(newest, news.newest))
        if news.records:
            before = largest_offsets(before, {source: end_offsets(self._kafka, source) for source in sources})
        return sent, before, seen

    def _look_back(self, topic: str, number: int, done: int) -> SentRecords:
        incarnation = self._applied.incarnation
        if 0 <= done < number:  # a lost plan may have had what is not done under a smaller number
            return sent_since(self._kafka, topic, incarnation=incarnation, number=done + 1)
        if number <= done:
            finished = {*map(str, range(number, done + 1)), partial_batch_name(done, self._done_ends)}
            return sent_since(self._kafka, topic, incarnation=incarnation, number=number, finished=finished)
        return sent_since(self._kafka, topic, incarnation=incarnation, number=number)


def partial_batch_name(number: int, ends: Offsets) -> str:
    """The name of a batch in the headers of its records, where it was sent in part before: its rows are numbered otherwise."""
    return f"{number}-rest-{zlib.crc32(json.dumps(ends, sort_keys=True).encode()):08x}"


def write_topic(
    rows: "DataFrame", kafka: KafkaSettings, applied: AppliedStream, *, batch: str, sent: Records | None = None
) -> None:
    """Send rows to the stream's topic: key as text, value as JSON, and where they come from as headers; not those in `sent`."""
    records = _records(rows, applied)
    if sent:
        records, _ = separate_unsent(records, sent)
    _produce(_with_headers(records, applied, batch), kafka, applied)


def numbered_records(rows: "DataFrame", applied: AppliedStream) -> "DataFrame":
    """Key, value and `row`, a number that is the same in each run; also for real-time mode, whose own rows have a hash there."""
    return _records(rows, applied).withColumn("row", F.monotonically_increasing_id().cast("string"))


def send_records(records: "DataFrame", kafka: KafkaSettings, applied: AppliedStream, *, batch: str) -> None:
    """Send what `numbered_records` gives, or a part of it."""
    _produce(_with_headers(records, applied, batch), kafka, applied)


def topic_rows(rows: "DataFrame", applied: AppliedStream, *, batch: "str | SparkColumn") -> "DataFrame":
    """Records of the topic."""
    return _with_headers(_records(rows, applied), applied, batch)


def counted_records(rows: "DataFrame", applied: AppliedStream) -> Records:
    """Count the topic's records per key and value, once these rows are sent."""
    counted = _records(rows, applied).groupBy("key", "value").count().collect()
    return Counter({(row["key"], row["value"]): row["count"] for row in counted})


def _produce(records: "DataFrame", kafka: KafkaSettings, applied: AppliedStream) -> None:
    options = {f"kafka.{key}": value for key, value in jvm_conf(kafka).items()}
    records.write.format("kafka").options(**options).option("topic", stream_topic(applied.name)).save()


def _records(rows: "DataFrame", applied: AppliedStream) -> "DataFrame":
    """Key, value and `row`, which is the same in each run of a batch: what comes out of a shuffle is sorted for that.

    In real-time mode rows are not counted: it is a hash of key and value, the same in each run too.
    """
    value = F.to_json(F.struct(*rows.columns), {"timestampFormat": TIME_FORMAT, "ignoreNullFields": "false"})
    key = F.col(applied.definition.key or rows.columns[0]).cast("string")
    records = rows.select(key.alias("key"), value.alias("value"))
    if applied.shape.stateful:
        records = records.sortWithinPartitions("key", "value")
    realtime = applied.shape.trigger_seconds is None
    row = F.hex(F.xxhash64("key", "value")) if realtime else F.monotonically_increasing_id().cast("string")
    return records.withColumn("row", row)


def _with_headers(records: "DataFrame", applied: AppliedStream, batch: "str | SparkColumn") -> "DataFrame":
    return records.select("key", "value", _headers(applied, batch, F.col("row")).alias("headers"))


def _headers(applied: AppliedStream, batch: "str | SparkColumn", row: Any) -> Any:
    texts: Mapping[str, Any] = {
        "stream": F.lit(applied.name),
        "incarnation": F.lit(applied.incarnation),
        "batch": F.lit(batch),  # a column stays one
        "row": row,
    }
    return F.array(
        *(F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in texts.items())
    )

"""Records of repeated batches that a stream's topic already has, looked up at the first batch after a start.

A process may die after it sent a batch and before its checkpoint says so. Spark then plans the batch again, and another stream
that reads the topic would take its records for new ones. Only the stream itself writes to its topic, one batch after the other,
so the records of its newest batches are the last ones of each partition. Records are compared by key and value, since a batch
that is planned again may end elsewhere and number its rows differently.

During the comparison, records without a batch yet are kept in `<root>/_streams/<name>.sent`, and a second start uses them.
Batch numbers have no meaning once other plans use them, and records that were matched already would hide equal new ones.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from ingest.kafka_settings import KafkaSettings
from ingest.read.tail import TailRecord, TailStart, tail
from ingest.topics.offsets import begin_offsets, end_offsets
from lakehouse.atomic_file import write_json
from streaming.landing_offsets import Offsets, parse_offsets
from streaming.sql.applied_streams import read_json, remove_file, streams_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Records", "SentFile", "SentRecords", "UnmatchedRecords", "sent_after", "sent_since", "separate_unsent"]

Records = Counter[tuple[str | None, str | None]]
"""Number of records per key and value."""

_FIRST_LOOK: Final = 1_000
_DEEPER: Final = 8


@dataclass(slots=True)
class SentRecords:
    """Records of a batch and of later ones in the topic; `newest` is the number of the last batch, -1 if there is none."""

    records: Records = field(default_factory=Counter)
    newest: int = -1


@dataclass(slots=True)
class _Part:
    """Records read of one partition; `is_whole` says that it begins with a record of an earlier batch."""

    is_whole: bool = False
    records: Records = field(default_factory=Counter)
    newest: int = -1


@dataclass(frozen=True, slots=True)
class UnmatchedRecords:
    """Records of a topic that no batch has matched yet, and the topic's ends up to which it was read for them."""

    records: Records
    ends: dict[int, int]


class SentFile:
    """The file of one incarnation: what was left before the newest batch that was compared, and after it.

    A crash after its write may have that batch run again, or not.
    """

    def __init__(self, root: str, name: str, incarnation: str) -> None:
        self._path, self._incarnation = streams_folder(root) / f"{name}.sent", incarnation
        self.is_there = False

    def read(self, number: int) -> tuple[UnmatchedRecords, int, Offsets] | None:
        """Return the records left for this batch, the newest number sent, and the source offsets behind which nothing is left."""
        data = read_json(self._path)
        if data is None or data.get("incarnation") != self._incarnation:
            return None
        self.is_there = True
        found = data["before" if number <= data["number"] else "after"]
        records: Records = Counter({(key, value): count for key, value, count in found["records"]})
        left = UnmatchedRecords(records, {int(part): end for part, end in found["ends"].items()})
        return left, data["newest"], parse_offsets(data["until"])

    def write(
        self, number: int, *, newest: int, until: Offsets, before: UnmatchedRecords, after: UnmatchedRecords
    ) -> None:
        """Keep it once the batch of this number is sent."""
        content = {"incarnation": self._incarnation, "number": number, "newest": newest, "until": until}
        for name, left in (("before", before), ("after", after)):
            records = [[key, value, count] for (key, value), count in left.records.items()]
            content[name] = {"records": records, "ends": left.ends}
        write_json(self._path, content)
        self.is_there = True

    def remove(self) -> None:
        """Stop comparing batches."""
        if self.is_there:
            remove_file(self._path)
            self.is_there = False


def sent_since(
    kafka: KafkaSettings, topic: str, *, incarnation: str, number: int, finished: Collection[str] = ()
) -> SentRecords:
    """Return the topic's records of the batch with this number and of later ones of the incarnation.

    Held are these records alone, however far back a partition is read to find where they begin. Batches with the names
    `finished` are left out.

    Raises:
        FatalError: there is no such topic, or this user may not read it.
        RetryableError: Kafka does not answer.
    """
    oldest, ends = begin_offsets(kafka, topic), end_offsets(kafka, topic)
    read = tail(kafka, topic, TailStart("last", _FIRST_LOOK), follow=False)
    found = _look(read, incarnation, number, finished)
    sent = SentRecords()
    for part, end in sorted(ends.items()):
        depth = _FIRST_LOOK
        # By offsets, since compaction and markers of transactions leave fewer records than offsets.
        while end - depth > oldest[part] and not found.get(part, _Part()).is_whole:
            depth *= _DEEPER
            read = tail(kafka, topic, TailStart("last", depth), partition=part, follow=False)
            found |= _look(read, incarnation, number, finished)
        one = found.pop(part, _Part())
        sent.records += one.records
        sent.newest = max(sent.newest, one.newest)
    return sent


def sent_after(kafka: KafkaSettings, topic: str, *, incarnation: str, offsets: Mapping[int, int]) -> SentRecords:
    """Return the topic's records of the incarnation from these offsets on.

    Raises:
        FatalError: there is no such topic, or this user may not read it.
        RetryableError: Kafka does not answer.
    """
    ends = end_offsets(kafka, topic)
    begun = {part: offsets.get(part, 0) for part, end in ends.items() if offsets.get(part, 0) < end}
    read = (tail(kafka, topic, TailStart("offset", at), partition=part, follow=False) for part, at in begun.items())
    sent = SentRecords()
    for one in _look(chain.from_iterable(read), incarnation, 0).values():
        sent.records += one.records
        sent.newest = max(sent.newest, one.newest)
    return sent


def separate_unsent(records: "DataFrame", sent: Records) -> "tuple[DataFrame, Records]":
    """The records that are not among those sent, in their order; and those that are.

    Args:
        records: `key`, `value` and `row`, a number as text that ascends in their order.
        sent: what the topic has. Where it has a record once, one of several equal records is left out.
    """
    rows = [(key, value, count) for (key, value), count in sent.items()]
    known = records.sparkSession.createDataFrame(rows, "known_key string, known_value string, sent long")
    order = F.col("row").cast("long")
    numbered = records.withColumn("copy", F.row_number().over(Window.partitionBy("key", "value").orderBy(order)))
    same = F.col("key").eqNullSafe(F.col("known_key")) & F.col("value").eqNullSafe(F.col("known_value"))
    compared = numbered.join(F.broadcast(known), same, "left")
    left = compared.where("sent IS NULL OR copy > sent").select(*records.columns)
    found = compared.where("copy <= sent").groupBy("key", "value").count().collect()
    again: Records = Counter({(row["key"], row["value"]): row["count"] for row in found})
    return left.repartition(1).sortWithinPartitions(order), again


def _batch_number(record: TailRecord, incarnation: str) -> int | None:
    """Return the batch number of a record that a batch of this incarnation sent; None for any other record."""
    headers = {name: _text(value) for name, value in record.headers}
    number = (headers.get("batch") or "").partition("-")[0]
    return int(number) if headers.get("incarnation") == incarnation and number.isdecimal() else None


def _look(
    read: Iterable[TailRecord], incarnation: str, number: int, finished: Collection[str] = ()
) -> dict[int, _Part]:
    found: dict[int, _Part] = {}
    for record in read:
        at = _batch_number(record, incarnation)
        is_earlier = at is None or at < number
        part = found.setdefault(record.partition, _Part(is_whole=is_earlier))
        if at is not None and not is_earlier:
            part.newest = max(part.newest, at)
            if not finished or _text(dict(record.headers)["batch"]) not in finished:
                part.records[_text(record.key), _text(record.value)] += 1
    return found


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")

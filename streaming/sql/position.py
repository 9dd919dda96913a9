"""Position of an applied stream in its source topics, for streams and batches that commit nothing to a table.

`<root>/_streams/<name>.position` is replaced after each batch. If it is lost, the newest mark of the table has the position of
an earlier batch.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.contract.errors import FatalError
from ingest.read.record_names import NameReader, Names
from ingest.topics.describe import topic_ids
from ingest.topics.offsets import begin_offsets, end_offsets
from lakehouse.atomic_file import write_json
from streaming.commit_marker import LastNames
from streaming.landing_offsets import Mark, Offsets, has_records, largest_offsets, parse_names, parse_offsets
from streaming.log_identity import KafkaLog, KafkaView, lost_records
from streaming.lost_records import LostRecords
from streaming.sql.applied_streams import AppliedStream, read_json, streams_folder
from streaming.sql.marks import stream_marks

if TYPE_CHECKING:
    from streaming.writer_context import WriterContext

__all__ = ["PositionFollower", "StreamPosition", "newest_position", "refuse_lost_records", "resume_offsets"]


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """End of the newest batch of an incarnation, its topics, and the names of the last records.

    `version` is that of the table after its newest commit, -1 where there is none. `batch` is the number of that batch and
    `starts` where it began; older files say neither (-1). Where plans were lost, the batch that reached furthest stays: what
    comes before its end is done. With state it is the newest one, since what a batch gives depends on those before it.
    """

    incarnation: str
    offsets: Offsets
    topics: Mapping[str, str] = field(default_factory=dict)
    last: Names = field(default_factory=dict)
    version: int = -1
    at_ms: int = 0
    batch: int = -1
    starts: Offsets = field(default_factory=dict)

    def after(self, starts: Offsets, ends: Offsets, batch: int, *, stateful: bool) -> "StreamPosition":
        """The position once this batch is done too."""
        if not stateful and not has_records(self.offsets, ends):
            return self
        return replace(
            self, offsets=ends if stateful else largest_offsets(self.offsets, ends), batch=batch, starts=starts
        )

    def save(self, root: str, name: str) -> None:
        """Replace the file."""
        fields = ("incarnation", "offsets", "topics", "last", "version", "at_ms", "batch", "starts")
        write_json(_file(root, name), {key: getattr(self, key) for key in fields})

    def as_mark(self) -> Mark:
        """Return the position as a mark of the landing, so that the same rules compare both with Kafka."""
        return Mark("", 0, {}, self.offsets, self.topics, last=self.last, at_ms=self.at_ms)


class PositionFollower:
    """Keeps the position of one running stream: names of records on a thread, a file after each batch.

    `known` is the position at the start; None where nothing says it.
    """

    def __init__(self, writer: "WriterContext", applied: AppliedStream) -> None:
        self.known = known = newest_position(writer.root, applied)
        self._root, self._applied = writer.root, applied
        self._at = known or StreamPosition(applied.incarnation, applied.start)
        self._starts = applied.start
        self._reader = NameReader(writer.kafka)
        self._topics = topic_ids(writer.kafka, list(applied.start))
        self._names = LastNames(known.last if known is not None else {}, self._reader.read)
        version = _table_version(writer.root, applied)
        if known is None or known.version > version:  # a table that was set aside begins again
            self._save(self._at.last, version)

    def begin(self, starts: Offsets, ends: Offsets) -> None:
        """A batch of these records begins."""
        self._starts = starts
        self._names.begin(starts, ends)

    def names(self, ends: Offsets) -> tuple[Mapping[str, str], Names]:
        """Return what a mark says about the logs: the topics' ids, and the newest names before these ends.

        Raises:
            FatalError: a log was cut back while it was read.
        """
        return self._topics, self._names.before(ends)

    def reached(self, ends: Offsets, version: int, batch: int) -> None:
        """The batch of this number is done; `version` is that of the table now."""
        self._at = self._at.after(self._starts, ends, batch, stateful=self._applied.shape.stateful)
        self._save(self._names.before(ends), version)

    def close(self) -> None:
        """Free thread and client."""
        self._names.close()
        self._reader.close()

    def _save(self, last: Names, version: int) -> None:
        at_ms = int(time.time() * 1000)
        self._at = replace(self._at, topics=self._topics, last=last, version=version, at_ms=at_ms)
        self._at.save(self._root, self._applied.name)


def newest_position(root: str, applied: AppliedStream) -> StreamPosition | None:
    """The position of this incarnation; None where nothing says it."""
    if (data := _read(_file(root, applied.name))) and data["incarnation"] == applied.incarnation:
        offsets, last = parse_offsets(data["offsets"]), parse_names(data["last"])
        batch, starts = data.get("batch", -1), parse_offsets(data.get("starts", {}))
        return StreamPosition(
            applied.incarnation, offsets, data["topics"], last, data["version"], data["at_ms"], batch, starts
        )
    for mark in stream_marks(root, applied.name) if "table" in applied.shape.sinks else ():
        if mark.incarnation == applied.incarnation:
            known = StreamPosition(mark.incarnation, mark.reach, mark.topics, mark.last, at_ms=mark.at_ms)
            return replace(known, batch=mark.batch, starts=mark.starts)
    return None


def refuse_lost_records(writer: "WriterContext", applied: AppliedStream, following: Offsets, path: str) -> None:
    """Refuse to go on where Kafka no longer holds what comes next, holds another log, or the table lost its newest commit.

    Raises:
        FatalError: names the partitions and the next step.
    """
    known = newest_position(writer.root, applied)
    again = _next_step(applied, path)
    if known is not None and known.version > (version := _table_version(writer.root, applied)) >= 0:
        message = (
            f"The table {applied.name} is at version {version}, but version {known.version} was committed: its newest commits "
            f"are gone, as after a power cut. No record is skipped without a report. Next step: {again}."
        )
        raise FatalError(message)
    lost = _lost(writer, applied, following, known)
    if lost:
        message = (
            f"Kafka no longer has the records that stream {applied.name} reads next: {'; '.join(map(str, lost))}. No record is "
            f"skipped without a report. Next step: {_rewind(applied.name) if any(each.expired for each in lost) else again}."
        )
        raise FatalError(message)


def resume_offsets(writer: "WriterContext", applied: AppliedStream, reached: Offsets) -> Offsets:
    """Return the start of a new incarnation: the end of the old one, or the first record that differs from the one it read."""
    on = {topic: dict(parts) for topic, parts in reached.items()}
    for topic, part, _, edge in _lost(writer, applied, reached, newest_position(writer.root, applied)):
        if edge < on.get(topic, {}).get(part, 0):
            on[topic][part] = max(0, edge)
    return on


def _lost(
    writer: "WriterContext", applied: AppliedStream, following: Offsets, known: StreamPosition | None
) -> list[LostRecords]:
    kafka, topics = writer.kafka, list(following)
    oldest, newest = ({topic: read(kafka, topic) for topic in topics} for read in (begin_offsets, end_offsets))
    view = KafkaView(oldest, newest, topic_ids(kafka, topics))
    mark = known.as_mark() if known is not None else None
    reader = NameReader(kafka)
    try:
        return lost_records(
            view, mark, following, following, lambda: _history(writer.root, applied), KafkaLog(kafka, reader)
        )
    finally:
        reader.close()


def _history(root: str, applied: AppliedStream) -> Iterator[Mark]:
    for mark in stream_marks(root, applied.name) if "table" in applied.shape.sinks else ():
        if mark.incarnation == applied.incarnation:
            yield replace(Mark("", 0, {}, mark.offsets, mark.topics, last=mark.last), at_ms=mark.at_ms)


def _next_step(applied: AppliedStream, path: str) -> str:
    if applied.shape.stateful:
        return _rewind(applied.name)
    return f"move the folder {path} away; the stream then goes on after the records it read of this log, and stored rows stay"


def _rewind(name: str) -> str:
    return f"rebuild the missing rows with `tidegate streams rewind {name} --since TIME --into shadow`, then `--swap`"


def _table_version(root: str, applied: AppliedStream) -> int:
    from lakehouse.changes import newest_version

    return newest_version(root, applied.name)


def _file(root: str, name: str) -> Path:
    return streams_folder(root) / f"{name}.position"


def _read(file: Path) -> dict[str, Any] | None:
    data = read_json(file)
    return data if data and {"incarnation", "offsets", "topics", "last", "version", "at_ms"} <= set(data) else None

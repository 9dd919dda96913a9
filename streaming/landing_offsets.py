"""Kafka offsets of the landing: in Spark's checkpoint, in the commits of the tables, and at the start of a run.

Each commit has in its metadata the query, the batch, and the offsets at which the batch began and ended. A row comes from
(topic, partition, offset). So after a start each table says how far it is, and records before that are not written again, even
if the checkpoint is lost.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.contract.errors import FatalError
from ingest.read.record_names import Names, RecordName
from lakehouse.catalog import newest_commits
from lakehouse.commit_metadata import CommitMetadata, encode_metadata, metadata_text
from lakehouse.paths import log_name, table_uri

__all__ = [
    "Cuts",
    "Mark",
    "Offsets",
    "behind",
    "beyond",
    "has_records",
    "largest_offsets",
    "mark_history",
    "newest_mark",
    "newest_of",
    "next_era",
    "parse_mark",
    "parse_names",
    "parse_offset_log",
    "parse_offsets",
    "parse_source_offsets",
    "record_count",
    "with_new_partitions",
]

Offsets = dict[str, dict[int, int]]
"""topic -> partition -> next offset to be read."""
Cuts = dict[str, dict[int, list[int]]]
"""topic -> partition -> first offset that was given to another record, once per cut."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Mark of a commit about its batch: `app` is Spark's query id, which is in the checkpoint.

    `topics` are Kafka's ids of the topics that the offsets are of (none in marks of older versions); `last` are the names of
    the newest known record of each partition, mostly the one before its end; `cuts` are the offsets at which a partition's log
    was cut back, each accepted by a person, oldest first; `versions` are those of the landed tables before this commit, and
    `follows` the tables that the same batch commits to after it (none in marks of older versions); `lost` are the ranges that
    were skipped before this batch, because a person accepted it; `at_ms` is the commit's own time, or that of the commit of
    which a later one repeats the mark. `beyond` is how far the table is where that is further than the batch's end: a new
    checkpoint reads a batch again, and may divide it in another way. `era` counts the checkpoints: the order of two marks must
    not depend on a clock (0 in marks of older versions).
    """

    app: str
    batch: int
    starts: Offsets
    ends: Offsets
    topics: Mapping[str, str] = field(default_factory=dict)
    lost: Sequence[Sequence[Any]] = ()
    last: Names = field(default_factory=dict)
    cuts: Cuts = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    follows: Sequence[str] = ()
    beyond: Offsets = field(default_factory=dict)
    era: int = 0
    at_ms: int = field(default=0, compare=False)

    def encode(self) -> str:
        """Encode as commit metadata; `offsets` are the ends."""
        told: dict[str, Any] = {"app": self.app, "batch": self.batch, "starts": self.starts, "offsets": self.ends}
        told |= {"topics": dict(self.topics)} if self.topics else {}
        told |= {"lost": [list(each) for each in self.lost]} if self.lost else {}
        told |= {"last": self.last} if self.last else {}
        told |= {"cuts": self.cuts} if self.cuts else {}
        told |= {"versions": dict(self.versions)} if self.versions else {}
        told |= {"follows": list(self.follows)} if self.follows else {}
        told |= {"beyond": self.beyond} if self.beyond else {}
        told |= {"era": self.era} if self.era else {}
        return encode_metadata(told)

    def edges_since(self, cuts: Cuts, topic: str, part: int) -> Sequence[int]:
        """The offsets at which a partition's log was cut back after this mark was made; `cuts` are all that are known."""
        return cuts.get(topic, {}).get(part, ())[len(self.cuts.get(topic, {}).get(part, ())) :]

    @property
    def reach(self) -> Offsets:
        """Offsets before which the table has all records."""
        return largest_offsets(self.ends, self.beyond)

    def within(self, cuts: Cuts) -> "Mark":
        """The mark, its ends no further than where the logs were cut back since: what lies behind are other records now."""

        def cut(offsets: Offsets) -> Offsets:
            return {
                topic: {part: min([end, *self.edges_since(cuts, topic, part)]) for part, end in parts.items()}
                for topic, parts in offsets.items()
            }

        return replace(self, ends=cut(self.ends), beyond=cut(self.beyond))


def newest_of(marks: Iterable[Mark | None]) -> Mark | None:
    """Return the mark that ends last, of the latest checkpoint; older versions' marks only order by their commits' times."""
    newest: Mark | None = None
    for mark in marks:
        if mark is None or newest is None:
            newest = newest or mark
        elif _order(mark, newest) > _order(newest, mark):
            newest = mark
    return newest


def _order(mark: Mark, other: Mark) -> tuple[int, int]:
    if mark.app == other.app:
        # A checkpoint that went back (a repair, an older copy) gives the numbers of its batches again, with other ends.
        return sum(sum(parts.values()) for parts in mark.ends.values()), mark.batch
    return (mark.era, 0) if mark.era != other.era else (mark.at_ms, 0)


def next_era(marks: Iterable[Mark | None], app: str | None) -> int:
    """Return the number of the checkpoint that a start goes on with: of the query `app`, or a new one (None)."""
    known = [mark for mark in marks if mark is not None]
    own = [mark.era for mark in known if mark.app == app]
    return max(own) if own else 1 + max((mark.era for mark in known), default=0)


def newest_mark(root: str, table: str) -> Mark | None:
    """The newest mark among the table's commits; None where it has none (a new table).

    Raises:
        FatalError: the newest commit is empty or torn; a reader would take it for a commit without rows.
    """
    from deltalake import DeltaTable

    uri = table_uri(root, table)
    if not DeltaTable.is_deltatable(uri):
        return None
    opened = DeltaTable(uri)
    _check_newest(opened, uri)
    for commit in newest_commits(opened):
        if mark := parse_mark(metadata_text(commit)):
            return replace(mark, at_ms=mark.at_ms or int(commit["timestamp"]))
    return None


def mark_history(root: str, tables: Iterable[str]) -> Iterator[Mark]:
    """All marks that the logs of these tables still hold."""
    from deltalake import DeltaTable

    for uri in (table_uri(root, name) for name in tables):
        for commit in newest_commits(DeltaTable(uri)) if DeltaTable.is_deltatable(uri) else ():
            if mark := parse_mark(metadata_text(commit)):
                yield replace(mark, at_ms=mark.at_ms or int(commit["timestamp"]))


def _check_newest(opened: Any, uri: str) -> None:
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    name = log_name(opened.version())
    with PyFileSystem(DeltaStorageHandler(uri)).open_input_stream(name) as stream:
        lines = stream.readall().decode("utf-8", "replace").splitlines()
    try:
        actions = [json.loads(line) for line in lines]
    except ValueError:
        actions = []
    if not any("commitInfo" in action for action in actions):
        message = (
            f"The newest commit of the table {uri} is empty or torn ({name}), as after a power cut. Nothing was changed. Run "
            "`tidegate repair` to see the fix, and again with --apply to make it: the batch lands again from Kafka."
        )
        raise FatalError(message)


def parse_mark(text: str | None) -> Mark | None:
    """The mark in a commit's metadata; None where it holds none."""
    data = CommitMetadata.parse(text).data
    try:
        starts, ends = parse_offsets(data["starts"]), parse_offsets(data["offsets"])
        last = parse_names(data.get("last", {}))
        cuts = {
            topic: {int(part): list(edges) for part, edges in parts.items()}
            for topic, parts in data.get("cuts", {}).items()
        }
        mark = Mark(data["app"], data["batch"], starts, ends, data.get("topics", {}), data.get("lost", ()), last, cuts)
        beyond, era, at_ms = parse_offsets(data.get("beyond", {})), int(data.get("era", 0)), int(data.get("at_ms", 0))
        mark = replace(mark, versions=data.get("versions", {}), follows=data.get("follows", ()))
        return replace(mark, beyond=beyond, era=era, at_ms=at_ms)
    except (TypeError, ValueError, KeyError, AttributeError):
        return None


def parse_offsets(data: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets out of JSON, whose keys are texts."""
    return {topic: {int(part): offset for part, offset in parts.items()} for topic, parts in data.items()}


def parse_names(data: Mapping[str, Mapping[str, Sequence[int]]]) -> Names:
    """Names of records out of JSON."""
    return {topic: {int(part): RecordName(*name) for part, name in parts.items()} for topic, parts in data.items()}


def parse_offset_log(text: str) -> Offsets:
    """The end offsets in a file of `<checkpoint>/offsets`: version, metadata, then one line for our one source.

    Raises:
        ValueError: the file is torn.
    """
    lines = text.strip().splitlines()
    if len(lines) != 3 or lines[0] != "v1":
        message = f"{len(lines)} lines instead of 3"
        raise ValueError(message)
    return parse_source_offsets(lines[2])


def parse_source_offsets(text: str) -> Offsets:
    """Spark's JSON of a Kafka source's offsets.

    Raises:
        ValueError: it is none.
    """
    try:
        return parse_offsets(json.loads(text))
    except (AttributeError, TypeError) as error:
        message = f"not a Kafka offset: {text[:80]!r}"
        raise ValueError(message) from error


def record_count(starts: Offsets, ends: Offsets, topic: str) -> int:
    """Records of a topic between two positions; a partition that is new began at its oldest offset, taken as 0."""
    before = starts.get(topic, {})
    return sum(end - before.get(part, 0) for part, end in ends.get(topic, {}).items())


def behind(starts: Offsets, done: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Return the (topic, partition, end) of a table that reach past a batch's start: the table may hold some of its rows."""
    return [(topic, part, end) for topic, part, end in done if end > starts.get(topic, {}).get(part, 0)]


def beyond(ends: Offsets, done: Iterable[tuple[str, int, int]]) -> Offsets:
    """Return the ends of a table that reach past the end of a batch."""
    further: Offsets = {}
    for topic, part, end in done:
        if end > ends.get(topic, {}).get(part, 0):
            further.setdefault(topic, {})[part] = end
    return further


def with_new_partitions(offsets: Offsets, known: Offsets) -> Offsets:
    """The offsets, and 0 for each partition that is known and was added after them: all of it came later."""
    return {topic: {part: offsets.get(topic, {}).get(part, 0) for part in parts} for topic, parts in known.items()}


def largest_offsets(*each: Offsets) -> Offsets:
    """Per partition the largest of them."""
    merged: Offsets = {}
    for offsets in each:
        for topic, parts in offsets.items():
            into = merged.setdefault(topic, {})
            for part, at in parts.items():
                into[part] = max(at, into.get(part, at))
    return merged


def has_records(starts: Offsets, ends: Offsets) -> bool:
    """Return whether a span holds any record."""
    return any(end > starts.get(topic, {}).get(part, 0) for topic, parts in ends.items() for part, end in parts.items())

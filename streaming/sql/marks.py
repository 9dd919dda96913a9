"""Marks in the commits of a stream's table: the batch, its incarnation, and the range of Kafka offsets that it read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.read.record_names import Names
from lakehouse.catalog import newest_commits, open_table
from lakehouse.commit_metadata import encode_metadata, metadata_of
from lakehouse.paths import table_uri
from streaming.landing_offsets import Offsets, largest_offsets, parse_names, parse_offsets

__all__ = ["StreamMark", "newest_stream_mark", "stream_marks"]


@dataclass(frozen=True, slots=True)
class StreamMark:
    """Mark of a commit of a stream's table; batch -1 stands for the rows from before the first batch.

    `topics` and `last` are as in the landing's marks: Kafka's ids of the topics, and the names of the last records. `starts` is
    where the batch began; older marks do not say it. `beyond` is how far the table is where that is further than the batch's end:
    a plan that was lost is made again, and may divide the records in another way.
    """

    stream: str
    incarnation: str
    batch: int
    offsets: Offsets
    topics: Mapping[str, str] = field(default_factory=dict)
    last: Names = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)
    beyond: Offsets = field(default_factory=dict)
    at_ms: int = field(default=0, compare=False)

    @property
    def reach(self) -> Offsets:
        """Offsets up to which the table has read."""
        return largest_offsets(self.offsets, self.beyond)

    def encode(self, **more: Any) -> str:
        """Encode as commit metadata."""
        fields: dict[str, Any] = {"incarnation": self.incarnation, "batch": self.batch, "offsets": self.offsets}
        fields |= {"topics": dict(self.topics)} if self.topics else {}
        fields |= {"last": self.last} if self.last else {}
        fields |= {"starts": self.starts} if self.starts else {}
        fields |= {"beyond": self.beyond} if self.beyond else {}
        return encode_metadata({"stream": self.stream, **fields, **more})


def newest_stream_mark(root: str, name: str) -> StreamMark | None:
    """The newest mark in the table of a stream; None where it has none."""
    return next(stream_marks(root, name), None)


def stream_marks(root: str, name: str) -> Iterator[StreamMark]:
    """The marks in the table of a stream, newest first."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(table_uri(root, name)):
        return
    for commit in newest_commits(open_table(root, name)):
        data = metadata_of(commit).data
        try:
            offsets, last = parse_offsets(data["offsets"]), parse_names(data.get("last", {}))
            mark = StreamMark(data["stream"], data["incarnation"], data["batch"], offsets, data.get("topics", {}), last)
            mark = replace(
                mark, starts=parse_offsets(data.get("starts", {})), beyond=parse_offsets(data.get("beyond", {}))
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        yield replace(mark, at_ms=int(data.get("at_ms") or commit.get("timestamp") or 0))

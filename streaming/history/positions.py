"""Progress of the landing and the SQL streams in Kafka: records that they have not read may hold an erased device."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ingest.contract.errors import TidegateError
from ingest.topics.offsets import end_offsets
from streaming.checkpoint import Checkpoint
from streaming.landing_offsets import Offsets, newest_mark
from streaming.sql.applied_streams import load_applied
from streaming.sql.stream_offsets import StreamCheckpoint, checkpoint_path
from streaming.writer_context import WriterContext

__all__ = ["UnreadRecords", "await_positions"]

LONGEST_SECONDS = 120.0
STALLED_SECONDS = 30.0
"""Without a batch for so long, waiting brings nothing."""
POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class UnreadRecords:
    """Unread records in Kafka; `landing` is None if Kafka or the checkpoint cannot tell."""

    landing: int | None
    streams: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All together."""
        return (self.landing or 0) + sum(self.streams.values())


def await_positions(writer: WriterContext) -> UnreadRecords:
    """Wait until the present records in Kafka are read; return the unread ones if it takes too long or nothing lands."""
    try:
        ends = {topic: end_offsets(writer.kafka, topic) for topic in writer.topics.names}
        found = _look(writer, ends)
        moved_at, deadline = time.monotonic(), time.monotonic() + LONGEST_SECONDS
        while found.total and writer.seen is not None and time.monotonic() < min(deadline, moved_at + STALLED_SECONDS):
            time.sleep(POLL_SECONDS)
            now = _look(writer, ends)
            found, moved_at = now, time.monotonic() if now.total < found.total else moved_at
    except TidegateError:
        return UnreadRecords(None)
    return found


def _look(writer: WriterContext, ends: Offsets) -> UnreadRecords:
    done = Checkpoint(writer.spark, writer.settings.checkpoint).next_offsets()
    if done is None:
        mark = newest_mark(writer.root, "readings")
        done = mark.ends if mark is not None else {}
    streams = {}
    for name, applied in load_applied(writer.root).items():
        path = checkpoint_path(writer.settings.checkpoint, name, applied.incarnation)
        at = StreamCheckpoint(writer.spark, path).next_offsets() or applied.start
        # A stream reads some of the topics only.
        if count := _count(at, {topic: parts for topic, parts in ends.items() if topic in at}):
            streams[name] = count
    return UnreadRecords(_count(done, ends), streams)


def _count(done: Offsets, ends: Offsets) -> int:
    return sum(
        max(0, end - done.get(topic, {}).get(part, 0)) for topic, parts in ends.items() for part, end in parts.items()
    )

"""The chore that keeps the applied streams running: each pass starts and stops streams as the files on disk say.

A stream that fails stops neither another one nor the landing. After a temporary error it starts again, each time after a longer
pause. After another error it stays stopped, reports that, and waits for a person (`apply`, `rewind`, `drop`) or for the next
start. After two ends of the JVM within ten minutes (streaming/sql/strikes.py) it waits for a person over starts too.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from ingest.contract.errors import RetryableError
from ingest.contract.topics import stream_group
from ingest.groups.offset_mirror import OffsetMirror
from lakehouse.paths import is_local
from streaming.landing_offsets import Offsets
from streaming.query_failures import classify_query_failure
from streaming.sql.applied_streams import AppliedStream, load_applied
from streaming.sql.stream_offsets import behind_count, end_of
from streaming.sql.stream_query import RunningStream, progress_of, resolve_incarnation, start_stream
from streaming.sql.stream_status import StreamStatus, write_status
from streaming.sql.strikes import clear_strikes, is_out, note_strikes
from streaming.writer_context import WriterContext

__all__ = ["StreamSupervisor", "supervisor_of"]

logger = logging.getLogger("tidegate.streaming.sql")

LONGEST_PAUSE_SECONDS: Final = 60.0
_OUT: Final = (
    "Stream {name} ran at two ends of Spark within ten minutes, so it stays stopped, and readings land without it. Look for "
    "OutOfMemoryError in Spark's logs; raise stream.driver_memory, or let the stream keep less. Then run `tidegate streams "
    "apply {name}`."
)
_supervisors: dict[str, "StreamSupervisor"] = {}


def supervisor_of(root: str) -> "StreamSupervisor | None":
    """The one that runs the streams of these tables in this process; requests stop a stream through it."""
    return _supervisors.get(root)


@contextmanager
def _pool(context: Any, name: str) -> Iterator[None]:
    """Start queries in a pool of their own, whose jobs take turns: a long rewind among the chores keeps no stream waiting."""
    before = context.getLocalProperty("spark.scheduler.pool")
    context.setLocalProperty("spark.scheduler.pool", name)
    try:
        yield
    finally:
        context.setLocalProperty("spark.scheduler.pool", before)


@dataclass(slots=True)
class _Entry:
    applied: AppliedStream
    status: StreamStatus
    mirror: Callable[[Offsets], object]
    close_mirror: Callable[[], object]
    running: RunningStream | None = None
    pause: float = 0.0
    retry_at: float = 0.0
    counted_rows: int = 0
    seen_at: str = ""
    has_run: bool = False


class StreamSupervisor:
    """All applied streams. Not thread-safe: the chores' thread calls it."""

    def __init__(self, writer: WriterContext, *, make_mirror: Callable[[str], Any] | None = None) -> None:
        """`make_mirror` makes the consumer-group mirror of a group's name; by default Kafka's."""
        self._writer = writer
        self._entries: dict[str, _Entry] = {}
        self._make_mirror = make_mirror or (lambda group: OffsetMirror(writer.kafka, group))
        self._told = ""
        _supervisors[writer.root] = self

    def run(self) -> bool:
        """One pass: start what is applied, stop what is not, look at what runs; whether anything runs."""
        applied = load_applied(self._writer.root)
        for name in [name for name in self._entries if name not in applied]:
            self._forget(name)
        for name, stream in applied.items():
            self._keep(name, stream)
        self._tell()
        return bool(self._entries)

    def stop_stream(self, name: str) -> None:
        """Stop one and forget it, because a person asked; the next pass starts what is applied then."""
        clear_strikes(self._writer.root, name)
        if name in self._entries:
            self._forget(name)

    def retry_stream(self, name: str) -> bool:
        """Have the next pass start one that failed or waits; False where it runs, or is not kept here."""
        entry = self._entries.get(name)
        if entry is None or entry.running is not None:
            return False
        clear_strikes(self._writer.root, name)
        self._forget(name, keep_metrics=True)
        return True

    def close(self) -> None:
        """Stop all; their checkpoints stay. Those that ran when the JVM ended have a strike."""
        if not self._writer.jvm_runs():
            note_strikes(self._writer.root, [name for name, entry in self._entries.items() if entry.has_run])
        for name in list(self._entries):
            self._forget(name, keep_metrics=True)
        if _supervisors.get(self._writer.root) is self:
            del _supervisors[self._writer.root]

    def _keep(self, name: str, applied: AppliedStream) -> None:
        entry = self._entries.get(name)
        if entry is not None and entry.applied != applied:
            self._forget(name, keep_metrics=True)
            entry = None
        if entry is None:
            mirror = self._make_mirror(stream_group(name))
            entry = _Entry(applied, StreamStatus(name), mirror.mirror, mirror.close)
            self._entries[name] = entry
            self._writer.metrics.sql.add(name)
        if entry.running is None:
            if entry.status.state != "failed" and time.monotonic() >= entry.retry_at:
                self._start(entry)
            return
        self._report(entry)
        error = entry.running.failure()
        if error is not None:
            entry.running.stop()
            entry.running = None
            self._fail(entry, error)

    def _start(self, entry: _Entry) -> None:
        if is_out(self._writer.root, entry.applied.name):
            entry.status.set("failed", _OUT.format(name=entry.applied.name))
            logger.warning("%s", entry.status.detail)
            return
        entry.has_run = True  # a start reads history, and may already take too much memory
        try:
            with _pool(self._writer.spark.sparkContext, "streams"):
                entry.applied = resolve_incarnation(self._writer, entry.applied)
                entry.running = start_stream(self._writer, entry.applied, entry.mirror)
        except Exception as error:
            self._fail(entry, error)
            return
        entry.seen_at, entry.counted_rows = "", 0
        entry.status.set("running")
        logger.info("stream %s is running", entry.applied.name)

    def _fail(self, entry: _Entry, error: BaseException) -> None:
        name = entry.applied.name
        logger.debug("stream %s failed", name, exc_info=error)
        fault = classify_query_failure(error, bootstrap_servers=self._writer.kafka.bootstrap_servers, log="Spark's log")
        text = str(fault).replace("The landing query", f"Stream {name}").replace("landing waits", "it waits")
        entry.status.errors += 1
        self._writer.metrics.sql.errors.labels(name).inc()
        if isinstance(fault, RetryableError):
            entry.pause = min(max(fault.retry_after_seconds, 2 * entry.pause), LONGEST_PAUSE_SECONDS)
            entry.retry_at = time.monotonic() + entry.pause
            entry.status.set("waiting", text)
        else:
            entry.status.set("failed", text)
        logger.warning("stream %s is %s: %s", name, entry.status.state, text)

    def _report(self, entry: _Entry) -> None:
        running, status, metrics = entry.running, entry.status, self._writer.metrics.sql
        if running is None:
            return
        reports = progress_of(running.query, entry.seen_at)
        sink = running.sink
        if sink is not None and sink.rows > entry.counted_rows:
            metrics.rows.labels(status.name).inc(sink.rows - entry.counted_rows)
            status.rows += sink.rows - entry.counted_rows
            entry.counted_rows = sink.rows
        if sink is not None and sink.committed_at is not None:
            status.committed_at = sink.committed_at
            metrics.committed.labels(status.name).set(sink.committed_at)
        late = sum(
            state.get("numRowsDroppedByWatermark", 0) for report in reports for state in report["stateOperators"]
        )
        if late:
            status.late += late
            metrics.late.labels(status.name).inc(late)
        if reports:
            newest = reports[-1]
            entry.seen_at, entry.pause = newest["timestamp"], 0.0
            status.batch, status.behind = newest["batchId"], behind_count(newest)
            status.watermark = newest.get("eventTime", {}).get("watermark")
            if sink is None:
                entry.mirror(end_of(newest))
                status.committed_at = time.time()
                metrics.committed.labels(status.name).set(status.committed_at)
            metrics.behind.labels(status.name).set(status.behind)

    def _forget(self, name: str, *, keep_metrics: bool = False) -> None:
        entry = self._entries.pop(name)
        if entry.running is not None:
            entry.running.stop()
            with suppress(Exception):  # Spark may be gone already
                self._report(entry)
        entry.close_mirror()
        if not keep_metrics:
            self._writer.metrics.sql.remove(name)

    def _tell(self) -> None:
        streams = [entry.status for entry in self._entries.values()]
        told = repr(streams)
        if told != self._told and is_local(self._writer.root):
            write_status(self._writer.root, streams)
            self._told = told

"""Log in memory with Kafka's behaviour, for tests and dry runs. Errors are scripted, not random."""

import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ingest.contract.errors import FatalError
from ingest.contract.topics import GATEWAY_STATE
from ingest.log import BatchDone, DeliveryError, Done, Failure, FailureKind, LogFull, LogRecord
from ingest.state_follower import MAX_STATE_BYTES, NewestValues

__all__ = ["MemoryFollower", "MemoryLog", "MemoryWriter"]

logger = logging.getLogger("tidegate.ingest.memory")


@dataclass(slots=True)
class _Pending:
    """One taken record; `settled` once its report is due, with `error` as the report's content."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    done: Done
    stored: bool = False
    settled: bool = False
    error: DeliveryError | None = None


@dataclass
class MemoryLog:
    """Topics with partitions and offsets, and switches for errors. Writers come and go; the log stays.

    `hold()` simulates a Kafka that does not answer, `release()` lets it answer again. Any thread may call both.
    """

    partitions: int = 2
    max_record_bytes: int = 1024 * 1024
    capacity: int = 100_000
    _lock: threading.Condition = field(default_factory=threading.Condition, repr=False)
    _stored: dict[str, list[list[LogRecord]]] = field(default_factory=dict, repr=False)
    _pending: deque[_Pending] = field(default_factory=deque, repr=False)
    _failures: deque[DeliveryError] = field(default_factory=deque, repr=False)
    _held: bool = False
    _held_after_store: bool = False
    _full: bool = False
    _fatal: DeliveryError | None = None

    def writer(self) -> "MemoryWriter":
        """Return a new writer on this log, like a new producer, with no fatal error and nothing in flight."""
        with self._lock:
            self._pending.clear()
            self._fatal = None
        return MemoryWriter(self)

    def hold(self, *, stored: bool = False) -> None:
        """Report no record from now on; with `stored` records do reach the log, and only the reports are held."""
        with self._lock:
            self._held, self._held_after_store = True, stored

    def release(self, count: int | None = None, *, partition: int | None = None) -> None:
        """Report held records: all and later ones, or only the next `count`, or only those of a partition."""
        with self._lock:
            partial = count is not None or partition is not None
            chosen = [p for p in self._pending if not p.settled and partition in (None, p.partition)]
            for pending in chosen if count is None else chosen[:count]:
                self._settle(pending)
            self._held = self._held and partial

    def fail_next(self, kind: FailureKind, text: str = "scripted failure", *, count: int = 1) -> None:
        """Fail the next `count` produced records with this kind. After a `fatal` failure all later records of the writer fail."""
        with self._lock:
            self._failures.extend([DeliveryError(kind, text)] * count)

    def full(self, is_full: bool = True) -> None:
        """Raise LogFull at every produce until `full(False)`."""
        with self._lock:
            self._full = is_full

    def topics(self) -> list[str]:
        """Return the names of the topics that hold records."""
        return sorted(self._stored)

    def records(self, topic: str, partition: int | None = None) -> list[LogRecord]:
        """Return the records of the topic, by partition and offset."""
        with self._lock:
            parts = self._stored.get(topic, [])
            return [record for number, part in enumerate(parts) if partition in (None, number) for record in part]

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the next offset of each partition."""
        with self._lock:
            return {number: len(part) for number, part in enumerate(self._parts(topic))}

    def _parts(self, topic: str) -> list[list[LogRecord]]:
        return self._stored.setdefault(topic, [[] for _ in range(self.partitions)])

    def _take(self, pending: _Pending) -> None:
        with self._lock:
            if self._full or len(self._pending) >= self.capacity:
                message = f"the memory log's queue is full ({len(self._pending)} records): poll, then produce again"
                raise LogFull(message, retry_after_seconds=0.01)
            self._pending.append(pending)
            if len(pending.key) + len(pending.value) > self.max_record_bytes:
                text = f"record of {len(pending.value)} bytes exceeds the limit of {self.max_record_bytes}"
                self._fail(pending, DeliveryError("record", text))
            elif self._fatal or self._failures:
                self._fail(pending, self._fatal or self._failures.popleft())
            elif not self._held:
                self._settle(pending)
            elif self._held_after_store:
                self._store(pending)

    def _fail(self, pending: _Pending, error: DeliveryError) -> None:
        if error.kind == "fatal":
            self._fatal = error
        pending.error, pending.settled = error, True
        self._lock.notify_all()

    def _settle(self, pending: _Pending) -> None:
        self._store(pending)
        pending.settled = True
        self._lock.notify_all()

    def _store(self, pending: _Pending) -> None:
        if pending.stored:
            return
        pending.stored = True
        part = self._parts(pending.topic)[pending.partition]
        now_ms = time.time_ns() // 1_000_000
        part.append(LogRecord(pending.partition, len(part), now_ms, pending.key, pending.value or None))

    def _next_reports(self, timeout_seconds: float) -> list[_Pending]:
        """Take the reports that are due; wait for the first one. In a partition no report overtakes an earlier one."""
        with self._lock:
            self._lock.wait_for(lambda: any(p.settled for p in self._pending), timeout_seconds)
            due: list[_Pending] = []
            kept: deque[_Pending] = deque()
            blocked: set[tuple[str, int]] = set()
            for pending in self._pending:
                where = (pending.topic, pending.partition)
                if pending.settled and where not in blocked:
                    due.append(pending)
                else:
                    kept.append(pending)
                    blocked.add(where)
            self._pending = kept
            return due


class _Tally:
    """Results of the records of one batch; reports them once."""

    def __init__(self, done: BatchDone) -> None:
        self._done: BatchDone | None = done
        self._failures: list[Failure] = []
        self.left = 0

    def report(self, place: int, error: DeliveryError | None) -> None:
        self.left -= 1
        if error is not None:
            self._failures.append((place, error))
        if self._done is not None and (not self.left or (error is not None and error.kind != "record")):
            done, self._done = self._done, None
            done(self._failures)


class MemoryWriter:
    """LogWriter of a MemoryLog."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._taken = 0
        self._reported = 0
        self._closed = False

    def produce(self, topic: str, key: bytes, value: bytes, done: Done) -> None:
        """See LogWriter."""
        if self._closed:
            message = "this writer was aborted or closed: open a new one"
            raise FatalError(message)
        self._taken += 1
        try:
            self._log._take(_Pending(topic, zlib.crc32(key) % self._log.partitions, key, value, done))
        except LogFull:
            self._taken -= 1
            raise

    def produce_batch(self, topic: str, keys: Sequence[bytes], values: Sequence[bytes], done: BatchDone) -> int:
        """See LogWriter."""
        tally = _Tally(done)
        for place, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
                self.produce(topic, key, value, partial(tally.report, place))
            except LogFull:
                if not place:
                    raise
                break
            tally.left += 1
        return tally.left

    def poll(self, timeout_seconds: float) -> int:
        """See LogWriter."""
        if self._closed:
            return 0
        ran = 0
        for report in self._log._next_reports(timeout_seconds):
            if self._closed:
                break
            self._reported += 1
            ran += 1
            try:
                report.done(report.error)
            except Exception:
                logger.exception("A delivery callback failed. The other callbacks still run.")
        return ran

    def max_record_bytes(self, topic: str) -> int:
        """See LogWriter."""
        return self._log.max_record_bytes

    @property
    def in_flight(self) -> int:
        """See LogWriter."""
        return 0 if self._closed else self._taken - self._reported

    def flush(self, timeout_seconds: float) -> int:
        """See LogWriter."""
        deadline = time.monotonic() + timeout_seconds
        while self.in_flight and (left := deadline - time.monotonic()) > 0:
            self.poll(left)
        return self.in_flight

    def abort(self) -> None:
        """See LogWriter."""
        self._closed = True
        with self._log._lock:
            self._log._pending.clear()

    def close(self) -> None:
        """See LogWriter."""
        self.abort()


class MemoryFollower:
    """StateReader of a MemoryLog."""

    def __init__(
        self,
        log: MemoryLog,
        watched: Callable[[str], bool],
        *,
        topic: str = GATEWAY_STATE,
        held: Callable[[str], bool] = lambda _key: True,
        max_bytes: int = MAX_STATE_BYTES,
    ) -> None:
        self._log, self._watched, self._topic = log, watched, topic
        self._new_values: Callable[[], NewestValues] = lambda: NewestValues(topic, held, max_bytes)
        self._values = self._new_values()
        self._next: dict[int, int] = {}

    def catch_up(self) -> list[tuple[str, bytes]]:
        """See StateReader."""
        found: list[tuple[str, bytes]] = []
        for record in self._log.records(self._topic):
            if record.offset < self._next.get(record.partition, 0):
                continue
            self._next[record.partition] = record.offset + 1
            taken = self._values.take(record)
            if taken is not None and taken[1] is not None and self._watched(taken[0]):
                found.append((taken[0], taken[1]))
        self._values.warn()
        return found

    def state(self) -> list[tuple[str, bytes]]:
        """See StateReader."""
        return self._values.items()

    def forget(self) -> None:
        """See StateReader."""
        self._values = self._new_values()

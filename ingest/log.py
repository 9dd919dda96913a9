"""Interface between the gateway and Kafka: the behaviour of a log writer, whatever is behind it.

`ingest/producer.py` is Kafka, `ingest/memory.py` the same behaviour in memory; tests/contract runs one suite on both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from ingest.contract.errors import RetryableError

__all__ = ["BatchDone", "DeliveryError", "Done", "Failure", "FailureKind", "LogFull", "LogRecord", "LogWriter"]

FailureKind = Literal["record", "retriable", "fatal"]


@dataclass(frozen=True, slots=True)
class DeliveryError:
    """Reason why a record is not known to be in the log, as a value.

    `record`: this record can never be stored as it is (too large). Its neighbours are unaffected, so make it a dead
    letter. `retriable`: the cause may pass (topic missing, no permission, report lost), but records behind it may
    already be stored. Producing it alone again would break the order: abort, wait, and restart with a new writer from
    the first unacknowledged message. `fatal`: the writer is broken for good. The steps are the same; all later records
    fail too.
    """

    kind: FailureKind
    text: str


Done = Callable[[DeliveryError | None], None]
Failure = tuple[int, DeliveryError]
"""Place of a record in its batch, and why it is not known to be in the log."""
BatchDone = Callable[[list[Failure]], None]
"""Callback with the failed records of a batch; the list is empty if all of it is in the log."""


class LogFull(RetryableError):
    """The writer's queue is full. Nothing was taken: poll, then produce the same record again."""


class LogRecord(NamedTuple):
    """One record as the log holds it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class LogWriter(Protocol):
    """Writer that reports each of its records exactly once.

    `produce` may be called from one thread and everything else from another. The writer retries temporary errors (no
    broker, no leader, too few replicas) in order and without end: they show only as missing reports.

    Guarantee: records of one key are in the log in the order produced, each of them once. Reports of one partition
    come in the order of their records; between partitions in any order.
    """

    def produce(self, topic: str, key: bytes, value: bytes, done: Done) -> None:
        """Take one record; never blocks. An empty `value` is written as null: it deletes its key in a compacted topic.

        `done` runs exactly once, inside a later `poll` or `flush`, never inside `produce`: with None when all in-sync
        replicas have the record, else with the failure. After `abort` it does not run.

        Raises:
            LogFull: the queue is full; the record was not taken.
            FatalError: the writer was aborted or closed.
        """

    def produce_batch(self, topic: str, keys: Sequence[bytes], values: Sequence[bytes], done: BatchDone) -> int:
        """Take the first of these records, as many as there is room for, in order; never blocks. Costs a tenth of `produce`.

        `done` runs exactly once for those taken, as in `produce`: when all of them are reported, or as soon as one
        failed in another way than `record`, because the writer is then unusable.

        Returns:
            How many were taken, at least one.

        Raises:
            LogFull: the queue is full; none was taken.
            FatalError: the writer was aborted or closed.
        """

    def poll(self, timeout_seconds: float) -> int:
        """Run the pending reports in the calling thread; wait up to `timeout_seconds` for the first one.

        It also sends the taken records. An error raised by a `done` is logged and never stops the others. Returns how
        many records were reported (0 after `abort`).
        """

    def max_record_bytes(self, topic: str) -> int:
        """Return the largest record, including key and headers, that the topic takes as far as this writer knows."""

    @property
    def in_flight(self) -> int:
        """Records taken whose `done` has not run."""

    def flush(self, timeout_seconds: float) -> int:
        """Poll until nothing is in flight or the time is over. Returns how many records are left."""

    def abort(self) -> None:
        """Drop what is in flight: no `done` runs after this returns.

        Records that were in flight may or may not be in the log. The writer takes nothing more: open a new one.
        """

    def close(self) -> None:
        """Free the connection and drop the records in flight, as `abort` does. May be called twice."""

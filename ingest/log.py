"""The seam between the gateway and Kafka: what a writer of the log does, whatever stands behind it.

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
    """Why a record is not known to be in the log, as a value.

    `record`: this record can never be stored as it is (too large); its neighbours are unaffected, so make it a dead
    letter. `retriable`: the cause may pass (topic missing, no permission, report lost), but records behind it may
    already be stored, so producing it again alone would break the order: abort, wait, start anew with a new writer
    from the first unacknowledged message. `fatal`: the writer is broken for good; the same steps, all later records
    fail likewise.
    """

    kind: FailureKind
    text: str


Done = Callable[[DeliveryError | None], None]
Failure = tuple[int, DeliveryError]
"""The place of a record in its batch, and why it is not known to be in the log."""
BatchDone = Callable[[list[Failure]], None]
"""Gets the records of a batch that failed: none where all of it is in the log."""


class LogFull(RetryableError):
    """The writer's queue is full. Nothing was taken: poll, then produce the same record again."""


class LogRecord(NamedTuple):
    """One record as it stands in the log."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class LogWriter(Protocol):
    """Writes records and reports each of them exactly once.

    `produce` may be called from one thread and everything else from another. Passing trouble (no broker, no leader,
    too few replicas) is retried inside, in order and without end: it shows only as reports that do not come.

    Guarantee: records of one key stand in the log in the order produced, each of them once. Reports of one partition
    come in the order of their records; between partitions in any order.
    """

    def produce(self, topic: str, key: bytes, value: bytes, done: Done) -> None:
        """Take one record; never blocks. An empty `value` is written as none: it ends its key in a compacted topic.

        `done` runs exactly once, inside a later `poll` or `flush`, never inside `produce`: with None when all in-sync
        replicas have the record, else with the failure. After `abort` it does not run.

        Raises:
            LogFull: the queue is full, the record was not taken.
            FatalError: the writer was aborted or closed.
        """

    def produce_batch(self, topic: str, keys: Sequence[bytes], values: Sequence[bytes], done: BatchDone) -> int:
        """Take the first of these records, as many as there is room for, in order; never blocks. At a tenth the cost.

        `done` runs exactly once for those taken, as in `produce`: when all of them are reported, or as soon as one
        failed in another way than `record`, since the writer is of no use then.

        Returns:
            How many were taken, at least one.

        Raises:
            LogFull: the queue is full, none was taken.
            FatalError: the writer was aborted or closed.
        """

    def poll(self, timeout_seconds: float) -> int:
        """Run the reports that are there, in the calling thread; wait up to `timeout_seconds` for a first one.

        It also sends what was taken. An error raised by a `done` is logged and never stops the others. Returns how many
        records were reported (0 after `abort`).
        """

    def max_record_bytes(self, topic: str) -> int:
        """The largest record, key and headers included, that the topic takes as far as this writer knows."""

    @property
    def in_flight(self) -> int:
        """Records taken whose `done` has not run."""

    def flush(self, timeout_seconds: float) -> int:
        """Poll until nothing is in flight or the time is over. Returns how many records are left."""

    def abort(self) -> None:
        """Drop what is in flight: no `done` runs after this returns.

        What was in flight may or may not be in the log. The writer takes nothing more: make a new one.
        """

    def close(self) -> None:
        """Free the connection; what is still in flight is dropped as by `abort`. May be called twice."""

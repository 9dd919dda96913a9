"""From decided messages to Kafka and back: produces their records, then the outcome, then releases the PUBACKs."""

import contextlib
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from gateway.accounts import Accounts
from gateway.ack_chain import AckChain, Batch, Entry
from gateway.outcome import Gate, Outcome, Record, shrink
from ingest.contract.dead_letter import Reject
from ingest.contract.outcome import encode_outcome
from ingest.contract.reasons import Reason
from ingest.contract.topics import OUTCOMES, READINGS
from ingest.log import DeliveryError, LogFull, LogWriter

__all__ = ["Pump"]


class Pump:
    """Drives the acknowledgement chain with a log writer. Owned by the gateway's one thread.

    Attributes:
        abort_because: set when the writer failed for good: take a new one, drop the connection.
        give_up_because: set when Kafka refuses what must fit: no new writer would help.
        progress_at: when a report last came, or the first message after a silence (monotonic seconds).
        proven: set when an outcome is in Kafka: everything that a message needs works.
    """

    def __init__(
        self,
        chain: AckChain,
        gate: Gate,
        accounts: Accounts,
        acknowledge: Callable[[int, list[int]], int],
        name: str,
        *,
        told: Callable[[list[Outcome], int], None] = lambda outcomes, received_us: None,
    ) -> None:
        self._chain, self._gate, self._accounts, self._acknowledge = chain, gate, accounts, acknowledge
        self._told, self._key = told, name.encode()
        self._backlog: deque[tuple[Entry, Record]] = deque()
        self._outcome_waiting: Batch | None = None
        self._live = False
        self.abort_because: str | None = None
        self.give_up_because: str | None = None
        self.progress_at = 0.0
        self.proven = False

    @property
    def busy(self) -> bool:
        """Whether a report is awaited or something is to be produced."""
        return bool(self._backlog or self._chain.in_flight)

    def begin(self, epoch: int) -> int:
        """Start the epoch of a new connection; returns how many messages of the old one were not acknowledged."""
        self.halt()
        self._live = True
        self._gate.roll_back()
        return self._chain.begin(epoch)

    def halt(self) -> None:
        """The connection is gone: nothing more of it is produced.

        Its outcomes neither: they would be counted again after the redelivery.
        """
        self._live = False
        self._backlog.clear()
        self._outcome_waiting = None

    def add(self, entry: Entry) -> None:
        """Take a message, in receive order."""
        if not self._chain.in_flight:
            self.progress_at = time.monotonic()
        self._chain.receive(entry)
        for record in entry.outcome.records:
            self._backlog.append((entry, record))

    def turn(self, log: LogWriter, wait_seconds: float) -> None:
        """Produce what waits, run the reports that come within `wait_seconds`, send the outcome of what is finished.

        Where the writer's queue is full the rest waits for the next turn. Reading goes on meanwhile, and so does
        keepalive: the broker stops by itself at its window.

        Raises:
            FatalError: the writer is broken.
        """
        with contextlib.suppress(LogFull):
            self._produce(log)
        log.poll(wait_seconds)
        with contextlib.suppress(LogFull):
            self._advance(log)

    def _produce(self, log: LogWriter) -> None:
        backlog = self._backlog
        if backlog and not log.in_flight:
            self.progress_at = time.monotonic()
        while backlog:
            entry, record = backlog[0]
            log.produce(record.topic, record.key, record.value, partial(self._reported, entry, record))
            backlog.popleft()

    def _reported(self, entry: Entry, record: Record, error: DeliveryError | None) -> None:
        is_current = entry.epoch == self._chain.epoch
        if error is None:
            self.progress_at = time.monotonic()
            self._chain.delivered(entry)
        elif error.kind == "fatal" or (is_current and error.kind == "retriable"):
            self.abort_because = _sentence(record.topic, error)
        elif is_current and self._live:
            self._replace(entry, record, error)

    def _replace(self, entry: Entry, record: Record, error: DeliveryError) -> None:
        """Kafka will never take this record: what it held becomes a dead letter, and a smaller one if need be."""
        if record.topic == READINGS:
            old = entry.outcome
            fault = Reject(Reason.KAFKA_TOO_LARGE, None, f"a record of {len(record.value)} bytes", error.text)
            entry.outcome = self._gate.reject(entry.message, fault, old.device, sequence=old.sequence)
            self._backlog.append((entry, entry.outcome.records[0]))
            return
        smaller = shrink(record)
        if smaller is None:
            self.give_up_because = (
                f"Kafka refuses even an empty dead letter on {record.topic} ({error.text}): check its max.message.bytes"
            )
            return
        self._backlog.append((entry, smaller))

    def _advance(self, log: LogWriter) -> None:
        """Send the outcome of what is finished; its report releases the PUBACKs."""
        if not self._live:
            return
        if self._outcome_waiting is None:
            self._outcome_waiting = self._chain.next_batch(log.max_record_bytes(OUTCOMES))
        batch = self._outcome_waiting
        if batch is not None:
            log.produce(OUTCOMES, self._key, encode_outcome(batch.record), partial(self._outcome_reported, batch))
            self._outcome_waiting = None

    def _outcome_reported(self, batch: Batch, error: DeliveryError | None) -> None:
        if error is not None:
            if error.kind == "fatal" or batch.epoch == self._chain.epoch:
                self.abort_because = _sentence(OUTCOMES, error)
            return
        self.proven = True
        if self._chain.outcome_delivered(batch):
            now = self.progress_at = time.monotonic()
            acknowledged = self._acknowledge(batch.epoch, batch.mids)
            changes = (change for entry in batch.entries for change in entry.outcome.changes)
            self._gate.acknowledged(batch.entries[-1].message.number, changes)
            self._accounts.batch(batch, acknowledged=acknowledged, produce_seconds=now - batch.entries[0].produced_at)
            outcomes = [entry.outcome for entry in batch.entries]
            self._told(outcomes, batch.entries[0].message.received_us)


def _sentence(topic: str, error: DeliveryError) -> str:
    return f"Kafka does not take records of topic {topic} ({error.text})"

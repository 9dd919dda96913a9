"""Path of decided messages to Kafka and back: produce their records, then the outcome, then release the PUBACKs."""

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from gateway.dead_letters import shrink_dead_letter
from gateway.delivery.ack_chain import AckChain, Batch
from gateway.delivery.block import Block
from gateway.delivery.sequence import SequenceRestart
from gateway.message_processor import Message, MessageProcessor, Outcome, Record
from gateway.metric_accumulator import MetricAccumulator
from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.outcome import OutcomeRecord, encode_outcome
from ingest.contract.reasons import Reason
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.log import DeliveryError, Failure, LogFull, LogWriter

__all__ = ["Deliverer"]

logger = logging.getLogger("tidegate.gateway")


class _PendingProduce:
    """Records of one block for one topic, of which the first `submitted` are with the writer."""

    __slots__ = ("block", "keys", "submitted", "topic", "values")

    def __init__(self, block: Block, topic: str, keys: list[bytes], values: list[bytes]) -> None:
        self.block, self.topic, self.keys, self.values = block, topic, keys, values
        self.submitted = 0


class Deliverer:
    """Driver of the acknowledgement chain with a log writer. Owned by the gateway's one thread.

    Attributes:
        abort_because: set when the writer failed for good: open a new one, drop the connection.
        give_up_because: set when Kafka rejects a record that must fit: no new writer would help.
        progress_at: when a report last came, or the first message after a silence (monotonic seconds).
        outcome_confirmed: set when an outcome is in Kafka: everything that a message needs works.
    """

    def __init__(
        self,
        chain: AckChain,
        processor: MessageProcessor,
        accounts: MetricAccumulator,
        acknowledge: Callable[[int, list[bytes]], int],
        name: str,
        *,
        on_acknowledged: Callable[[list[Block], list[SequenceRestart]], None] = lambda blocks, restarts: None,
        counted: Callable[[OutcomeRecord], None] = lambda record: None,
    ) -> None:
        """Take the parts.

        Args:
            chain: which messages may be acknowledged.
            processor: makes a dead letter of a record that Kafka rejects; gets the messages that will not come again.
            accounts: counts.
            acknowledge: sends PUBACKs: (epoch, packet identifiers) to how many went out.
            name: the gateway's name, key of its outcomes.
            on_acknowledged: gets acknowledged blocks, and devices that count again.
            counted: gets outcomes that are in Kafka.
        """
        self._chain, self._processor, self._accounts, self._acknowledge = chain, processor, accounts, acknowledge
        self._on_acknowledged, self._counted, self._key = on_acknowledged, counted, name.encode()
        self._backlog: deque[_PendingProduce] = deque()
        self._outcome_waiting: Batch | None = None
        self._live = False
        self.abort_because: str | None = None
        self.give_up_because: str | None = None
        self.progress_at = 0.0
        self.outcome_confirmed = False

    @property
    def busy(self) -> bool:
        """Return whether a report is awaited or something is to be produced."""
        return bool(self._backlog or self._chain.in_flight)

    @property
    def has_failed(self) -> bool:
        """Return whether nothing more is sent until the caller has reacted."""
        return self.abort_because is not None or self.give_up_because is not None

    def begin(self, epoch: int) -> int:
        """Start the epoch of a new connection; returns how many messages of the old one were not acknowledged."""
        self.halt()
        self._processor.roll_back()
        self._live = True
        return self._chain.begin(epoch)

    def halt(self) -> None:
        """Drop everything of a lost connection: nothing more of it is produced, and nothing of it takes room.

        The same holds for its outcomes: they would be counted again after the redelivery.
        """
        self._live = False
        self._backlog.clear()
        self._outcome_waiting = None
        self._chain.halt()

    def add(self, block: Block) -> None:
        """Take messages, in receive order."""
        if not self._chain.in_flight:
            self.progress_at = time.monotonic()
        self._chain.receive(block)
        if block.values:
            self._add_job(_PendingProduce(block, READINGS, block.keys, block.values))
        topics: dict[str, list[Record]] = {}
        for record in block.others:
            topics.setdefault(record.topic, []).append(record)
        for topic, records in topics.items():
            keys, values = [record.key for record in records], [record.value for record in records]
            self._add_job(_PendingProduce(block, topic, keys, values))

    def _add_job(self, job: _PendingProduce) -> None:
        job.block.waiting += 1
        self._backlog.append(job)

    def run_once(self, log: LogWriter, wait_seconds: float) -> None:
        """Run pending reports, send the outcome of finished messages, and produce waiting records.

        If the writer's queue is full, the rest waits for the next run. Reading and keepalive continue meanwhile: the
        broker stops by itself at its window.

        Args:
            log: the writer.
            wait_seconds: how long to wait for the reports of the records sent now.

        Raises:
            FatalError: the writer is broken.
        """
        log.poll(0.0)
        if self.abort_because is not None:
            # Waiting records would precede the failed ones in the log, and those come again.
            return
        with contextlib.suppress(LogFull):
            self._advance(log)
            self._produce(log)
        log.poll(wait_seconds)

    def _produce(self, log: LogWriter) -> None:
        backlog = self._backlog
        if backlog and not log.in_flight:
            self.progress_at = time.monotonic()
        while backlog:
            job, given = backlog[0], backlog[0].submitted
            keys, values = (job.keys, job.values) if not given else (job.keys[given:], job.values[given:])
            job.submitted += log.produce_batch(job.topic, keys, values, partial(self._reported, job, given))
            if job.submitted < len(job.values):
                job.block.waiting += 1
            else:
                backlog.popleft()

    def _reported(self, job: _PendingProduce, given: int, failures: list[Failure]) -> None:
        try:
            self._settle(job, given, failures)
        except Exception as error:
            # The writer continues with the next report, so this block and all behind it would wait forever.
            self.abort_because = (
                f"a delivery report of topic {job.topic} failed ({show_text(f'{type(error).__name__}: {error}')})"
            )
            logger.exception("A delivery report failed.")

    def _settle(self, job: _PendingProduce, given: int, failures: list[Failure]) -> None:
        is_current = job.block.epoch == self._chain.epoch
        for place, error in failures:
            if error.kind == "fatal" or (is_current and error.kind == "retriable"):
                self.abort_because = _sentence(job.topic, error)
                return
            if is_current and self._live:
                self._replace(job, given + place, error)
                if self.give_up_because is not None:
                    # Kafka has no record of this message, so its block never finishes.
                    return
        self.progress_at = time.monotonic()
        self._chain.delivered(job.block)

    def _replace(self, job: _PendingProduce, place: int, error: DeliveryError) -> None:
        """Replace a record that Kafka will never take by a dead letter, and by a smaller one if needed."""
        key, value = job.keys[place], job.values[place]
        if job.topic == READINGS:
            fault = Reject(Reason.KAFKA_TOO_LARGE, None, f"a record of {len(value)} bytes", error.text)
            outcome = job.block.refuse(place, partial(self._reject, fault))
            key, value = outcome.records[0].key, outcome.records[0].value
        elif job.topic == DEAD_LETTERS:
            smaller = shrink_dead_letter(Record(job.topic, key, value))
            if smaller is None:
                self.give_up_because = (
                    f"Kafka refuses even an empty dead letter on {job.topic} ({error.text}): "
                    "check its max.message.bytes"
                )
                return
            value = smaller.value
        else:
            # Remembered until this gateway ends; the next one needs it again, and decoders ask for that.
            known = key.decode("utf-8", "backslashreplace")
            logger.error("Topic %s does not accept the remembered state of %s (%s).", job.topic, known, error.text)
            return
        self._add_job(_PendingProduce(job.block, DEAD_LETTERS, [key], [value]))

    def _reject(self, fault: Reject, message: Message, device: str, sequence: list[tuple[int, int]]) -> Outcome:
        return self._processor.reject(message, fault, device, sequence=sequence)

    def _advance(self, log: LogWriter) -> None:
        """Send the outcome of finished messages; its report releases the PUBACKs."""
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
        self.outcome_confirmed = True
        is_current = self._chain.outcome_delivered(batch)
        self._counted(batch.record)
        if is_current:
            now = self.progress_at = time.monotonic()
            acknowledged = self._acknowledge(batch.epoch, batch.mids)
            changes = [change for block in batch.blocks for change in block.changes()]
            self._processor.acknowledged(batch.record.upto, changes)
            self._accounts.batch(batch, acknowledged=acknowledged, produce_seconds=now - batch.blocks[0].received_at)
            self._on_acknowledged(batch.blocks, batch.restarts)


def _sentence(topic: str, error: DeliveryError) -> str:
    return f"Kafka does not accept records of topic {topic} ({error.text})"

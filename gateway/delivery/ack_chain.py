"""Chain from message to PUBACK, without I/O: which messages may be acknowledged, when, and in which order.

received -> all its records delivered (contiguous prefix, in receive order) -> outcome record delivered -> PUBACK.
Messages come and go in blocks. One outcome is in flight at a time; deliveries meanwhile accumulate, so batches form by
themselves. Everything belongs to one epoch, that is one connection. After `halt`, and after `begin` of the next epoch,
nothing of older epochs is ever acknowledged, because the broker reuses packet identifiers.
"""

from collections import deque
from typing import Final

from gateway.delivery.block import COUNT_BYTES, Block
from gateway.delivery.sequence import SequenceRestart, SequenceTracker
from gateway.message_processor import Outcome
from ingest.contract.outcome import Count, OutcomeRecord
from ingest.contract.reading import RECORD_VERSION

__all__ = ["MAX_BATCH", "AckChain", "Batch"]

MAX_BATCH: Final = 2000
"""Most messages of one outcome record, unless a single block has more."""
_MINUTE_US: Final = 60_000_000
_Key = tuple[str | None, int]


class Batch:
    """Contiguous run of finished blocks, with the outcome record that must be in Kafka before their PUBACKs."""

    __slots__ = ("blocks", "epoch", "record", "restarts")

    def __init__(self, epoch: int, blocks: list[Block], record: OutcomeRecord, restarts: list[SequenceRestart]) -> None:
        self.epoch, self.blocks, self.record, self.restarts = epoch, blocks, record, restarts

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    @property
    def mids(self) -> list[bytes]:
        """Packet identifiers to acknowledge, in receive order; messages at QoS 0 have none."""
        return [mid for block in self.blocks for mid in block.mids]


class AckChain:
    """State machine of acknowledgements; property-tested. Not thread-safe: one loop owns it.

    Attributes:
        epoch: of the current connection.
        in_flight: messages received and not yet released for acknowledgement.
        in_flight_bytes: size of their payloads and records.
        stale_reports: reports of past connections, which changed nothing.
    """

    def __init__(self, gateway_id: str, tracker: SequenceTracker | None = None) -> None:
        self._gateway_id = gateway_id
        self._tracker = SequenceTracker() if tracker is None else tracker
        self._blocks: deque[Block] = deque()
        self._in_flight: Batch | None = None
        self._carried: dict[_Key, Count] = {}
        self._restarts: list[SequenceRestart] = []
        self._halted = False
        self._dropped = 0
        self._began: int | None = None
        self.epoch = 0
        self.in_flight = self.in_flight_bytes = 0
        self.stale_reports = 0

    @property
    def is_counted(self) -> bool:
        """Return whether Kafka has the outcomes of all numbers of devices seen so far."""
        return self._in_flight is None and not self._carried

    @property
    def oldest_us(self) -> int | None:
        """Receive time of the oldest unacknowledged message (epoch µs); None if none is held."""
        first = [*([] if self._in_flight is None else self._in_flight.blocks[:1]), *list(self._blocks)[:1]]
        return min((block.received_us for block in first), default=None)

    def begin(self, epoch: int) -> int:
        """Start the epoch of a new connection; returns how many messages of the old one were dropped unacknowledged."""
        if epoch <= self.epoch:
            message = f"epoch {epoch} does not come after {self.epoch}"
            raise ValueError(message)
        self.halt()
        if self._in_flight is not None:
            self._carry(self._in_flight.record)
            self._restarts += self._in_flight.restarts
        dropped, self._dropped = self._dropped, 0
        self._in_flight, self._halted = None, False
        self.epoch, self._began = epoch, None
        return dropped

    def halt(self) -> None:
        """Drop everything of a lost connection: a full window would keep the next one from being read.

        An outcome in flight stays known until its report or the next epoch: its gaps are counted again only if it is lost.
        """
        self._halted = True
        self._dropped += self.in_flight
        self._blocks.clear()
        self.in_flight = self.in_flight_bytes = 0

    def receive(self, block: Block) -> None:
        """Add messages, in receive order."""
        self._began = block.first if self._began is None else self._began
        self._blocks.append(block)
        self.in_flight += len(block)
        self.in_flight_bytes += block.size_bytes

    def delivered(self, block: Block) -> None:
        """Note that some records of the block are in Kafka. A report of a past connection changes nothing and is counted."""
        if self._halted or block.epoch != self.epoch:
            self.stale_reports += 1
        else:
            block.waiting -= 1

    def next_batch(self, max_record_bytes: int) -> Batch | None:
        """Return the finished prefix as a batch that is then in flight; None if one is in flight or nothing is finished.

        Args:
            max_record_bytes: largest record of the outcome's topic; the outcome is estimated to half of it. One block
                always fits.
        """
        if self._in_flight is not None or not self._blocks or self._blocks[0].waiting:
            return None
        counts = self._take_carried(max_record_bytes // 4)
        size_bytes = sum(map(_count_bytes, counts))
        finished: list[Block] = []
        messages = 0
        while self._blocks and not self._blocks[0].waiting:
            block = self._blocks[0]
            size_bytes += block.outcome_bytes
            messages += len(block)
            if finished and (size_bytes > max_record_bytes // 2 or messages > MAX_BATCH):
                break
            finished.append(self._blocks.popleft())
        record = self._count(finished, counts)
        self._in_flight = Batch(self.epoch, finished, record, self._restarts)
        self._restarts = []
        return self._in_flight

    def outcome_delivered(self, batch: Batch) -> bool:
        """Note that the batch's outcome is in Kafka. True if its PUBACKs may go out now, False if its connection is gone."""
        is_known = batch is self._in_flight
        if is_known:
            self._in_flight = None
        if self._halted or not is_known:
            self.stale_reports += 1
            # Kafka has counted them, but their devices have not got a receipt yet.
            self._restarts += batch.restarts if is_known else []
            return False
        self.in_flight -= len(batch)
        self.in_flight_bytes -= sum(block.size_bytes for block in batch.blocks)
        return True

    def _take_carried(self, max_bytes: int) -> dict[_Key, Count]:
        taken: dict[_Key, Count] = {}
        while self._carried and max_bytes > 0:
            key, count = self._carried.popitem()
            taken[key] = count
            max_bytes -= _count_bytes(key)
        return taken

    def _count(self, blocks: list[Block], counts: dict[_Key, Count]) -> OutcomeRecord:
        for block in blocks:
            minute = block.received_us // _MINUTE_US
            for device, messages in block.accepted.items():
                count = counts.get((device, minute)) or _new(counts, device, minute)
                count.received += messages
                count.accepted += messages
            for outcome in block.odd.values():
                _add(outcome, counts.get((outcome.device, minute)) or _new(counts, outcome.device, minute))
                for device in outcome.shared:
                    count = counts.get((device, minute)) or _new(counts, device, minute)
                    count.shared += 1
                    count.retained += outcome.retained
            for device, gap, reordered in self._tracker.follow(self._followed(block), block.copies):
                count = counts.get((device, minute)) or _new(counts, device, minute)
                count.gap += gap
                count.reordered += reordered
            for restart in self._tracker.take_restarts():
                (counts.get((restart.device, minute)) or _new(counts, restart.device, minute)).restarts += 1
                self._restarts.append(restart)
        first, upto = blocks[0].first, blocks[-1].upto
        counters = {(device, boot): None for block in blocks for device, boot, _seq in block.sequences}
        highs = [(device, boot, self._tracker.high(device, boot)) for device, boot in counters]
        sequences = [(device, boot, high) for device, boot, high in highs if high is not None]
        return OutcomeRecord(
            RECORD_VERSION, self._gateway_id, self.epoch, first, upto, list(counts.values()), self._began, sequences
        )

    def _followed(self, block: Block) -> list[tuple[str, int, int]]:
        """Return the numbers that show gaps: a retained message of an unknown counter may be of any age."""
        if not block.replays:
            return block.sequences
        high = self._tracker.high
        return [each for each in block.sequences if each not in block.replays or high(*each[:2]) is not None]

    def _carry(self, record: OutcomeRecord) -> None:
        """Keep gaps and restarts of an outcome that may be lost with its epoch: the redelivery will not show them again."""
        for count in record.counts:
            if count.gap or count.reordered or count.restarts:
                kept = self._carried.get((count.device, count.minute)) or _new(
                    self._carried, count.device, count.minute
                )
                kept.gap += count.gap
                kept.reordered += count.reordered
                kept.restarts += count.restarts


def _new(counts: dict[_Key, Count], device: str | None, minute: int) -> Count:
    count = counts[device, minute] = Count(minute, 0, device, dead_lettered={}, ignored={})
    return count


def _add(outcome: Outcome, count: Count) -> None:
    count.received += 1
    count.retained += outcome.retained
    if outcome.accepted:
        count.accepted += 1
        count.partial += 1 if outcome.parts else 0
    elif outcome.rejected is not None:
        count.dead_lettered[outcome.rejected] = count.dead_lettered.get(outcome.rejected, 0) + 1
    elif outcome.ignored is not None:
        count.ignored[outcome.ignored] = count.ignored.get(outcome.ignored, 0) + 1


def _count_bytes(key: _Key) -> int:
    """Return the most bytes that a count takes in an outcome record; a character of an id may be escaped."""
    return COUNT_BYTES + 2 * len((key[0] or "").encode())

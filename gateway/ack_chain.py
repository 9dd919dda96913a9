"""The chain from message to PUBACK, without I/O: who may be acknowledged, when, and in which order.

received -> all its records delivered (contiguous prefix, in receive order) -> outcome record delivered -> PUBACK.
One outcome is in flight at a time; deliveries meanwhile accumulate, so batches form by themselves. Everything belongs
to one epoch, that is one connection: after `begin` of the next, nothing of the older ones is ever acknowledged, for
the broker reuses packet identifiers.
"""

from collections import deque
from typing import Final

from gateway.outcome import Message, Outcome
from gateway.sequence import SequenceTracker
from ingest.contract.outcome import Count, OutcomeRecord
from ingest.contract.reading import RECORD_VERSION

__all__ = ["AckChain", "Batch", "Entry"]

MAX_BATCH: Final = 2000
"""Messages of one outcome record."""
_MINUTE_US: Final = 60_000_000
_COUNT_BYTES: Final = 200
"""One device's counts of one minute, without its id."""
_REASON_BYTES: Final = 40
_Key = tuple[str | None, int]


class Entry:
    """One message in flight. `outcome` may be replaced while records are missing (a record that Kafka refused)."""

    __slots__ = ("epoch", "message", "mid", "outcome", "produced_at", "size_bytes", "waiting")

    def __init__(self, message: Message, mid: int, outcome: Outcome, produced_at: float) -> None:
        # The payload is of use only while it may still become a dead letter: one may be as large as MQTT allows.
        self.message = message if outcome.accepted else message._replace(payload=b"")
        self.mid, self.outcome, self.produced_at = mid, outcome, produced_at
        self.epoch = message.epoch
        self.waiting = len(outcome.records)
        self.size_bytes = len(self.message.payload) + sum(len(record.value) for record in outcome.records)


class Batch:
    """A contiguous run of finished messages, with the outcome record that must be in Kafka before their PUBACKs."""

    __slots__ = ("entries", "epoch", "record")

    def __init__(self, epoch: int, entries: list[Entry], record: OutcomeRecord) -> None:
        self.epoch, self.entries, self.record = epoch, entries, record

    @property
    def mids(self) -> list[int]:
        """Packet identifiers to acknowledge, in receive order; messages at QoS 0 have none."""
        return [entry.mid for entry in self.entries if entry.message.qos > 0]


class AckChain:
    """The state machine; property-tested. Not thread-safe: one loop owns it."""

    def __init__(self, gateway_id: str, tracker: SequenceTracker | None = None) -> None:
        self._gateway_id = gateway_id
        self._tracker = tracker or SequenceTracker()
        self._entries: deque[Entry] = deque()
        self._in_flight: Batch | None = None
        self._carried: dict[_Key, Count] = {}
        self.epoch = 0
        self.in_flight_bytes = 0
        self.stale_reports = 0

    def begin(self, epoch: int) -> int:
        """Start the epoch of a new connection; returns how many messages of the old one were dropped unacknowledged."""
        if epoch <= self.epoch:
            message = f"epoch {epoch} does not come after {self.epoch}"
            raise ValueError(message)
        dropped = self.in_flight
        if self._in_flight is not None:
            self._carry(self._in_flight.record)
        self._entries.clear()
        self._in_flight = None
        self.in_flight_bytes = 0
        self.epoch = epoch
        return dropped

    @property
    def in_flight(self) -> int:
        """Messages received and not yet released for acknowledgement."""
        return len(self._entries) + (len(self._in_flight.entries) if self._in_flight else 0)

    def receive(self, entry: Entry) -> None:
        """Add a message, in receive order."""
        self._entries.append(entry)
        self.in_flight_bytes += entry.size_bytes

    def delivered(self, entry: Entry) -> None:
        """One record of the message is in Kafka. A report of an older epoch changes nothing and is counted."""
        if entry.epoch != self.epoch:
            self.stale_reports += 1
        else:
            entry.waiting -= 1

    def next_batch(self, max_record_bytes: int) -> Batch | None:
        """The finished prefix, unless an outcome is in flight or nothing is finished. It is then in flight.

        Args:
            max_record_bytes: what the outcome's topic takes; the outcome is estimated to half of it. One message
                always fits.
        """
        if self._in_flight is not None or not self._entries or self._entries[0].waiting:
            return None
        counts = self._take_carried(max_record_bytes // 4)
        size_bytes, known = sum(map(_count_bytes, counts)), set[object](counts)
        finished: list[Entry] = []
        while self._entries and not self._entries[0].waiting and len(finished) < MAX_BATCH:
            size_bytes += _new_bytes(self._entries[0], known)
            if finished and size_bytes > max_record_bytes // 2:
                break
            finished.append(self._entries.popleft())
        self._in_flight = Batch(self.epoch, finished, self._count(finished, counts))
        return self._in_flight

    def outcome_delivered(self, batch: Batch) -> bool:
        """The batch's outcome is in Kafka: True where its PUBACKs may go out now, False where its epoch is over."""
        if batch is not self._in_flight:
            self.stale_reports += 1
            return False
        self._in_flight = None
        self.in_flight_bytes -= sum(entry.size_bytes for entry in batch.entries)
        return True

    def _take_carried(self, max_bytes: int) -> dict[_Key, Count]:
        taken: dict[_Key, Count] = {}
        while self._carried and max_bytes > 0:
            key, count = self._carried.popitem()
            taken[key] = count
            max_bytes -= _count_bytes(key)
        return taken

    def _count(self, finished: list[Entry], counts: dict[_Key, Count]) -> OutcomeRecord:
        for entry in finished:
            outcome = entry.outcome
            key = _key(entry)
            count = counts.get(key)
            if count is None:
                count = counts[key] = Count(key[1], 0, key[0], dead_lettered={}, ignored={})
            count.received += 1
            if outcome.accepted:
                count.accepted += 1
                count.partial += 1 if outcome.parts else 0
            elif outcome.rejected is not None:
                count.dead_lettered[outcome.rejected] = count.dead_lettered.get(outcome.rejected, 0) + 1
            elif outcome.ignored is not None:
                count.ignored[outcome.ignored] = count.ignored.get(outcome.ignored, 0) + 1
            self._follow(outcome, count)
        first, upto = finished[0].message.number, finished[-1].message.number
        return OutcomeRecord(RECORD_VERSION, self._gateway_id, self.epoch, first, upto, list(counts.values()))

    def _follow(self, outcome: Outcome, count: Count) -> None:
        if outcome.device is None:
            return
        for boot, seq in outcome.sequence:
            gap, reordered = self._tracker.see(outcome.device, boot, seq)
            count.gap += gap
            count.reordered += reordered

    def _carry(self, record: OutcomeRecord) -> None:
        """Keep the gaps of an outcome that may be lost with its epoch: the redelivery will not show them again."""
        for count in record.counts:
            if count.gap or count.reordered:
                key = count.device, count.minute
                kept = self._carried.setdefault(key, Count(count.minute, 0, count.device, dead_lettered={}, ignored={}))
                kept.gap += count.gap
                kept.reordered += count.reordered


def _key(entry: Entry) -> _Key:
    return entry.outcome.device, entry.message.received_us // _MINUTE_US


def _count_bytes(key: _Key) -> int:
    """At most this much of an outcome record; a character of an id may be escaped."""
    return _COUNT_BYTES + 2 * len((key[0] or "").encode())


def _new_bytes(entry: Entry, known: set[object]) -> int:
    """What this message adds to an outcome that already tells of `known`, which then has it too."""
    key, size_bytes = _key(entry), 0
    if key not in known:
        known.add(key)
        size_bytes = _count_bytes(key)
    reason = entry.outcome.rejected or entry.outcome.ignored
    if reason is not None and (key, reason) not in known:
        known.add((key, reason))
        size_bytes += _REASON_BYTES
    return size_bytes

"""Block of messages that came together: their records for Kafka, and their counts.

One object holds some hundred messages. Those accepted on the fast path are columns here; every other message has its
`Outcome` in `odd`, by its place.
"""

from collections.abc import Callable, Iterator
from typing import Final

from gateway.decoders.shape import Reply
from gateway.message_processor import Message, Outcome, Record
from gateway.mqtt.session_events import Incoming, Received
from gateway.replies.rejection import Rejection
from ingest.contract.dead_letter import decode_dead_letter, encode_dead_letter
from ingest.contract.reading import decode_record
from ingest.contract.topics import READINGS

__all__ = ["COUNT_BYTES", "Block"]

COUNT_BYTES: Final = 200
"""Most bytes that one device's counts of one minute and its number take in an outcome record, without its id."""
_REASON_BYTES: Final = 40


class Block:
    """Messages numbered from `first` on, received at the same time in the same epoch.

    Attributes:
        messages: as received; a payload that can no longer become a dead letter is removed.
        mids: packet identifiers to acknowledge, in receive order; messages at QoS 0 have none.
        keys, values: records of `telemetry.readings`, in receive order.
        others: records of other topics.
        accepted: number of messages by device, of those that are not in `odd`.
        readings: how many readings these have.
        sequences: (device, boot, seq) in receive order.
        copies: those of them that the broker sends again, or that share a message with others.
        replays: those of retained messages.
        waited_since_us: since when the broker may have kept the messages: see `Message`.
        waiting: batches of records that Kafka has not reported, and those not given to it yet.
        received_at: monotonic seconds.
        outcome_bytes: most bytes that the block takes in an outcome record.
    """

    __slots__ = (
        "_owners",
        "accepted",
        "copies",
        "epoch",
        "first",
        "keys",
        "messages",
        "mids",
        "odd",
        "others",
        "outcome_bytes",
        "readings",
        "received_at",
        "received_us",
        "replays",
        "sequences",
        "size_bytes",
        "values",
        "waited_since_us",
        "waiting",
    )  # fmt: skip

    def __init__(self, epoch: int, first: int, received_us: int, received_at: float) -> None:
        self.epoch, self.first, self.received_us, self.received_at = epoch, first, received_us, received_at
        self.messages: list[Incoming] = []
        self.mids: list[bytes] = []
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.others: list[Record] = []
        self.accepted: dict[str, int] = {}
        self.readings = 0
        self.sequences: list[tuple[str, int, int]] = []
        self.copies: set[tuple[str, int, int]] = set()
        self.replays: set[tuple[str, int, int]] = set()
        self.waited_since_us: int | None = None
        self.odd: dict[int, Outcome] = {}
        self.waiting = 0
        self.outcome_bytes = 0
        self.size_bytes = 0
        self._owners: list[int] | None = None

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def columns(self) -> tuple[int, int, int, int]:
        """Lengths of the columns, which grow together with each message of the fast path."""
        return len(self.messages), len(self.mids), len(self.keys), len(self.values)

    @property
    def upto(self) -> int:
        """Number of the last message."""
        return self.first + len(self.messages) - 1

    def add(self, received: Incoming, outcome: Outcome) -> None:
        """Add a message with its own outcome."""
        place = len(self.messages)
        outcome.retained = isinstance(received, Received) and received.retain
        if isinstance(received, Received):
            if received.qos:
                self.mids.append(received.mid.to_bytes(2, "big"))
        else:
            self.mids.append(received[2])
        if not outcome.accepted:
            received = _without_payload(received)
        self.messages.append(received)
        self.odd[place] = outcome
        for record in outcome.records:
            self._add_record(record)
        self.size_bytes += len(received[1])
        # A character of an id may be escaped.
        self.outcome_bytes += COUNT_BYTES + 2 * len((outcome.device or "").encode()) + _REASON_BYTES
        self.outcome_bytes += sum(COUNT_BYTES + 2 * len(device.encode()) for device in outcome.shared)
        if outcome.device is not None:
            sequences = [(outcome.device, boot, seq) for boot, seq in outcome.sequence]
            self.sequences += sequences
            if len(sequences) > 1 or (isinstance(received, Received) and received.dup) or outcome.retained:
                self.copies.update(sequences)
            if outcome.retained:
                self.replays.update(sequences)

    def _add_record(self, record: Record) -> None:
        self.size_bytes += len(record.value)
        if record.topic == READINGS:
            self.keys.append(record.key)
            self.values.append(record.value)
        else:
            self.others.append(record)

    def message(self, place: int) -> Message:
        """Return a message in the form that the message processor takes."""
        return self._full(self.messages[place], self.first + place)

    def next_message(self, received: Incoming) -> Message:
        """Return the next message after these, in the form that the message processor takes."""
        return self._full(received, self.first + len(self.messages))

    def _full(self, received: Incoming, number: int) -> Message:
        head = number, self.epoch, self.received_us
        if isinstance(received, Received):
            return Message(
                *head, received.topic, received.payload, received.qos, received.dup, received.retain, received.message_id,
                received.trace, received.response_topic, received.correlation, received.mid, self.waited_since_us,
            )  # fmt: skip
        mid = int.from_bytes(received[2], "big")
        return Message(*head, received[0], received[1], mid=mid, waited_since_us=self.waited_since_us)

    def owner(self, position: int) -> int:
        """Return which message the record at this position of `values` belongs to."""
        if self._owners is None:
            self._owners = []
            for place in range(len(self.messages)):
                outcome = self.odd.get(place)
                count = 1 if outcome is None else sum(record.topic == READINGS for record in outcome.records)
                self._owners += [place] * count
        return self._owners[position]

    def refuse(self, position: int, decide: Callable[[Message, str, list[tuple[int, int]]], Outcome]) -> Outcome:
        """Replace the record at this position of `values`, which Kafka rejects for good, by the outcome of `decide`.

        If a message has several such records, the first becomes a dead letter of the whole message, which is counted. The
        others become dead letters of a part.
        """
        place = self.owner(position)
        before = self.odd.get(place)
        record = decode_record(self.values[position])
        if before is None:
            self.readings -= len(record.readings)
            self.accepted[record.device] -= 1
        outcome = decide(self.message(place), record.device, [] if before is None else before.sequence)
        if before is not None:
            outcome.changes, outcome.replies, outcome.retained = before.changes, before.replies, before.retained
            # The records of its other devices are in Kafka, or in flight.
            stored = [before.device, *before.shared] if before.accepted else before.shared
            outcome.shared = [device for device in stored if device not in (None, record.device)]
        if before is not None and before.rejected is not None:
            outcome = _as_part(outcome)
            before.shared, before.refusals = outcome.shared, before.refusals + outcome.refusals
            return outcome
        self.odd[place] = outcome
        return outcome

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes in `odd`, in receive order."""
        return (self.odd[place] for place in sorted(self.odd))

    def replies(self) -> list[Reply]:
        """Messages to publish to the device side now."""
        return [reply for outcome in self.outcomes() for reply in outcome.replies]

    def refusals(self) -> list[Rejection]:
        """Rejections for the receipts."""
        return [refusal for outcome in self.outcomes() for refusal in outcome.refusals]

    def changes(self) -> list[tuple[str, bytes]]:
        """State that decoders remember from now on."""
        return [change for outcome in self.outcomes() for change in outcome.changes]


def _as_part(refused: Outcome) -> Outcome:
    """Return the outcome with a dead letter of a part of its message."""
    letter = decode_dead_letter(refused.records[0].value)
    letter.partial = True
    refused.records = [refused.records[0]._replace(value=encode_dead_letter(letter))]
    refused.refusals = [refusal._replace(partial=True) for refusal in refused.refusals]
    return refused


def _without_payload(received: Incoming) -> Incoming:
    if isinstance(received, Received):
        return received._replace(payload=b"")
    return received[0], b"", received[2]

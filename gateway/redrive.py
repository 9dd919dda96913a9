"""Redrive of dead letters through the current routes and profiles: the new outcome, and the records to produce.

Pure: deploy/dlq/redrive.py reads the dead letters and produces the records. A redriven reading keeps and gets:

- receive time, topic, trace, `retained` and since when it may have waited in the broker: those of the original message, so
  its rows are in the right day, and a reading without its own time is not dated to the redrive;
- identity: the message's own, if it has one. Else `dl:<gateway>:<epoch>:<number>`, the name of the message: two redrives
  of it are one, also after the dead letters' topic was recreated, which uses its offsets again;
- payload: that of the message, so its hash is the same. For a copy that the landing could not compare with stored rows
  (`unchecked_duplicate`), the record itself: the landing compares it again;
- flag `redriven`, tag `dead_letter` = id of the dead letter: its lineage. `tidegate audit` counts it as a message of a
  gateway `redrive`.

A redrive has no other effects: no reply, no receipt, no change of decoder state, and no new dead letter.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, Literal, NamedTuple

from gateway.message_processor import Message, MessageProcessor, Outcome
from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter
from ingest.contract.reading import REDRIVE_GATEWAY, Reading, ReadingRecord, decode_record
from ingest.contract.reasons import Reason, Stage
from ingest.contract.topics import DEAD_LETTERS, READINGS

__all__ = [
    "DeadLetter",
    "Identity",
    "Part",
    "RedriveOutcome",
    "drop_stored_readings",
    "judge_dead_letters",
    "reading_identities",
]

REDRIVEN: Final = "redriven"
LINEAGE: Final = "dead_letter"

Part = tuple[str, str, int]
"""(device, metric, index) of a reading."""
Identity = tuple[str, str]
"""(device, message id) of a reading."""

Ending = Literal["accepted", "refused", "ignored", "stored", "skipped"]


class DeadLetter(NamedTuple):
    """A row of `dead_letters`, with its name and the data to judge it again. `payload` may be cut."""

    id: str
    source_topic: str
    partition: int
    offset: int
    stage: str
    reason: str
    path: str | None
    partial: bool
    gateway: str | None
    epoch: int | None
    number: int | None
    received_us: int
    topic: str | None
    payload: bytes
    payload_bytes: int
    device: str | None
    message_id: str | None
    retain: bool
    trace: str | None
    waited_since_us: int | None = None

    @property
    def message(self) -> str:
        """Name of its message: several dead letters may belong to parts of one."""
        return f"{self.gateway}:{self.epoch}:{self.number}" if self.gateway else self.id


class RedriveOutcome(NamedTuple):
    """New outcome of a message with one or more dead letters.

    `accepted`: `records` are to be produced. `stored`: it would be accepted, but all of it is in the table. `refused`:
    `faults` say why. `ignored`: a rule ignores it now. `skipped`: it cannot be judged; `why` gives the reason.
    """

    letters: list[DeadLetter]
    ending: Ending
    records: Sequence[ReadingRecord] = ()
    faults: Sequence[DeadLetterRecord] = ()
    why: str | None = None

    @property
    def readings(self) -> int:
        """Number of readings to store."""
        return sum(len(record.readings) for record in self.records)


def judge_dead_letters(
    letters: list[DeadLetter], gate: MessageProcessor, stored: Iterable[Part] = ()
) -> RedriveOutcome:
    """Decide about one message.

    Args:
        letters: all of the same message; their payload is the same, but some may have cut it.
        gate: with the current routes, limits and profiles.
        stored: the parts of this message that are in `readings` under its name, if a dead letter is partial. If there are
            none, a message without identity must wait for them; one with an identity is recognised by it.
    """
    whole = next((letter for letter in letters if len(letter.payload) == letter.payload_bytes), None)
    letter = whole or letters[0]
    hindrance = _hindrance(letter)
    if hindrance is not None:
        return RedriveOutcome(letters, "skipped", why=hindrance)
    if letter.reason == Reason.UNCHECKED_DUPLICATE:
        again = _redriven(decode_record(letter.payload), letter, set(stored))
        return RedriveOutcome(letters, "stored") if again is None else RedriveOutcome(letters, "accepted", [again])
    outcome = gate.decide(_as_message(letter))
    if outcome.rejected is not None:
        return RedriveOutcome(letters, "refused", faults=_faults(outcome))
    if outcome.ignored is not None:
        return RedriveOutcome(letters, "ignored", why=outcome.ignored.value)
    decoded, kept = [decode_record(r.value) for r in outcome.records if r.topic == READINGS], set(stored)
    if letter.partial and not kept and any(_is_nameless(record) for record in decoded):
        return RedriveOutcome(
            letters, "skipped", why="its other parts are not in the table: they have not landed yet, or were deleted"
        )
    records = [redriven for record in decoded if (redriven := _redriven(record, letter, kept)) is not None]
    faults = _faults(outcome)
    ending: Ending = "accepted" if records else "refused" if faults else "stored"
    return RedriveOutcome(letters, ending, records, faults)


def reading_identities(verdict: RedriveOutcome) -> set[Identity]:
    """Return the identities of all readings to store."""
    return {_identity(record, reading) for record in verdict.records for reading in record.readings}


def drop_stored_readings(verdict: RedriveOutcome, stored: Mapping[Identity, Set[Part]]) -> RedriveOutcome:
    """Remove readings that are in `readings` under their identity, whichever delivery or redrive brought them.

    Spark drops those too, but only as long as it remembers the identity. A copy that was not compared goes to Spark, which
    compares it.
    """
    if verdict.ending != "accepted" or verdict.letters[0].reason == Reason.UNCHECKED_DUPLICATE:
        return verdict
    records = []
    for record in verdict.records:
        record.readings = [
            reading
            for reading in record.readings
            if (record.device, reading.metric, reading.index) not in stored.get(_identity(record, reading), ())
        ]
        if record.readings:
            records.append(record)
    ending: Ending = "accepted" if records else "refused" if verdict.faults else "stored"
    return verdict._replace(ending=ending, records=records)


def _identity(record: ReadingRecord, reading: Reading) -> Identity:
    return record.device, reading.message_id or record.message_id or ""


def _hindrance(letter: DeadLetter) -> str | None:
    if letter.reason == Reason.CONFLICTING_DUPLICATE:
        return "another message with its identity is stored, and that one stays"
    if letter.stage == Stage.STREAM and letter.reason != Reason.UNCHECKED_DUPLICATE:
        return "it was never an MQTT message: another program wrote it to Kafka"
    if letter.topic is None or letter.gateway is None:
        return "it names no MQTT topic"
    if len(letter.payload) != letter.payload_bytes:
        why = "" if letter.payload else ", because it was too large or names a device that was erased"
        kept = f"only {len(letter.payload)} of its {letter.payload_bytes} bytes were kept"
        return f"{kept}{why}: have the device send it again"
    if letter.reason == Reason.BAD_ENCODING and letter.path == "topic":
        return "its topic is not UTF-8, so no route can match it"
    return None


def _as_message(letter: DeadLetter) -> Message:
    return Message(
        letter.number or 0,
        letter.epoch or 0,
        letter.received_us,
        (letter.topic or "").encode("utf-8", "surrogatepass"),
        letter.payload,
        retain=letter.retain,
        message_id=letter.message_id,
        trace=letter.trace,
        waited_since_us=letter.waited_since_us,
    )


def _faults(outcome: Outcome) -> list[DeadLetterRecord]:
    return [decode_dead_letter(record.value) for record in outcome.records if record.topic == DEAD_LETTERS]


def _is_nameless(record: ReadingRecord) -> bool:
    return record.message_id is None and any(reading.message_id is None for reading in record.readings)


def _redriven(record: ReadingRecord, letter: DeadLetter, stored: set[Part]) -> ReadingRecord | None:
    """Return the record to produce, without stored readings; None if nothing is left."""
    record.readings = [r for r in record.readings if (record.device, r.metric, r.index) not in stored]
    if not record.readings:
        return None
    record.gateway = REDRIVE_GATEWAY
    record.flags = [*(record.flags or ()), REDRIVEN]
    record.tags = {**(record.tags or {}), LINEAGE: letter.id}
    if record.message_id is None:
        # `no_identity` stays among the flags: a message that the broker had delivered twice has two dead letters.
        record.message_id = f"dl:{letter.message}"
    return record

"""One MQTT message to its one outcome: accepted, dead-lettered or ignored, with the records that Kafka must have."""

import base64
import hashlib
import logging
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from gateway.decoders.candidates import choose
from gateway.decoders.registry import make_decoders
from gateway.decoders.shape import Decoded, Ignored, Reply, RouteMatch
from gateway.decoders.state import DecoderState
from gateway.policy import Policy
from gateway.refusal import Refusal
from gateway.routes import RouteTable
from gateway.settings import GatewaySettings
from gateway.show import show
from gateway.topics import id_fault
from ingest.contract.dead_letter import (
    MAX_PAYLOAD_BYTES,
    DeadLetterRecord,
    Reject,
    cut_payload,
    decode_dead_letter,
    encode_dead_letter,
)
from ingest.contract.reading import RECORD_VERSION, ReadingRecord, encode_record
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, READINGS

__all__ = ["Gate", "Message", "Outcome", "Record", "shrink"]

logger = logging.getLogger("tidegate.gateway")

NO_IDENTITY: Final = "no_identity"
MAX_PARTS: Final = 100
"""Partial dead letters of one message; what goes beyond is told as a count in the last one."""
_MAX_KEY_BYTES: Final = 1024
_MAX_ID_CHARACTERS: Final = 256
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Message(NamedTuple):
    """One MQTT message as received. `number` ascends in receive order within the gateway process."""

    number: int
    epoch: int
    received_us: int
    topic: bytes
    payload: bytes
    qos: int = 1
    dup: bool = False
    retain: bool = False
    message_id: str | None = None
    trace: str | None = None
    response_topic: str | None = None
    correlation: bytes | None = None


class Record(NamedTuple):
    """One record to produce."""

    topic: str
    key: bytes
    value: bytes


class Outcome(msgspec.Struct, gc=False):
    """What became of one message. Exactly one of `accepted`, `rejected`, `ignored` is set.

    `device` is whom the message is counted for: the first of several. `changes` are what decoders remember from now
    on (`DecoderState`), among `records` too; `replies` are published to the device side once the records are in Kafka,
    and `refusals` are told to who writes receipts.
    """

    records: list[Record]
    device: str | None = None
    accepted: bool = False
    rejected: Reason | None = None
    ignored: IgnoredReason | None = None
    readings: int = 0
    parts: list[Reason] = []
    sequence: list[tuple[int, int]] = []
    changes: list[tuple[str, bytes]] = []
    replies: list[Reply] = []
    refusals: list[Refusal] = []


class Gate:
    """Decides outcomes. Pure but for a log line when a decoder fails in a way nobody foresaw."""

    def __init__(
        self,
        routes: RouteTable,
        limits: GatewaySettings,
        *,
        state: DecoderState | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._routes, self._limits = routes, limits
        self._state, self._policy = state or DecoderState(), policy or Policy()
        self._state.window_messages = limits.window_messages
        self._decoders = make_decoders(self._state)
        self._known_devices: set[str] = set()

    def roll_back(self) -> None:
        """A new connection begins: forget what decoders and policy know from messages that will come again."""
        self._state.roll_back()
        self._policy.roll_back()

    def acknowledged(self, upto: int, changes: Iterable[tuple[str, bytes]]) -> None:
        """Messages up to this number will not come again; `changes` are those that they made."""
        self._state.acknowledged(changes)
        self._policy.acknowledged(upto)

    def tick(self) -> None:
        """About once a second: the policy reads anew what changed on disk."""
        self._policy.tick()

    def decide(self, message: Message) -> Outcome:
        """The outcome of a message: what fails inside becomes a dead letter `internal_error`.

        Raises:
            MemoryError: no fault of the message, which comes again when there is room for it.
        """
        try:
            return self._decide(message)
        except MemoryError:
            raise
        except Exception as error:
            logger.exception("a decoder failed on message %d; it becomes a dead letter", message.number)
            fault = Reject(
                Reason.INTERNAL_ERROR, got=show(f"{type(error).__name__}: {error}"), wanted="a report of this bug"
            )
            return self.reject(message, fault, None)

    def reject(
        self,
        message: Message,
        fault: Reject,
        device: str | None,
        *,
        keep_bytes: int | None = None,
        sequence: list[tuple[int, int]] | None = None,
        message_id: str | None = None,
    ) -> Outcome:
        """A dead letter of the whole message; `keep_bytes` cuts the payload further than the limit does."""
        keep_bytes = fault.keep_bytes if keep_bytes is None else keep_bytes
        record = self._dead_letter(message, fault, device, partial=False, keep_bytes=keep_bytes)
        refusal = _refusal(message, fault, device, message_id or _property_id(message), partial=False)
        return Outcome([record], device, rejected=fault.reason, sequence=sequence or [], refusals=[refusal])

    def _decide(self, message: Message) -> Outcome:
        try:
            topic = message.topic.decode("utf-8")
        except UnicodeDecodeError as error:
            got = f"byte 0x{message.topic[error.start]:02x} at position {error.start} of the topic"
            return self.reject(message, Reject(Reason.BAD_ENCODING, "topic", got, "a topic in UTF-8"), None)
        match = self._routes.match(topic)
        if match is None:
            wanted = "a native topic (tidegate/v1/<device>/readings) or a route in [[routes]]"
            return self.reject(message, Reject(Reason.NO_ROUTE, "topic", show(topic), wanted), None)
        if isinstance(match, str):
            return Outcome([], ignored=IgnoredReason.OWN_TOPIC)
        if not message.payload:
            return Outcome([], self._device_or_none(match), ignored=IgnoredReason.EMPTY_PAYLOAD)
        fault = self._device_fault(match.device)
        if fault is not None:
            return self.reject(message, Reject(Reason.BAD_DEVICE_ID, "topic", show(match.device), fault), None)
        return self._decode(message, topic, match)

    def _device_fault(self, device: str) -> str | None:
        if device in self._known_devices:
            return None
        fault = id_fault(device, self._limits.max_device_id_bytes)
        if fault is None and len(self._known_devices) < 100_000:
            self._known_devices.add(device)
        return fault

    def _device_or_none(self, match: RouteMatch) -> str | None:
        return match.device if self._device_fault(match.device) is None else None

    def _decode(self, message: Message, topic: str, match: RouteMatch) -> Outcome:
        document = None
        if match.candidates:
            chosen = choose(match, message.payload, self._limits)
            if isinstance(chosen, Reject):
                return self._settle(message, topic, match, chosen)
            match, document = chosen
        if document is not None and match.mapping is not None:
            decoded = match.mapping.read(document, message.payload, match, self._limits, message.received_us)
        else:
            decoded = self._decoders[match.decoder](message.payload, match, self._limits, message.received_us)
        if isinstance(decoded, list):
            outcome = self._join(message, [self._settle(message, topic, match, one) for one in decoded])
        else:
            outcome = self._settle(message, topic, match, decoded)
        changes = self._state.take_changes(repeatable=message.qos > 0)
        if changes:
            outcome.changes = changes
            outcome.records += [Record(GATEWAY_STATE, key.encode(), value) for key, value in changes]
            if message.qos == 0:
                # It does not come again, so a new connection must not forget what it told.
                self._state.acknowledged(changes)
        return outcome

    def _settle(self, message: Message, topic: str, match: RouteMatch, decoded: Decoded | Reject | Ignored) -> Outcome:
        if isinstance(decoded, Reject):
            refused = self._policy.admit(match.device, match, message.received_us, message.number)
            return self.reject(message, refused or decoded, match.device)
        if isinstance(decoded, Ignored):
            device = match.device if decoded.device is None else decoded.device or None
            return Outcome([], device, ignored=decoded.reason, replies=list(decoded.replies))
        fault = self._device_fault(decoded.device)
        if fault is not None:
            path = "topic" if decoded.device == match.device else "$"
            return self.reject(message, Reject(Reason.BAD_DEVICE_ID, path, show(decoded.device), fault), None)
        refused = self._policy.admit(decoded.device, match, message.received_us, message.number)
        if refused is None:
            refused = self._policy.check(decoded, match, message.received_us, message.number)
        if refused is not None:
            return self._reject_decoded(message, refused, decoded)
        if decoded.readings:
            return self._accept(message, topic, decoded)
        if decoded.rejects:
            outcome = self._reject_decoded(message, decoded.rejects[0], decoded)
        else:
            outcome = Outcome([], decoded.device, ignored=IgnoredReason.NO_VALUE, sequence=decoded.sequence)
        outcome.replies = decoded.replies
        return outcome

    def _reject_decoded(self, message: Message, fault: Reject, decoded: Decoded) -> Outcome:
        identity = self._identity(message, decoded)
        return self.reject(message, fault, decoded.device, sequence=decoded.sequence, message_id=identity)

    def _join(self, message: Message, outcomes: list[Outcome]) -> Outcome:
        """One outcome of a message with several devices: accepted where any is, and what was refused is a part."""
        whole = next((one for one in outcomes if one.accepted), None)
        if whole is None:
            whole = next((one for one in outcomes if one.rejected), outcomes[0])
            outcomes = [whole]
        records, parts = [], []
        for one in outcomes:
            if one.rejected is not None and whole.accepted:
                records += [_as_part(record) for record in one.records]
                parts.append(one.rejected)
            else:
                records += one.records
                parts += one.parts
        whole.records, whole.parts = records, parts
        whole.readings = sum(one.readings for one in outcomes)
        whole.replies = [reply for one in outcomes for reply in one.replies]
        whole.refusals = [refusal for one in outcomes for refusal in one.refusals]
        return whole

    def _accept(self, message: Message, topic: str, decoded: Decoded) -> Outcome:
        message_id = self._identity(message, decoded)
        flags = decoded.flags
        if message_id is None and any(reading.message_id is None for reading in decoded.readings):
            flags = [*(flags or ()), NO_IDENTITY]
        record = ReadingRecord(
            RECORD_VERSION,
            self._limits.gateway_id,
            message.epoch,
            message.number,
            message.received_us,
            topic,
            decoded.device,
            decoded.readings,
            message.qos,
            message.dup,
            message.retain,
            message_id,
            decoded.boot,
            decoded.seq,
            flags,
            decoded.tags,
            _traceparent(message.trace),
        )
        records = [Record(READINGS, decoded.device.encode(), encode_record(record))]
        parts: list[Reason] = []
        if decoded.rejects:
            records += self._partial(message, decoded)
            parts = [fault.reason for fault in decoded.rejects]
        return Outcome(
            records,
            decoded.device,
            True,
            None,
            None,
            len(decoded.readings),
            parts,
            decoded.sequence,
            replies=decoded.replies,
            refusals=[
                _refusal(message, fault, decoded.device, message_id, partial=True)
                for fault in decoded.rejects[:MAX_PARTS]
            ],
        )

    def _identity(self, message: Message, decoded: Decoded) -> str | None:
        """What makes a redelivery of this message recognisable; None where nothing does."""
        if decoded.boot is not None and decoded.seq is not None:
            return f"bs:{decoded.boot}:{decoded.seq}"
        property_id = _property_id(message)
        if property_id is not None:
            return property_id
        if decoded.message_id:
            return f"fm:{decoded.message_id}"
        if message.retain:
            digest = hashlib.sha256(message.topic + b"\0" + message.payload).hexdigest()
            return f"rt:{digest[:32]}"
        return None

    def _partial(self, message: Message, decoded: Decoded) -> list[Record]:
        """A dead letter for each refused part. Together they hold at most `max_payload_bytes` of payload.

        The first ones have the whole of it, the rest its length and sha256.
        """
        faults = decoded.rejects
        if len(faults) > MAX_PARTS:
            more = Reject(faults[MAX_PARTS - 1].reason, "$", f"{len(faults) - MAX_PARTS + 1} more parts refused", None)
            faults = [*faults[: MAX_PARTS - 1], more]
        records = []
        budget = max(self._limits.max_payload_bytes, len(message.payload))
        for fault in faults:
            keep = None if budget >= len(message.payload) else 0
            budget -= len(message.payload)
            records.append(self._dead_letter(message, fault, decoded.device, partial=True, keep_bytes=keep))
        return records

    def _dead_letter(
        self, message: Message, fault: Reject, device: str | None, *, partial: bool, keep_bytes: int | None
    ) -> Record:
        limit = self._limits.max_payload_bytes if keep_bytes is None else keep_bytes
        encoded, sha256 = cut_payload(message.payload, limit)
        letter = DeadLetterRecord(
            v=RECORD_VERSION,
            gateway=self._limits.gateway_id,
            epoch=message.epoch,
            number=message.number,
            received_us=message.received_us,
            topic=message.topic.decode("utf-8", "backslashreplace"),
            reason=fault.reason,
            payload_base64=encoded,
            payload_bytes=len(message.payload),
            partial=partial,
            path=None if fault.path is None else show(fault.path),
            got=None if fault.got is None else show(fault.got),
            wanted=None if fault.wanted is None else show(fault.wanted),
            device=device,
            profile=fault.profile,
            qos=message.qos,
            dup=message.dup,
            retain=message.retain,
            payload_sha256=sha256,
            trace=_traceparent(message.trace),
            message_id=_short_id(message.message_id) if message.message_id else None,
        )
        key = message.topic if device is None else device.encode()
        return Record(DEAD_LETTERS, key[:_MAX_KEY_BYTES], encode_dead_letter(letter))


def shrink(record: Record) -> Record | None:
    """A dead letter that Kafka refused by size, smaller: 64 KiB of payload, then none, then a cut topic; then None."""
    letter = decode_dead_letter(record.value)
    payload = base64.b64decode(letter.payload_base64)
    if payload:
        kept = payload[:MAX_PAYLOAD_BYTES] if len(payload) > MAX_PAYLOAD_BYTES else b""
        letter.payload_sha256 = letter.payload_sha256 or hashlib.sha256(payload).hexdigest()
        letter.payload_base64 = base64.b64encode(kept).decode("ascii")
    elif len(letter.topic) > _MAX_KEY_BYTES:
        letter.topic = letter.topic[:_MAX_KEY_BYTES]
    else:
        return None
    return record._replace(value=encode_dead_letter(letter))


def _refusal(message: Message, fault: Reject, device: str | None, known_by: str | None, *, partial: bool) -> Refusal:
    topic = message.topic.decode("utf-8", "backslashreplace")
    return Refusal(device, fault, message.response_topic, message.correlation, known_by, topic, partial)


def _property_id(message: Message) -> str | None:
    return f"mp:{_short_id(message.message_id)}" if message.message_id else None


def _as_part(record: Record) -> Record:
    """The dead letter of one device of a message that others were stored of."""
    letter = decode_dead_letter(record.value)
    letter.partial = True
    return record._replace(value=encode_dead_letter(letter))


def _short_id(text: str) -> str:
    """A device's own message id, or its hash where it is too long to keep; the short form of a short form is itself."""
    if len(text) <= _MAX_ID_CHARACTERS:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _traceparent(text: str | None) -> str | None:
    return text if text is not None and _TRACEPARENT.fullmatch(text) else None

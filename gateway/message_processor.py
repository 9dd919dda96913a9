"""Outcome of one MQTT message: accepted, dead-lettered or ignored, with the records for Kafka."""

import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from gateway.clock_behind import flag_clocks_behind
from gateway.dead_letters import partial_dead_letters, select_rejections, whole_dead_letter
from gateway.decoders.registry import make_decoders
from gateway.decoders.senml.decoder import RELATIVE_TIME
from gateway.decoders.shape import Decoded, Ignored, Reply, RouteMatch
from gateway.decoders.state import DecoderState
from gateway.gateway_settings import GatewaySettings
from gateway.message import Message, Record, identity_of, property_id, traceparent
from gateway.policy import ReadingPolicy
from gateway.replies.rejection import Rejection
from gateway.routes import RouteTable, choose_candidate
from gateway.safe_text import show_text
from gateway.topic_filters import empty_level, id_fault
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import RECORD_VERSION, ReadingRecord, encode_record, hash_payload
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import GATEWAY_STATE, READINGS

__all__ = ["Message", "MessageProcessor", "Outcome", "Record"]

logger = logging.getLogger("tidegate.gateway")

NO_IDENTITY: Final = "no_identity"
RETAINED: Final = "retained"
MAY_HAVE_WAITED: Final = "may_have_waited"
_MAX_TOPICS_BYTES: Final = 4 * 1024 * 1024
"""Most bytes by which the records of a message of several devices repeat its topic, which may have 64 KiB."""


class Outcome(msgspec.Struct, gc=False):
    """Outcome of one message. Exactly one of `accepted`, `rejected`, `ignored` is set.

    `device` is the device for which the message is counted, the first of several; `shared` are the others whose readings
    are in its records. `retained`: the broker replayed the message. `changes` is what decoders remember from now on
    (`DecoderState`), also among `records`. `replies` are published to the device side once the records are in Kafka, and
    `refusals` are the rejections for the receipts.
    """

    records: list[Record]
    device: str | None = None
    accepted: bool = False
    rejected: Reason | None = None
    ignored: IgnoredReason | None = None
    readings: int = 0
    parts: list[Reason] = []
    shared: list[str] = []
    sequence: list[tuple[int, int]] = []
    changes: list[tuple[str, bytes]] = []
    replies: list[Reply] = []
    refusals: list[Rejection] = []
    retained: bool = False


class MessageProcessor:
    """Decision about outcomes. Pure, except for a log line when a decoder fails unexpectedly."""

    def __init__(
        self,
        routes: RouteTable,
        limits: GatewaySettings,
        *,
        state: DecoderState | None = None,
        policy: ReadingPolicy | None = None,
    ) -> None:
        self._routes, self._limits = routes, limits
        self._state, self._policy = state or DecoderState(), policy or ReadingPolicy()
        self._state.window_messages = limits.window_messages
        self._decoders = make_decoders(self._state, limits)
        self._known_devices: set[str] = set()

    def roll_back(self) -> None:
        """Forget what decoders and policy know from messages that will come again, for a new connection."""
        self._state.roll_back()
        self._policy.roll_back()

    def acknowledged(self, upto: int, changes: Iterable[tuple[str, bytes]]) -> None:
        """Note that the PUBACKs of messages up to this number are written; `changes` are those that they made."""
        self._state.acknowledged(changes)
        self._policy.acknowledged(upto)

    def tick(self) -> None:
        """Let the policy read changed files, about once a second."""
        self._policy.tick()

    def find_decoders(self) -> None:
        """Add decoders of new files; existing decoders keep their memory.

        Raises:
            ConfigError: a decoder cannot be loaded.
        """
        self._decoders = make_decoders(self._state, self._limits) | self._decoders

    def decide(self, message: Message) -> Outcome:
        """Decide the outcome of a message; an internal failure becomes a dead letter `internal_error`.

        Raises:
            MemoryError: not the message's fault; it comes again when there is room for it.
        """
        try:
            return self._decide(message)
        except MemoryError:
            raise
        except Exception as error:
            logger.exception("A decoder failed on message %d. The message becomes a dead letter.", message.number)
            fault = Reject(
                Reason.INTERNAL_ERROR, got=show_text(f"{type(error).__name__}: {error}"), wanted="a report of this bug"
            )
            return self.reject(message, fault, None)

    def reject(
        self, message: Message, fault: Reject, device: str | None, *, sequence: list[tuple[int, int]] | None = None
    ) -> Outcome:
        """Return the outcome with a dead letter of the whole message."""
        topic = message.topic.decode("utf-8", "backslashreplace")
        outcome = _refused(message, topic, fault, device)
        outcome.sequence = sequence or []
        outcome.records = [whole_dead_letter(message, outcome.refusals[0], self._limits)]
        return outcome

    def _decide(self, message: Message) -> Outcome:
        try:
            topic = message.topic.decode("utf-8")
        except UnicodeDecodeError as error:
            got = f"byte 0x{message.topic[error.start]:02x} at position {error.start} of the topic"
            return self.reject(message, Reject(Reason.BAD_ENCODING, "topic", got, "a topic in UTF-8"), None)
        match = self._routes.match(topic)
        if match is None:
            return self._without_route(message, topic)
        if isinstance(match, str):
            return Outcome([], ignored=IgnoredReason.OWN_TOPIC)
        if not message.payload:
            return Outcome([], self._device_or_none(match), ignored=IgnoredReason.EMPTY_PAYLOAD)
        fault = self._device_fault(match.device)
        if fault is not None:
            return self.reject(message, _bad_device("topic", match.device, topic, fault), None)
        return self._decode(message, topic, match)

    def _without_route(self, message: Message, topic: str) -> Outcome:
        if not message.payload:
            # This is how a retained message is deleted; brokers deliver it live without the retain flag.
            return Outcome([], ignored=IgnoredReason.EMPTY_PAYLOAD)
        wanted = "a native topic (tidegate/v1/<device>/readings) or a route in [[routes]]"
        if level := empty_level(topic):
            wanted = f"a route in [[routes]]; {level}, and a named segment matches no empty level"
        return self.reject(message, Reject(Reason.NO_ROUTE, "topic", show_text(topic), wanted), None)

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
        self._policy.begin(message)
        document = None
        if match.candidates:
            chosen = choose_candidate(match, message.payload, self._limits)
            if isinstance(chosen, Reject):
                return self._write(message, self._settle(message, topic, match, chosen))
            match, document = chosen
        if document is not None and match.mapping is not None:
            decoded = match.mapping.read(document, message.payload, match, self._limits, message.received_us)
        else:
            decoded = self._decoders[match.decoder](message.payload, match, self._limits, message.received_us)
        if isinstance(decoded, list) and len(decoded) * len(message.topic) > _MAX_TOPICS_BYTES:
            got = f"{len(decoded)} devices under a topic of {len(message.topic)} bytes"
            wanted = "a shorter topic or fewer devices in a message: the record of each device repeats the topic"
            decoded = Reject(Reason.TOO_LARGE, "topic", got, wanted)
        if isinstance(decoded, list):
            outcome = _join([self._settle(message, topic, match, one) for one in decoded])
        else:
            outcome = self._settle(message, topic, match, decoded)
        outcome = self._write(message, outcome)
        changes = self._state.take_changes(repeatable=message.qos > 0)
        if changes:
            outcome.changes = changes
            outcome.records += [Record(GATEWAY_STATE, key.encode(), value) for key, value in changes]
            if message.qos == 0:
                # It does not come again, so a new connection must not forget its state.
                self._state.acknowledged(changes)
        return outcome

    def _settle(self, message: Message, topic: str, match: RouteMatch, decoded: Decoded | Reject | Ignored) -> Outcome:
        """Decide one device's part; its rejections are in `refusals`, without a dead letter yet."""
        if isinstance(decoded, Reject):
            refused = self._policy.admit(match.device, match, message.received_us, message.number)
            return _refused(message, topic, refused or decoded, match.device)
        if isinstance(decoded, Ignored):
            device = match.device if decoded.device is None else decoded.device or None
            return Outcome([], device, ignored=decoded.reason, replies=list(decoded.replies))
        fault = self._device_fault(decoded.device)
        if fault is not None:
            path = "topic" if decoded.device == match.device else "$"
            return _refused(message, topic, _bad_device(path, decoded.device, topic, fault), None)
        refused = self._policy.admit(decoded.device, match, message.received_us, message.number)
        if refused is None:
            refused = self._policy.check(decoded, match, message.received_us, message.number)
        if refused is not None:
            return _refused(message, topic, refused, decoded.device, decoded)
        if decoded.readings:
            return self._accept(message, topic, decoded)
        if decoded.rejects:
            outcome = _refused(message, topic, decoded.rejects[0], decoded.device, decoded)
        else:
            outcome = Outcome([], decoded.device, ignored=IgnoredReason.NO_VALUE, sequence=decoded.sequence)
        outcome.replies = decoded.replies
        return outcome

    def _accept(self, message: Message, topic: str, decoded: Decoded) -> Outcome:
        message_id = identity_of(message, decoded)
        flags = decoded.flags
        readings = decoded.readings
        if message_id is None and (readings[0].message_id is None or any(one.message_id is None for one in readings)):
            flags = [*(flags or ()), NO_IDENTITY]
        if message.retain:
            flags = [*(flags or ()), RETAINED]
        if message.waited_since_us is not None:
            _flag_waited(decoded)
        flag_clocks_behind(readings, message.received_us, _sent_us(message), self._limits.clock_behind_seconds)
        record = ReadingRecord(
            RECORD_VERSION,
            self._limits.gateway_id,
            message.epoch,
            message.number,
            message.received_us,
            topic,
            decoded.device,
            readings,
            message.qos,
            message.dup,
            message.retain,
            message_id,
            decoded.boot,
            decoded.seq,
            flags,
            decoded.tags,
            traceparent(message.trace),
            hash_payload(message.payload),
            message.waited_since_us or None,
        )
        return Outcome(
            [Record(READINGS, decoded.device.encode(), encode_record(record))],
            decoded.device,
            accepted=True,
            readings=len(readings),
            sequence=decoded.sequence,
            replies=decoded.replies,
            refusals=[
                _refusal(message, topic, fault, decoded.device, message_id, partial=True) for fault in decoded.rejects
            ]
            if decoded.rejects
            else [],
        )

    def _write(self, message: Message, outcome: Outcome) -> Outcome:
        """Add the dead letters of all rejections, and keep the rejections for the receipts."""
        refusals = outcome.refusals
        if outcome.accepted and refusals:
            outcome.parts = [refusal.reject.reason for refusal in refusals]
            outcome.records += partial_dead_letters(message, refusals, self._limits)
            outcome.refusals = select_rejections(refusals)
        elif refusals:
            outcome.records = [whole_dead_letter(message, refusals[0], self._limits, devices=len(refusals))]
            outcome.refusals = select_rejections(refusals)
        return outcome


def _sent_us(message: Message) -> int | None:
    """Return the earliest time at which a message may have been sent; None if unknown."""
    if message.retain:
        return None
    return message.received_us if message.waited_since_us is None else message.waited_since_us or None


def _flag_waited(decoded: Decoded) -> None:
    """Flag the readings whose time is that of their arrival, or was calculated from it."""
    is_relative = RELATIVE_TIME in (decoded.flags or ())
    for reading in decoded.readings:
        if is_relative or reading.time_us is None or RELATIVE_TIME in (reading.flags or ()):
            reading.flags = [*(reading.flags or ()), MAY_HAVE_WAITED]


def _join(outcomes: list[Outcome]) -> Outcome:
    """Join the outcomes of a message with several devices: accepted if any is, and rejections are then parts.

    If nothing is stored, it is the first rejection, preferably one whose payload may be kept.
    """
    refused = [one for one in outcomes if one.rejected is not None]
    keeping = (one for one in refused if one.refusals[0].reject.keep_bytes is None)
    whole = next((one for one in outcomes if one.accepted), None) or next(keeping, None) or [*refused, *outcomes][0]
    refusals = [refusal for one in outcomes for refusal in one.refusals]
    if whole.accepted:
        refusals = [refusal._replace(partial=True) for refusal in refusals]
    elif refused:
        refusals = whole.refusals + [refusal for one in refused if one is not whole for refusal in one.refusals]
    whole.records = [record for one in outcomes for record in one.records]
    whole.readings = sum(one.readings for one in outcomes)
    stored = {one.device: None for one in outcomes if one.accepted and one.device is not None}
    whole.shared = [device for device in stored if device != whole.device]
    whole.replies = [reply for one in outcomes for reply in one.replies]
    whole.refusals = refusals
    return whole


def _bad_device(path: str, device: str, topic: str, fault: str) -> Reject:
    """Return why this is not a device id; if the topic gave an empty one, which level is empty."""
    level = "" if device or path != "topic" else empty_level(topic)
    return Reject(
        Reason.BAD_DEVICE_ID, path, show_text(topic if level else device), f"{fault}: {level}" if level else fault
    )


def _refused(
    message: Message, topic: str, fault: Reject, device: str | None, decoded: Decoded | None = None
) -> Outcome:
    """Return the outcome of a device's part that is rejected as a whole, or of a message that names no device."""
    known_by = property_id(message) if decoded is None else identity_of(message, decoded)
    refusal = _refusal(message, topic, fault, device, known_by, partial=False)
    sequence = [] if decoded is None else decoded.sequence
    return Outcome([], device, rejected=fault.reason, sequence=sequence, refusals=[refusal])


def _refusal(
    message: Message, topic: str, fault: Reject, device: str | None, known_by: str | None, *, partial: bool
) -> Rejection:
    return Rejection(device, fault, message.response_topic, message.correlation, known_by, topic, partial)

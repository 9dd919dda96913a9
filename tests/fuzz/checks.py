"""Conditions for the outcome of any message, whatever its bytes were: one list, for tests and for the fuzzer."""

import base64
import hashlib
import math
import re
from typing import Final

from gateway.decoders.values import metric_fault
from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import Message, Outcome
from gateway.time_rules import YEAR_2000_S
from gateway.topic_filters import id_fault
from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter
from ingest.contract.reading import Reading, ReadingRecord, decode_record
from ingest.contract.reasons import Reason
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, READINGS

__all__ = ["faults_of"]

_MAX_KEY_BYTES: Final = 1024
_MAX_SHOWN: Final = 120
_CUT: Final = (Reason.UNKNOWN_DEVICE, Reason.RATE_LIMITED)
"""Reasons for which the payload may be cut: an unknown device, or one that floods."""
_FLAG = re.compile(r"[a-z][a-z0-9_]{0,63}")
_UNSHOWABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NO_TOPIC = re.compile(r"[\x00+#]")


def faults_of(message: Message, outcome: Outcome, limits: GatewaySettings) -> list[str]:
    """Every promise that this outcome breaks, a sentence each; empty where it is sound."""
    faults: list[str] = []
    set_ones = [name for name in ("accepted", "rejected", "ignored") if getattr(outcome, name) not in (None, False)]
    if len(set_ones) != 1:
        faults.append(f"outcomes set: {set_ones or 'none'}, wanted exactly one")
    if Reason.INTERNAL_ERROR in (outcome.rejected, *outcome.parts):
        faults.append(f"internal_error: {_got(outcome)}")
    counts = {READINGS: 0, DEAD_LETTERS: 0, GATEWAY_STATE: 0}
    readings = 0
    seen: set[tuple[object, ...]] = set()
    for record in outcome.records:
        if record.topic not in counts:
            faults.append(f"a record for {record.topic!r}, which is not a topic of the gateway")
            continue
        counts[record.topic] += 1
        if record.topic == READINGS:
            stored = decode_record(record.value)
            readings += len(stored.readings)
            faults += _record_faults(stored, record.key, seen, message, limits)
        elif record.topic == DEAD_LETTERS:
            faults += _letter_faults(decode_dead_letter(record.value), record.key, message, limits)
    if readings != outcome.readings:
        faults.append(f"{readings} readings in the records, {outcome.readings} counted")
    if outcome.accepted and not counts[READINGS]:
        faults.append("accepted without a record")
    if not outcome.accepted and counts[READINGS]:
        faults.append("a record of readings, but not accepted")
    if outcome.rejected is not None and counts[DEAD_LETTERS] != 1:
        faults.append(f"{counts[DEAD_LETTERS]} dead letters of a message rejected as a whole")
    if outcome.accepted and bool(outcome.parts) != bool(counts[DEAD_LETTERS]):
        faults.append(f"{len(outcome.parts)} parts rejected, {counts[DEAD_LETTERS]} dead letters")
    faults += [
        f"reply to {reply.topic!r}, which is not a topic" for reply in outcome.replies if not _is_topic(reply.topic)
    ]
    return faults


def _got(outcome: Outcome) -> str:
    letters = [decode_dead_letter(record.value) for record in outcome.records if record.topic == DEAD_LETTERS]
    return "; ".join(f"{letter.path}: {letter.got}" for letter in letters if letter.reason is Reason.INTERNAL_ERROR)


def _record_faults(
    record: ReadingRecord, key: bytes, seen: set[tuple[object, ...]], message: Message, limits: GatewaySettings
) -> list[str]:
    fault = id_fault(record.device, limits.max_device_id_bytes)
    faults = [] if fault is None else [f"device {record.device[:80]!r}: wanted {fault}"]
    if key != record.device.encode():
        faults.append(f"key {key[:80]!r} is not device {record.device[:80]!r}")
    if record.topic.encode() != message.topic:
        faults.append(f"topic {record.topic!r} is not the message's")
    if not record.readings:
        faults.append("a record without readings")
    faults += [f"flag {flag!r} is not a short word" for flag in record.flags or () if not _FLAG.fullmatch(flag)]
    for reading in record.readings:
        faults += [f"{reading.metric[:80]!r}: {found}" for found in _reading_faults(reading, message, limits)]
        counters = (record.boot, record.seq, reading.boot, reading.seq)
        faults += [
            f"{number} is not a counter" for number in counters if number is not None and not 0 <= number < 2**63 - 1
        ]
        identity = (record.device, reading.message_id or record.message_id, reading.metric, reading.index)
        if identity in seen:
            faults.append(f"{identity} is there twice, so one of the two would be dropped as a duplicate")
        seen.add(identity)
    return faults


def _reading_faults(reading: Reading, message: Message, limits: GatewaySettings) -> list[str]:
    faults = []
    fault = metric_fault(reading.metric)
    if fault is not None:
        faults.append(f"no metric name: wanted {fault}")
    if reading.value is None and reading.text is None:
        faults.append("neither value nor text")
    if reading.value is not None and not math.isfinite(reading.value):
        faults.append(f"value {reading.value} is not finite")
    latest = message.received_us + limits.max_future_seconds * 1_000_000
    if reading.time_us is not None and not YEAR_2000_S * 1_000_000 <= reading.time_us <= latest:
        faults.append(f"time {reading.time_us} µs is before 2000 or too far ahead")
    if not 0 <= reading.index < 2**31:
        faults.append(f"index {reading.index} does not fit 32 bits")
    if reading.claimed_us is not None and not -(2**63) <= reading.claimed_us < 2**63:
        faults.append(f"claimed time {reading.claimed_us} µs does not fit 64 bits")
    return faults + [f"flag {flag!r} is not a short word" for flag in reading.flags or () if not _FLAG.fullmatch(flag)]


def _letter_faults(letter: DeadLetterRecord, key: bytes, message: Message, limits: GatewaySettings) -> list[str]:
    faults = []
    kept = base64.b64decode(letter.payload_base64)
    whole = kept == message.payload
    if not whole and (
        letter.payload_sha256 != hashlib.sha256(message.payload).hexdigest() or not _heads(kept, message)
    ):
        faults.append("a dead letter holds neither the payload nor its beginning with the sha256 of the whole")
    if (
        not whole
        and letter.reason not in _CUT
        and not letter.partial
        and len(message.payload) <= limits.max_payload_bytes
    ):
        faults.append(f"a dead letter cut {len(message.payload)} bytes, although the limit allows them")
    if letter.payload_bytes != len(message.payload):
        faults.append(f"a dead letter says {letter.payload_bytes} bytes of {len(message.payload)}")
    if len(key) > _MAX_KEY_BYTES:
        faults.append(f"a dead letter's key has {len(key)} bytes")
    for name, text in (("path", letter.path), ("got", letter.got), ("wanted", letter.wanted)):
        if text is not None and (len(text) > _MAX_SHOWN or _UNSHOWABLE.search(text)):
            faults.append(f"a dead letter's {name} is not safe to show: {text!r}")
    if not letter.got and not letter.wanted:
        faults.append(f"a dead letter ({letter.reason}) has neither `got` nor `wanted`")
    return faults


def _heads(kept: bytes, message: Message) -> bool:
    return message.payload.startswith(kept)


def _is_topic(topic: str) -> bool:
    return 0 < len(topic.encode("utf-8", "surrogatepass")) <= 65_535 and _NO_TOPIC.search(topic) is None

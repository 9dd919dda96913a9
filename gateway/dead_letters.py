"""Dead letters of one message, with its payload only once, however many rejected devices and parts it has.

A message may carry thousands of devices, each of which may be rejected. Its own size bounds the cost: at most `MAX_PARTS`
dead letters, fewer if the topic is long. Together they hold one payload, or `max_payload_bytes` if a payload is smaller.
"""

import base64
import hashlib
from typing import Final

from gateway.gateway_settings import GatewaySettings
from gateway.message import Message, Record, short_id, traceparent
from gateway.replies.rejection import Rejection
from gateway.safe_text import show_text
from ingest.contract.dead_letter import (
    MAX_PAYLOAD_BYTES,
    DeadLetterRecord,
    Reject,
    cut_payload,
    decode_dead_letter,
    encode_dead_letter,
)
from ingest.contract.reading import RECORD_VERSION
from ingest.contract.topics import DEAD_LETTERS

__all__ = ["MAX_PARTS", "partial_dead_letters", "select_rejections", "shrink_dead_letter", "whole_dead_letter"]

MAX_PARTS: Final = 100
"""Most partial dead letters and receipts of one message; the last letter counts the rest."""
_MAX_TOPICS_BYTES: Final = 1024 * 1024
"""Most bytes by which the dead letters of a message repeat its topic, which may have 64 KiB."""
_MAX_KEY_BYTES: Final = 1024
_Cut = tuple[str, str | None]


def select_rejections(refusals: list[Rejection], most: int = MAX_PARTS) -> list[Rejection]:
    """Select up to `most` rejections of a message in order, giving every device its first before any second."""
    if len(refusals) <= most:
        return refusals
    firsts: dict[str | None, int] = {}
    for place, refusal in enumerate(refusals):
        firsts.setdefault(refusal.device, place)
    places = dict.fromkeys([*firsts.values(), *range(len(refusals))])
    return [refusals[place] for place in sorted(list(places)[:most])]


def whole_dead_letter(message: Message, refusal: Rejection, limits: GatewaySettings, *, devices: int = 1) -> Record:
    """Return the dead letter of a message of which nothing was stored; it holds the first of several rejected `devices`."""
    fault = refusal.reject
    keep = limits.max_payload_bytes if fault.keep_bytes is None else fault.keep_bytes
    got = fault.got
    if devices > 1:
        got = f"{devices} devices rejected" + (f"; the first: {got}" if got else "")
    return _letter(message, refusal, limits, cut_payload(message.payload, keep), got=got, partial=False)


def partial_dead_letters(message: Message, refusals: list[Rejection], limits: GatewaySettings) -> list[Record]:
    """Return a dead letter for each rejected part of a message of which something was stored, at most MAX_PARTS.

    The first ones have the whole payload, as long as all of them together hold at most `max_payload_bytes` or one
    payload. The rest have its length and sha256.
    """
    most = min(MAX_PARTS, max(1, _MAX_TOPICS_BYTES // len(message.topic)))
    chosen = select_rejections(refusals, most)
    if len(refusals) > most:
        chosen = [*chosen[:-1], _more(chosen[-1], refusals, len(refusals) - most + 1)]
    budget = max(limits.max_payload_bytes, len(message.payload))
    cuts: dict[int, _Cut] = {}
    records = []
    for refusal in chosen:
        keep = limits.max_payload_bytes if refusal.reject.keep_bytes is None else refusal.reject.keep_bytes
        size = min(len(message.payload), keep)
        if size > budget:
            keep = size = 0
        budget -= size
        if keep not in cuts:
            cuts[keep] = cut_payload(message.payload, keep)
        records.append(_letter(message, refusal, limits, cuts[keep], got=refusal.reject.got, partial=True))
    return records


def shrink_dead_letter(record: Record) -> Record | None:
    """Shrink a dead letter that is too large for Kafka: to 64 KiB of payload, then none, then a cut topic; then return None."""
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


def _more(last: Rejection, refusals: list[Rejection], count: int) -> Rejection:
    """Return the rejection for all parts without a dead letter, in place of the last one; without a device if of several."""
    device = last.device if all(one.device == last.device for one in refusals) else None
    return last._replace(device=device, reject=Reject(last.reject.reason, "$", f"{count} more parts rejected", None))


def _letter(
    message: Message, refusal: Rejection, limits: GatewaySettings, cut: _Cut, *, got: str | None, partial: bool
) -> Record:
    fault, device = refusal.reject, refusal.device
    letter = DeadLetterRecord(
        v=RECORD_VERSION,
        gateway=limits.gateway_id,
        epoch=message.epoch,
        number=message.number,
        received_us=message.received_us,
        topic=refusal.topic,
        reason=fault.reason,
        payload_base64=cut[0],
        payload_bytes=len(message.payload),
        partial=partial,
        path=None if fault.path is None else show_text(fault.path),
        got=None if got is None else show_text(got),
        wanted=None if fault.wanted is None else show_text(fault.wanted),
        device=device,
        profile=fault.profile,
        qos=message.qos,
        dup=message.dup,
        retain=message.retain,
        payload_sha256=cut[1],
        trace=traceparent(message.trace),
        message_id=short_id(message.message_id) if message.message_id else None,
        waited_since_us=message.waited_since_us,
    )
    key = message.topic if device is None else device.encode()
    return Record(DEAD_LETTERS, key[:_MAX_KEY_BYTES], encode_dead_letter(letter))

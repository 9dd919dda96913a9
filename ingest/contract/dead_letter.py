"""Dead letters, the records of `telemetry.dead-letters`: what was rejected, why, and its raw bytes."""

import base64
import hashlib
from dataclasses import dataclass
from typing import Final

import msgspec

from ingest.contract.reasons import Reason, Stage

__all__ = ["MAX_PAYLOAD_BYTES", "DeadLetterRecord", "Reject", "cut_payload", "decode_dead_letter", "encode_dead_letter"]

MAX_PAYLOAD_BYTES: Final = 64 * 1024
"""Payload kept by a dead letter that is too large for its topic, next to the full length and sha256."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A rejection as a value: `path` is a JSON path (`$.values.temp`), `got` and `wanted` are short texts for people.

    `profile` (`name@version`) is set if a validation profile rejected it. `keep_bytes` cuts the payload of its dead
    letter further than the limit does (0: length and sha256 only).
    """

    reason: Reason
    path: str | None = None
    got: str | None = None
    wanted: str | None = None
    profile: str | None = None
    keep_bytes: int | None = None


class DeadLetterRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """One rejected message, or (`partial`) one rejected part of a message whose other parts were stored.

    `message_id` is the device's MQTT user property `message-id`. Topic, payload, `retain` and `message_id` make up the
    identity of a message, so a redrive finds the same one. `waited_since_us`: since when the broker may have kept the
    message; 0: unknown; None: it did not wait.
    """

    v: int
    gateway: str
    epoch: int
    number: int
    received_us: int
    topic: str
    reason: Reason
    payload_base64: str
    payload_bytes: int
    stage: Stage = Stage.GATEWAY
    partial: bool = False
    path: str | None = None
    got: str | None = None
    wanted: str | None = None
    device: str | None = None
    profile: str | None = None
    attempt: int = 0
    qos: int = 1
    dup: bool = False
    retain: bool = False
    payload_sha256: str | None = None
    trace: str | None = None
    message_id: str | None = None
    waited_since_us: int | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(DeadLetterRecord)


def cut_payload(payload: bytes, limit_bytes: int) -> tuple[str, str | None]:
    """Return the base64 of the payload and None; past the limit, that of its first 64 KiB and the whole payload's sha256."""
    if len(payload) <= limit_bytes:
        return base64.b64encode(payload).decode("ascii"), None
    head = payload[: min(MAX_PAYLOAD_BYTES, limit_bytes)]
    return base64.b64encode(head).decode("ascii"), hashlib.sha256(payload).hexdigest()


def encode_dead_letter(record: DeadLetterRecord) -> bytes:
    """Encode the dead letter as UTF-8 JSON."""
    return _encoder.encode(record)


def decode_dead_letter(value: bytes) -> DeadLetterRecord:
    """Decode the dead letter of a Kafka value; raises msgspec.DecodeError if it is not one."""
    return _decoder.decode(value)

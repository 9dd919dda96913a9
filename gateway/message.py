"""One MQTT message in the gateway, the records made from it, and the identity by which a redelivery is recognised."""

import hashlib
import re
from typing import Final, NamedTuple

from gateway.decoders.shape import Decoded

__all__ = ["Message", "Record", "identity_of", "property_id", "short_id", "traceparent"]

_MAX_ID_CHARACTERS: Final = 256
# From the W3C: version ff is invalid, and so is an id of only zeros.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Message(NamedTuple):
    """One MQTT message as received. `number` ascends in receive order within the gateway process.

    `mid` is its packet identifier, 0 if it has none. `waited_since_us`: the broker may have kept it, at the earliest since
    then; 0: unknown since when; None: it came when it was published.
    """

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
    mid: int = 0
    waited_since_us: int | None = None


class Record(NamedTuple):
    """One record to produce."""

    topic: str
    key: bytes
    value: bytes


def identity_of(message: Message, decoded: Decoded) -> str | None:
    """Return the identity by which a redelivery of this message is recognised; None if it has none."""
    if decoded.boot is not None and decoded.seq is not None:
        return f"bs:{decoded.boot}:{decoded.seq}"
    given = property_id(message)
    if given is not None:
        return given
    if decoded.message_id:
        return f"{decoded.id_kind}:{decoded.message_id}"
    if message.retain:
        digest = hashlib.sha256(message.topic + b"\0" + message.payload).hexdigest()
        return f"rt:{digest[:32]}"
    return None


def property_id(message: Message) -> str | None:
    """Return the identity that the device gave as MQTT user property `message-id`; None if it gave none."""
    return f"mp:{short_id(message.message_id)}" if message.message_id else None


def short_id(text: str) -> str:
    """Return a device's own message id, or its hash if it is too long to keep; shortening a short form does not change it."""
    if len(text) <= _MAX_ID_CHARACTERS:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def traceparent(text: str | None) -> str | None:
    """Return a W3C `traceparent` unchanged; None if it is not valid."""
    return text if text is not None and _TRACEPARENT.fullmatch(text) else None

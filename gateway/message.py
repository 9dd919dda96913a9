"""One MQTT message as the gateway takes it, the record it produces, and what makes a redelivery recognisable."""

import hashlib
import re
from typing import Final, NamedTuple

from gateway.decoders.shape import Decoded

__all__ = ["Message", "Record", "identity_of", "property_id", "short_id", "traceparent"]

_MAX_ID_CHARACTERS: Final = 256
# The W3C's words: no version ff, and an id of zeros only names nothing.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Message(NamedTuple):
    """One MQTT message as received. `number` ascends in receive order within the gateway process.

    `mid` is its packet identifier, 0 where it has none. `waited_since_us`: the broker may have kept it for a while, from then
    on at the earliest; 0: nobody knows from when on; None: it came as it was published.
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
    """What makes a redelivery of this message recognisable; None where nothing does."""
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
    """The identity that the device gave as MQTT user property `message-id`; None where it gave none."""
    return f"mp:{short_id(message.message_id)}" if message.message_id else None


def short_id(text: str) -> str:
    """A device's own message id, or its hash where it is too long to keep; the short form of a short form is itself."""
    if len(text) <= _MAX_ID_CHARACTERS:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def traceparent(text: str | None) -> str | None:
    """A W3C `traceparent` as it came; None for what is none."""
    return text if text is not None and _TRACEPARENT.fullmatch(text) else None

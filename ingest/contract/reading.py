"""One Kafka record of `telemetry.readings`: the readings of one message and device, as JSON any tool reads.

The envelope is in the value, not in headers: see DECISIONS.md. `encode_record` and `decode_record` are the codec.
streaming/decode.py holds the same shape as a Spark schema; tests/guards compares the two.
"""

from hashlib import blake2b
from struct import Struct
from typing import Final

import msgspec

__all__ = [
    "RECORD_VERSION",
    "REDRIVE_GATEWAY",
    "Reading",
    "ReadingRecord",
    "decode_record",
    "encode_record",
    "hash_payload",
]

RECORD_VERSION: Final = 1
REDRIVE_GATEWAY: Final = "redrive"
"""The `gateway` of records from `tidegate dlq redrive`. Their age does not measure the pipeline."""


class Reading(msgspec.Struct, omit_defaults=True, gc=False):
    """One value of one metric.

    `value` and `text` follow the table: number -> value; bool -> value 1/0 and text `true`/`false`; string -> text;
    an integer past 2^53 -> nearest double and its exact digits in text. At least one of the two is set.
    `time_us` is the event time to use (UTC epoch µs), None if the receive time is used; `claimed_us` is the device's time
    if that differs. `message_id`, `boot`, `seq` override the record's: batches may number each item.
    """

    metric: str
    value: float | None = None
    text: str | None = None
    unit: str | None = None
    time_us: int | None = None
    claimed_us: int | None = None
    index: int = 0
    message_id: str | None = None
    boot: int | None = None
    seq: int | None = None
    flags: list[str] | None = None


class ReadingRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """The readings of one MQTT message and one device, with the envelope.

    `number` counts the messages of one gateway process, ascending in receive order; with `gateway` and `epoch` (the
    connection generation: process start in epoch ms, raised by at least 1 on each connection) it names the message.
    `payload_hash` is `hash_payload` of the MQTT payload: two deliveries with the same hash have the same content, whatever
    profile, unit or zone decoded them. Records of older gateways have none.
    `retain`: the broker replayed it as a retained message to a new subscription, so it may be old. `waited_since_us`: it
    came while the broker delivered its backlog, so it may have been published at any time since then.
    `v` is in every record: it has no default, so `omit_defaults` cannot drop it.
    """

    v: int
    gateway: str
    epoch: int
    number: int
    received_us: int
    topic: str
    device: str
    readings: list[Reading]
    qos: int = 1
    dup: bool = False
    retain: bool = False
    message_id: str | None = None
    boot: int | None = None
    seq: int | None = None
    flags: list[str] | None = None
    tags: dict[str, str] | None = None
    trace: str | None = None
    payload_hash: int | None = None
    waited_since_us: int | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ReadingRecord)
_empty = blake2b(digest_size=8)
_signed = Struct(">q").unpack
"""Copying a hasher and a compiled struct costs a third less than making both for each message."""


def hash_payload(payload: bytes) -> int:
    """Return 64 bits of a payload's BLAKE2b as a signed number, the same on every machine and in every version."""
    hasher = _empty.copy()
    hasher.update(payload)
    number: int = _signed(hasher.digest())[0]
    return number


def encode_record(record: ReadingRecord) -> bytes:
    """Encode the record as UTF-8 JSON without line breaks."""
    return _encoder.encode(record)


def decode_record(value: bytes) -> ReadingRecord:
    """Decode the record of a Kafka value.

    Raises:
        msgspec.DecodeError: not JSON, or not a record; msgspec.ValidationError is its subclass.
    """
    return _decoder.decode(value)

"""Counts of the gateway, the records of `telemetry.outcomes`. They are in Kafka before the PUBACKs that they cover."""

import msgspec

__all__ = ["Count", "OutcomeRecord", "decode_outcome", "encode_outcome"]


class Count(msgspec.Struct, omit_defaults=True, gc=False):
    """Messages of one device in one minute (`minute` = receive time in whole minutes since the epoch, UTC).

    `received = accepted + sum(dead_lettered) + sum(ignored)`. `partial` counts accepted messages with a rejected part.
    `device` is None if the message names none (no route, undecodable). `shared` counts messages of several devices that
    hold readings of this one and are counted (`received`) for another one of them. `restarts`: how often the device began
    to count again under the same boot. `retained`: how many of all these the broker replayed as retained messages, which
    do not show when the device was alive.
    """

    minute: int
    received: int
    device: str | None = None
    accepted: int = 0
    partial: int = 0
    dead_lettered: dict[str, int] = {}
    ignored: dict[str, int] = {}
    gap: int = 0
    reordered: int = 0
    shared: int = 0
    restarts: int = 0
    retained: int = 0


class OutcomeRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """Counts of the messages numbered `first` to `upto` (inclusive) of one gateway epoch.

    The gateway produces it only after every record of those messages was delivered. A record in `telemetry.readings` or
    `telemetry.dead-letters` whose number is past the last `upto` of its epoch was received but not counted here, because
    the gateway died in between. The audit counts it from the record itself. `began` is the number of the epoch's first
    message, so any outcome of an epoch shows a loss before it. `sequences` holds the highest number of each device and
    boot in these messages; a restarted gateway continues from there.
    """

    v: int
    gateway: str
    epoch: int
    first: int
    upto: int
    counts: list[Count]
    began: int | None = None
    sequences: list[tuple[str, int, int]] = []


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(OutcomeRecord)


def encode_outcome(record: OutcomeRecord) -> bytes:
    """Encode the outcome as UTF-8 JSON."""
    return _encoder.encode(record)


def decode_outcome(value: bytes) -> OutcomeRecord:
    """Decode the outcome of a Kafka value; raises msgspec.DecodeError if it is not one."""
    return _decoder.decode(value)

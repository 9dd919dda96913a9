"""Request of an erasure to the gateways: a record in `telemetry.gateway-state` that names a device by a hash."""

import hashlib
from typing import Final

import msgspec

__all__ = ["FORGET_KEY", "Forget", "decode_forget", "device_digest", "encode_forget"]

FORGET_KEY: Final = "tidegate/forget"
"""Key of these records. Compaction keeps only the newest; each running gateway reads each of them."""


class Forget(msgspec.Struct, frozen=True):
    """The device whose id has this SHA-256."""

    device_sha256: str


def device_digest(device: str) -> str:
    """Return the SHA-256 of a device's id, in hex."""
    return hashlib.sha256(device.encode("utf-8", "surrogatepass")).hexdigest()


def encode_forget(device: str) -> bytes:
    """Encode the value of the record."""
    return msgspec.json.encode(Forget(device_digest(device)))


def decode_forget(value: bytes) -> str | None:
    """Return the device's SHA-256; None if the value is something else."""
    try:
        return msgspec.json.decode(value, type=Forget).device_sha256
    except msgspec.MsgspecError:
        return None

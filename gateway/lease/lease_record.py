"""Record by which a gateway says that it runs, in `telemetry.gateway-state`, and the conflicts between two of them.

It holds no time: nobody compares the clocks of two machines. A reader watches whether newer records arrive.
"""

import os
import secrets
import socket
from pathlib import Path
from typing import Final

import msgspec

from gateway.filter_overlap import find_overlap

__all__ = [
    "LeaseRecord",
    "decode_lease",
    "describe_conflict",
    "encode_lease",
    "is_lease",
    "lease_key",
    "machine_name",
    "process_name",
]

_PREFIX: Final = "tidegate/"
_SUFFIX: Final = "/lease"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")


class LeaseRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process of a gateway.

    Attributes:
        gateway: its gateway_id.
        process: host, process id and a part that differs at each start.
        machine: boot id and PID namespace; empty if the system does not name them.
        client_id: MQTT client id.
        broker: host and port.
        filters: topic filters that it subscribes to.
        term: counts the processes that held the lease of this gateway_id.
        beat: counts the records of this process.
        epoch: last MQTT epoch of this gateway that is known.
        seconds: a reader that sees no newer record for this long may take the lease.
        standby: whether another process may take the lease, so that this one stops itself before that.
        released: whether this process has ended, with all of its records in Kafka.
    """

    gateway: str
    process: str
    machine: str
    client_id: str
    broker: str
    filters: tuple[str, ...]
    seconds: float
    term: int = 0
    beat: int = 0
    epoch: int = 0
    standby: bool = False
    released: bool = False

    @property
    def who(self) -> str:
        """The process, for people."""
        return f"process {self.process.rsplit('/', 1)[0]}"

    def is_from(self, host: str, pid: int) -> bool:
        """Return whether the record has this host name and process id."""
        return self.process.startswith(f"{host}/{pid}/")

    @property
    def pid(self) -> int:
        """Process id on its machine; 0 if it is unknown."""
        parts = self.process.split("/")
        return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(LeaseRecord).decode


def lease_key(gateway_id: str) -> str:
    """Return the key of a gateway's record."""
    return f"{_PREFIX}{gateway_id}{_SUFFIX}"


def is_lease(key: str) -> bool:
    """Return whether this key of the topic is that of a lease."""
    return key.startswith(_PREFIX) and key.endswith(_SUFFIX)


def encode_lease(record: LeaseRecord) -> bytes:
    """Encode the record as UTF-8 JSON."""
    return _encode(record)


def decode_lease(value: bytes) -> LeaseRecord | None:
    """Decode a record; None if it is not one."""
    try:
        return _decode(value)
    except msgspec.MsgspecError:
        return None


def process_name() -> str:
    """Return a name of this process that no other one has."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(3)}"


def machine_name() -> str:
    """Return a name of what gives out process ids: this start of the system and the PID namespace; empty if unknown."""
    try:
        return f"{_BOOT.read_text('ascii').strip()}/{_NAMESPACE.readlink()}"
    except OSError:
        return ""


def describe_conflict(ours: LeaseRecord, other: LeaseRecord) -> str:
    """Return why both may not run at the same time, with both names and the next step; empty if they may."""
    if ours.gateway == other.gateway:
        return (
            f"another gateway runs with gateway.gateway_id {ours.gateway!r} ({other.who}, MQTT client id "
            f"{other.client_id!r} at {other.broker}). Give each gateway its own id, or set gateway.standby = true on both if "
            "one is to wait for the end of the other."
        )
    if ours.broker != other.broker:
        return ""
    names = f"gateway {ours.gateway!r} and the running gateway {other.gateway!r} ({other.who})"
    if ours.client_id == other.client_id:
        return (
            f"mqtt.client_id: {names} both use {ours.client_id!r} at {ours.broker}, so the broker would close one connection "
            "for the other. Give each gateway its own client id."
        )
    found = find_overlap(ours.filters, other.filters)
    if found is None:
        return ""
    return (
        f"mqtt.subscriptions: {names} both take the topic {found[2]}, by the filters {found[0]!r} and {found[1]!r}, so its "
        "messages would be stored twice. Give each gateway filters that do not overlap."
    )

"""Inputs and outputs of decoders: the shapes that all formats share."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from gateway.gateway_settings import GatewaySettings
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import IgnoredReason

if TYPE_CHECKING:
    from gateway.decoders.mapping.engine import CompiledMapping

__all__ = ["Decoded", "Decoder", "Decoding", "Ignored", "Reply", "RouteMatch"]


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """Route of a topic, resolved: the device, the name of a bare value, and what the payload itself does not say.

    `names` are the named segments of the route's filter in this topic; `route` describes the route. `candidates`, if there
    are any, are the routes among which the payload decides, in order: each but the last has a condition, `payload` or its
    mapping's `when`. `device_named`: the route gives the device's name.
    """

    decoder: str
    device: str
    metric: str
    time: tuple[str, ...] = ()
    zone: ZoneInfo | None = None
    units: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] | None = None
    topic: str = ""
    names: dict[str, str] = field(default_factory=dict)
    profile: str | None = None
    mapping: "CompiledMapping | None" = None
    ignore: IgnoredReason | None = None
    payload: re.Pattern[bytes] | None = None
    candidates: tuple["RouteMatch", ...] = ()
    route: str = ""
    device_named: bool = False


class Reply(NamedTuple):
    """Message that the gateway publishes to the device side because of a message: a rebirth request, a receipt."""

    topic: str
    payload: bytes
    correlation: bytes | None = None


class Decoded(msgspec.Struct, gc=False):
    """Readings of one device, and the rejected parts. `sequence` holds (boot, seq) of each numbered item.

    `message_id` is the format's own identity (a frame counter, a deduplication id), if it has one. Without readings it is a
    dead letter (for its first rejected part), and without rejected parts too it is ignored as `no_value`. `id_kind` is the
    kind of the identity: `fm`, or `tg` for a telegram that several receivers may hear.
    """

    device: str
    readings: list[Reading]
    rejects: list[Reject] = []
    flags: list[str] | None = None
    tags: dict[str, str] | None = None
    boot: int | None = None
    seq: int | None = None
    sequence: list[tuple[int, int]] = []
    message_id: str | None = None
    id_kind: str = "fm"
    replies: list[Reply] = []


@dataclass(frozen=True, slots=True)
class Ignored:
    """Message without readings by rule: acknowledged and counted, not kept.

    `device` is the device that it shows to be alive; None: the route's; empty: no device.
    """

    reason: IgnoredReason
    device: str | None = None
    replies: tuple[Reply, ...] = ()


Decoding = Decoded | Reject | Ignored | list[Decoded]
"""A list holds one entry per device, if a message carries readings of several; it is not empty."""

Decoder = Callable[[bytes, RouteMatch, GatewaySettings, int], Decoding]
"""(payload, route, limits, receive time in epoch µs) to an outcome. No clock, no I/O; state between messages goes through
a `DecoderState` that it got when it was made."""

"""What goes into a decoder and what comes out: the shapes all formats share."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from gateway.settings import GatewaySettings
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import IgnoredReason

if TYPE_CHECKING:
    from gateway.decoders.mapping import CompiledMapping

__all__ = ["Decoded", "Decoder", "Decoding", "Ignored", "Reply", "RouteMatch"]


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """A topic's route, resolved: who sends, what a bare value is called, and what the payload itself does not say.

    `names` are the named segments of the route's filter as they stand in this topic; `route` says in words which route
    it is. `candidates`, where there are any, are the routes among which the payload decides, in order: each but the last has a
    condition, `payload` or its mapping's `when`. `device_named`: the route says how the device is called.
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
    """What the gateway publishes to the device side because of a message: a rebirth request, a receipt."""

    topic: str
    payload: bytes
    correlation: bytes | None = None


class Decoded(msgspec.Struct, gc=False):
    """Readings of one device, and the parts that were refused. `sequence` holds (boot, seq) of each numbered item.

    `message_id` is the format's own key (a frame counter, a deduplication id), where it has one. Without readings it
    is a dead letter (for its first refused part), and without these too it is ignored `no_value`. `id_kind` says what kind of
    key it is: `fm`, or `tg` of a telegram that several receivers may hear.
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
    """No reading by rule: acknowledged and counted, not kept.

    `device` shows that it lives; None: the route's; empty: nobody's.
    """

    reason: IgnoredReason
    device: str | None = None
    replies: tuple[Reply, ...] = ()


Decoding = Decoded | Reject | Ignored | list[Decoded]
"""A list holds one entry per device, where a message carries readings of several; it is not empty."""

Decoder = Callable[[bytes, RouteMatch, GatewaySettings, int], Decoding]
"""(payload, route, limits, receive time in epoch µs) to an outcome. No clock, no I/O; what it must remember between
messages goes through a `DecoderState` given to it when it was made."""

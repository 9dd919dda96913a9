"""What goes into a decoder and what comes out: the shapes all formats share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

import msgspec

from gateway.settings import GatewaySettings
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import IgnoredReason

__all__ = ["Decoded", "Decoder", "Ignored", "RouteMatch"]


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """A topic's route, resolved: who sends, what a bare value is called, and what the payload itself does not say."""

    decoder: str
    device: str
    metric: str
    time: tuple[str, ...] = ()
    zone: ZoneInfo | None = None
    units: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] | None = None


class Decoded(msgspec.Struct, gc=False):
    """Readings of one device, and the parts that were refused. `sequence` holds (boot, seq) of each numbered item.

    Without readings it is a dead letter (for its first refused part), and without these too it is ignored `no_value`.
    """

    device: str
    readings: list[Reading]
    rejects: list[Reject] = []
    flags: list[str] | None = None
    tags: dict[str, str] | None = None
    boot: int | None = None
    seq: int | None = None
    sequence: list[tuple[int, int]] = []


@dataclass(frozen=True, slots=True)
class Ignored:
    """No reading by rule: acknowledged and counted, not kept."""

    reason: IgnoredReason


Decoder = Callable[[bytes, RouteMatch, GatewaySettings, int], "Decoded | Reject | Ignored"]
"""(payload, route, limits, receive time in epoch µs) to an outcome. Pure: no clock, no state, no I/O."""

"""Generic JSON of a route: any document, flattened by the rule of `flatten`, under the empty mapping.

The topic's last segment names a top-level scalar, and the scalars of a top-level array: `samples[0]`. An object inside a
top-level array is an item of a batch: it has its own time, and its position is the readings' index. The first of the
route's `time` keys that an object has is its time, and not a metric; without them a usual name with a time counts. Parts
of the document with their own times are read at those times, or rejected: see `sampled`.
"""

from gateway.decoders.mapping.engine import CompiledMapping
from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.shape import Decoding, RouteMatch
from gateway.gateway_settings import GatewaySettings

__all__ = ["decode_json", "generic_mapping"]


def generic_mapping(units: dict[str, str], numeric_text: tuple[str, ...] = ("*",)) -> CompiledMapping:
    """Return the mapping that knows only a route's units, and in which text fields may hold numbers."""
    return CompiledMapping(MappingSettings(guess_numbers=numeric_text), units=units)


def decode_json(payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoding:
    """Decode one generic JSON message; see `Decoder`."""
    mapping = match.mapping or generic_mapping(match.units)
    return mapping(payload, match, limits, received_us)

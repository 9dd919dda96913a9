"""Generic JSON behind a route: any document, flattened by the rule of `flatten`, under the mapping that says nothing.

A top-level scalar is named by the topic's last segment, so are the scalars of a top-level array: `samples[0]`. An
object inside a top-level array is an item of a batch: it has a time of its own, and its position is the readings' index.
The first of the route's `time` keys that an object has is its time, and no metric; without them a usual name that holds a
time counts. What has times of its own inside the document is read at those, or refused: see `sampled`.
"""

from gateway.decoders.mapping import CompiledMapping
from gateway.decoders.mapping_settings import MappingSettings
from gateway.decoders.shape import Decoding, RouteMatch
from gateway.settings import GatewaySettings

__all__ = ["decode_json", "generic_mapping"]


def generic_mapping(units: dict[str, str], numeric_text: tuple[str, ...] = ("*",)) -> CompiledMapping:
    """The mapping that only knows a route's units, and in which text fields numbers may stand."""
    return CompiledMapping(MappingSettings(guess_numbers=numeric_text), units=units)


def decode_json(payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoding:
    """Decode one generic JSON message; see `Decoder`."""
    mapping = match.mapping or generic_mapping(match.units)
    return mapping(payload, match, limits, received_us)

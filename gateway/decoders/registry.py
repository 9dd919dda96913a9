"""Decoders by their names in routes: ours, those of the user's folder, and those of other distributions.

A distribution provides one by an entry point of group `tidegate.decoders` whose object is a `Decoder`. A file in the folder
`gateway.decoders` is one too (see `python_file`). If names are equal, ours win, then the folder's.
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from gateway.decoders.homie import HomieDecoder
from gateway.decoders.kura import decode_kura
from gateway.decoders.mapping.engine import decode_json
from gateway.decoders.native import decode_native
from gateway.decoders.plain_value import decode_plain
from gateway.decoders.python_file import PythonFileDecoder, find_files
from gateway.decoders.ruuvi import decode_ruuvi
from gateway.decoders.senml.decoder import decode_senml
from gateway.decoders.shape import Decoder, Decoding, Ignored, RouteMatch
from gateway.decoders.sparkplug.decoder import SparkplugDecoder
from gateway.decoders.state import DecoderState
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import strip_byte_order_mark
from ingest.contract.errors import ConfigError
from ingest.contract.reasons import IgnoredReason

__all__ = ["IGNORE", "MAPPING", "decoder_names", "make_decoders"]

ENTRY_POINTS: Final = "tidegate.decoders"
MAPPING: Final = "mapping"
IGNORE: Final = "ignore"
"""Decoders of routes that name a mapping or a reason to ignore instead of a decoder."""

_JSON_STARTS: Final = b'{["'
_OPENED: Final = (b"{", b"[")
_BLANK: Final = b" \t\r\n"


def decode_auto(payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoding:
    """Decode JSON if the first byte that is not blank begins an object, array or string; else plain."""
    if payload.startswith(_OPENED):
        return decode_json(payload, match, limits, received_us)
    # UTF-16 goes to the JSON decoder, whose rejection names it.
    head = strip_byte_order_mark(payload[:64]).lstrip(_BLANK)[:1]
    like_json = (head and (head in _JSON_STARTS or head in b"\xff\xfe\0")) or b"\0" in payload[:4]
    return (decode_json if like_json else decode_plain)(payload, match, limits, received_us)


def decode_mapping(payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoding:
    """Decode by the route's mapping."""
    if match.mapping is None:
        message = f"route {match.route} has no mapping"
        raise TypeError(message)
    return match.mapping(payload, match, limits, received_us)


def decode_ignored(payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoding:
    """Ignore by the route's reason, whatever the message contains. It counts for no device unless the route names one."""
    return Ignored(match.ignore or IgnoredReason.STATUS, match.device if match.device_named else "")


_PURE: Final[dict[str, Decoder]] = {
    "native": decode_native,
    "json": decode_json,
    "plain": decode_plain,
    "auto": decode_auto,
    "senml": decode_senml,
    "kura": decode_kura,
    "ruuvi": decode_ruuvi,
}

_STATEFUL: Final[dict[str, Callable[[DecoderState], Decoder]]] = {
    "homie": HomieDecoder,
    "sparkplug": SparkplugDecoder,
}
"""Made for each gate, with the state that they share."""


@cache
def _brought() -> tuple[EntryPoint, ...]:
    """Return the decoders of other distributions; looking for them reads the metadata of every installed one."""
    return tuple(entry_points(group=ENTRY_POINTS))


def decoder_names(limits: GatewaySettings | None = None) -> list[str]:
    """Return every name that a route may give, in alphabetical order. Loads none of them; without `limits` no folder's."""
    folder = None if limits is None else limits.decoders
    return sorted({*_PURE, *_STATEFUL, *find_files(folder), *(found.name for found in _brought())})


def make_decoders(state: DecoderState, limits: GatewaySettings | None = None) -> dict[str, Decoder]:
    """Return every decoder by its name; without `limits` no folder's.

    Raises:
        ConfigError: an entry point cannot be loaded, or is not a function.
    """
    made: dict[str, Decoder] = {}
    for found in _brought():
        try:
            made[found.name] = found.load()
        except Exception as error:
            message = f"decoder {found.name!r} ({found.value}) cannot be loaded: {error}; fix or remove its package"
            raise ConfigError(message) from error
        if not callable(made[found.name]):
            message = f"decoder {found.name!r} ({found.value}) is not a function (payload, match, limits, received_us)"
            raise ConfigError(message)
    made |= {
        name: PythonFileDecoder(file) for name, file in find_files(None if limits is None else limits.decoders).items()
    }
    made |= {**_PURE, **{name: make(state) for name, make in _STATEFUL.items()}}
    return {**made, MAPPING: decode_mapping, IGNORE: decode_ignored}

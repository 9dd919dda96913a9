"""Decoders by the name that a route gives them."""

from typing import Final

from gateway.decoders.json_object import decode_json
from gateway.decoders.native import decode_native
from gateway.decoders.plain import decode_plain
from gateway.decoders.shape import Decoded, Decoder, Ignored, RouteMatch
from gateway.settings import GatewaySettings
from ingest.contract.dead_letter import Reject

__all__ = ["DECODERS"]

_JSON_STARTS: Final = b'{["'
_BLANK: Final = b" \t\r\n"


def decode_auto(
    payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int
) -> Decoded | Reject | Ignored:
    """JSON where the first byte that is not blank begins an object, array or string; else plain."""
    # UTF-16 and byte order marks go to the JSON decoder, which names them.
    head = payload[:64].lstrip(_BLANK)[:1]
    like_json = (head and (head in _JSON_STARTS or head in b"\xef\xff\xfe\0")) or b"\0" in payload[:4]
    return (decode_json if like_json else decode_plain)(payload, match, limits, received_us)


DECODERS: Final[dict[str, Decoder]] = {
    "native": decode_native,
    "json": decode_json,
    "plain": decode_plain,
    "auto": decode_auto,
}

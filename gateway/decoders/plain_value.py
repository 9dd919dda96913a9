"""One bare value as text: `21.5`, `21.5 °C`, `00123`, `true`, `open`. Device and metric come from the topic.

For the spellings of numbers see `number_text`.
"""

import re

from gateway.decoders.number_text import is_blank, read_number
from gateway.decoders.shape import Decoded, Ignored, RouteMatch
from gateway.decoders.values import NO_VALUE, NOT_FINITE, read_value, refuse_topic_name
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import strip_byte_order_mark
from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import IgnoredReason, Reason

__all__ = ["decode_plain", "read_scalar"]

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def decode_plain(
    payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int
) -> Decoded | Reject | Ignored:
    """Decode one bare value; see `Decoder`. A unit comes from the text, else from the route, never from a guess."""
    if len(payload) > limits.max_payload_bytes:
        return Reject(Reason.TOO_LARGE, got=f"{len(payload)} bytes", wanted=f"at most {limits.max_payload_bytes} bytes")
    text = _decode_text(payload)
    if isinstance(text, Reject):
        return text
    text = text.strip(" \t\r\n")
    if not text or text.lower() in NO_VALUE or is_blank(text):
        return Ignored(IgnoredReason.NO_VALUE)
    if not match.metric:
        return refuse_topic_name(match.topic)
    value, unit = read_scalar(text)
    unit = unit or match.units.get(match.metric)
    reading = value if isinstance(value, Reject) else read_value(match.metric, value, unit, "$")
    if isinstance(reading, Reject):
        return reading
    return Decoded(match.device, [reading], [], None, match.tags, None, None, [])


def _decode_text(payload: bytes) -> str | Reject:
    try:
        return strip_byte_order_mark(payload).decode("utf-8")
    except UnicodeDecodeError as error:
        got = f"byte 0x{payload[error.start]:02x} at position {error.start}"
        return Reject(Reason.BAD_ENCODING, got=got, wanted="UTF-8 text")


def read_scalar(text: str) -> tuple[float | int | bool | str | Reject, str | None]:
    """Return the value and the unit that the text itself names."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true", None
    if text.lstrip("+-").lower() in NOT_FINITE:
        return Reject(Reason.BAD_NUMBER, got=show_text(text), wanted="a finite number"), None
    found = read_number(text)
    if found is not None:
        return (found, None) if isinstance(found, Reject) else found
    if _CONTROL.search(text):
        return Reject(Reason.UNDECODED, got=show_text(text), wanted="text without control characters"), None
    return text, None

"""One bare value as text: `21.5`, `21.5 °C`, `00123`, `true`, `open`. Device and metric come from the topic."""

import re
from typing import Final

from gateway.decoders.shape import Decoded, Ignored, RouteMatch
from gateway.decoders.values import NO_VALUE, NOT_FINITE, read_value
from gateway.settings import GatewaySettings
from gateway.show import show
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import IgnoredReason, Reason

__all__ = ["decode_plain"]

_NUMBER = re.compile(r"([+-]?)(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d{1,9})?(\s*)(.*)", re.ASCII | re.DOTALL)
_UNIT = re.compile(r"(?:[^\W\d_]|[°%‰])(?:[^\W\d_]|[°%‰·/*^⁻¹.-])*")
_GLUED_UNITS: Final = frozenset(
    """
    °C °F °K ° C F K % ‰ V mV kV A mA µA W mW kW MW Wh kWh MWh Ω kΩ Hz kHz MHz dB dBm lx lm
    Pa hPa kPa bar mbar ppm ppb g kg mg µg L l m cm mm µm km m² m³ s ms min h
    m/s km/h m³/h l/min l/h µg/m³ mg/m³ g/m³ µV
    """.split()  # noqa: SIM905 - a table of units reads better than quotes and commas
)
_LIKE_A_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|\d{1,3}(?:[.,' ]\d{3})*,\d+|\d+,\d+)", re.ASCII)
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
    if not text or text.lower() in NO_VALUE or not text.strip("?-"):
        return Ignored(IgnoredReason.NO_VALUE)
    value, unit = read_scalar(text)
    unit = unit or match.units.get(match.metric)
    reading = value if isinstance(value, Reject) else read_value(match.metric, value, unit, "$")
    if isinstance(reading, Reject):
        return reading
    return Decoded(match.device, [reading], [], None, match.tags, None, None, [])


def _decode_text(payload: bytes) -> str | Reject:
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        got = f"byte 0x{payload[error.start]:02x} at position {error.start}"
        return Reject(Reason.BAD_ENCODING, got=got, wanted="UTF-8 text")
    if text.startswith("\ufeff"):
        return Reject(Reason.BAD_ENCODING, got="a byte order mark", wanted="UTF-8 without a byte order mark")
    return text


def read_scalar(text: str) -> tuple[float | int | bool | str | Reject, str | None]:
    """The value and the unit that the text itself names."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true", None
    if text.lstrip("+-").lower() in NOT_FINITE:
        return Reject(Reason.BAD_NUMBER, got=show(text), wanted="a finite number"), None
    found = _NUMBER.fullmatch(text)
    if found is not None and _is_unit(found[5], spaced=bool(found[4])):
        return _number(found), found[5] or None
    if _LIKE_A_NUMBER.fullmatch(text):
        return Reject(Reason.BAD_NUMBER, got=show(text), wanted="decimal digits with a point, such as 12.5"), None
    if _CONTROL.search(text):
        return Reject(Reason.UNDECODED, got=show(text), wanted="text without control characters"), None
    return text, None


def _is_unit(text: str, *, spaced: bool) -> bool:
    """A unit after a space may be any short word; one glued to the digits must be known (`511AA` is an id)."""
    if not text:
        return True
    return text in _GLUED_UNITS or (spaced and len(text) <= 12 and _UNIT.fullmatch(text) is not None)


def _number(found: re.Match[str]) -> float | int | Reject:
    refused = Reject(Reason.BAD_NUMBER, got=show(found[0]), wanted="a number of a double's range")
    sign, digits, exponent = found[1], found[2], found[3] or ""
    if digits.isdigit() and not exponent:
        significant = digits.lstrip("0") or "0"
        return refused if len(significant) > 308 else int(sign + significant)
    number = float(sign + digits + exponent)
    return refused if abs(number) == float("inf") else number

"""RuuviTag advertisements relayed by a Ruuvi Gateway: `{"rssi", "ts", "data": hex}`, one tag per message.

The tag's MAC in the data (else the route's device) is the device. Every field has a pattern that means "not available":
it gives no reading. A tag sends each measurement several times, and several gateways hear it. The raw measurement with its
number is the message's identity, whenever and by whichever gateway it was heard. The number alone is not an identity: it
repeats after 65,535 measurements (a day or two).
Source: Ruuvi, "Data format 5 (RAWv2)"; Bluetooth core specification, advertising data.
"""

import struct
from typing import Final

from gateway.decoders.mapping.telegram import RADIO, TELEGRAM
from gateway.decoders.shape import Decoded, RouteMatch
from gateway.decoders.values import read_value, refuse_value
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import parse_json
from gateway.safe_text import show_value
from gateway.time_rules import check_plausible_time, read_time
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import Reason

__all__ = ["decode_ruuvi", "read_format_5"]

_TIMES: Final = ("ts", "gwts")
_MANUFACTURER_DATA: Final = 0xFF
_RUUVI: Final = b"\x99\x04"
_FORMAT_5: Final = struct.Struct(">hHHhhhHBH6s")
"""Fields after the format byte: temperature, humidity, pressure, acceleration x y z, power, movements, number, MAC."""
_NO_INT16, _NO_UINT16, _NO_UINT8 = -0x8000, 0xFFFF, 0xFF
_NO_VOLTAGE, _NO_TX_POWER = 0x7FF, 0x1F
_NO_MAC: Final = b"\xff" * 6
_MEASUREMENT_BYTES: Final = 17
"""Bytes of the format before the MAC, without the format byte: the measurement and its number."""


def decode_ruuvi(payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoded | Reject:
    """Decode one relayed advertisement; see `Decoder`. Data of another format leaves `rssi`, and is rejected by path."""
    document = parse_json(payload, max_bytes=limits.max_payload_bytes, max_depth=limits.max_json_depth)
    if isinstance(document, Reject):
        return document
    body = document.value
    if not isinstance(body, dict):
        return Reject(Reason.NOT_OBJECT, "$", show_value(body), "an object with `data` and `rssi`")
    time_us = _read_time(body, match, limits, received_us)
    if isinstance(time_us, Reject):
        return time_us
    decoded = Decoded(match.device, [], [], list(document.flags) or None, match.tags, None, None, [])
    refused = _add_data(decoded, body.get("data"), match)
    if refused is not None and refused.reason is Reason.IDENTITY_MISMATCH:
        return refused
    decoded.rejects += [] if refused is None else [refused]
    _add_rssi(decoded, body.get("rssi"), match)
    for reading in decoded.readings:
        reading.time_us = time_us
    return decoded


def _read_time(
    body: dict[str, object], match: RouteMatch, limits: GatewaySettings, received_us: int
) -> int | Reject | None:
    key = next((key for key in _TIMES if body.get(key) not in (None, "")), None)
    if key is None:
        return None
    at = read_time(body[key], f"$.{key}", match.zone)
    if isinstance(at, Reject):
        return at
    return check_plausible_time(at.us, received_us, limits.max_future_seconds, f"$.{key}") or at.us


def _add_data(decoded: Decoded, data: object, match: RouteMatch) -> Reject | None:
    """Add the readings of the advertisement, and name device and message after it."""
    if data is None or data == "":
        return None
    try:
        raw = bytes.fromhex(data) if isinstance(data, str) else b""
    except ValueError:
        raw = b""
    content = _manufacturer_data(raw)
    if content is None or content[:1] != b"\x05" or len(content) < 1 + _FORMAT_5.size:
        wanted = "hex of an advertisement with Ruuvi data format 5"
        return Reject(Reason.UNDECODED, "$.data", show_value(data), wanted)
    values, mac, number = read_format_5(content[1:])
    if mac is not None:
        if _is_other_mac(mac, match.device):
            return Reject(
                Reason.IDENTITY_MISMATCH, "$.data", f"data of {mac}", f"data of {match.device}, as in the topic"
            )
        decoded.device = mac
    if number is not None:
        decoded.message_id, decoded.id_kind = f"ruuvi5:{content[1 : 1 + _MEASUREMENT_BYTES].hex()}", TELEGRAM
    decoded.readings += [
        Reading(metric, value, None, match.units.get(metric) or unit) for metric, value, unit in values
    ]
    return None


def _add_rssi(decoded: Decoded, rssi: object, match: RouteMatch) -> None:
    if rssi is None:
        return
    unit = match.units.get("rssi", "dBm")
    no_number = isinstance(rssi, bool | str)
    reading = refuse_value(rssi, "$.rssi") if no_number else read_value("rssi", rssi, unit, "$.rssi")
    if isinstance(reading, Reject):
        decoded.rejects.append(reading)
    else:
        if decoded.message_id is not None:
            reading.message_id = f"{RADIO}:{decoded.message_id}"
        decoded.readings.append(reading)


def _manufacturer_data(advertisement: bytes) -> bytes | None:
    """Return Ruuvi's part of an advertisement, which is a row of length, type, content."""
    at = 0
    while at + 1 < len(advertisement):
        length = advertisement[at]
        content = advertisement[at + 2 : at + 1 + length]
        if advertisement[at + 1] == _MANUFACTURER_DATA and content.startswith(_RUUVI):
            return content[2:]
        at += 1 + length
    return None


def read_format_5(content: bytes) -> tuple[list[tuple[str, float, str | None]], str | None, int | None]:
    """Read the fields after the format byte, at least 23 bytes.

    Returns:
        (metric, value, unit) of every field that is available; MAC with colons; number of the measurement.
    """
    temperature, humidity, pressure, x, y, z, power, movements, number, mac = _FORMAT_5.unpack_from(content)
    voltage, tx_power = power >> 5, power & 0x1F
    fields: tuple[tuple[bool, str, float, str | None], ...] = (
        (temperature != _NO_INT16, "temperature", temperature / 200, "°C"),
        (humidity != _NO_UINT16, "humidity", humidity / 400, "%"),
        (pressure != _NO_UINT16, "pressure", float(pressure + 50_000), "Pa"),
        (x != _NO_INT16, "acceleration_x", x / 1000, "g"),
        (y != _NO_INT16, "acceleration_y", y / 1000, "g"),
        (z != _NO_INT16, "acceleration_z", z / 1000, "g"),
        (voltage != _NO_VOLTAGE, "voltage", (voltage + 1600) / 1000, "V"),
        (tx_power != _NO_TX_POWER, "tx_power", float(tx_power * 2 - 40), "dBm"),
        (movements != _NO_UINT8, "movement_counter", float(movements), None),
    )
    found = [(metric, value, unit) for available, metric, value, unit in fields if available]
    return found, None if mac == _NO_MAC else mac.hex(":").upper(), None if number == _NO_UINT16 else number


def _is_other_mac(mac: str, device: str) -> bool:
    """Return whether the topic names another tag; a device that is not a MAC is a name given by a person."""
    written = device.replace(":", "").replace("-", "").upper()
    is_mac = len(written) == 12 and not set(written) - set("0123456789ABCDEF")
    return is_mac and written != mac.replace(":", "")

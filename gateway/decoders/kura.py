"""Eclipse Kura and Kapua: metrics with names and types in one protobuf message, plain or in gzip.

The device is the route's (topics are `account/client/application/…`). The position gives `position.latitude` and so on.
The content of gzip has the limit of a payload, so that a small message cannot become a large one.
Source: kurapayload.proto of Eclipse Kapua.
"""

import base64
import math
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from gateway.decoders.protobuf import (
    BadProtobuf,
    Field,
    as_bytes,
    as_double,
    as_float,
    as_int,
    as_text,
    read_fields,
)
from gateway.decoders.shape import Decoded, RouteMatch
from gateway.decoders.values import read_value
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import BadNumber
from gateway.safe_text import show_text
from gateway.time_rules import check_plausible_time
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["decode_kura", "inflate_gzip"]

BODY_NOT_READ: Final = "body_not_read"
"""The message holds metrics, and also bytes whose meaning only its application knows."""
_TIMESTAMP, _POSITION, _METRIC, _BODY = 1, 2, 5000, 5001
_PAYLOAD_FIELDS: Final = frozenset({_TIMESTAMP, _POSITION, _METRIC, _BODY})
_NAME, _TYPE = 1, 2
_MAX_FIELDS: Final = 100
"""Most fields of a metric, of a position, and of a payload besides its metrics."""
_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_ONLY: Final = 16 + zlib.MAX_WBITS
_Value = float | int | bool | str
_TYPES: Final[dict[int, tuple[int, Callable[[Field], _Value]]]] = {
    0: (3, as_double),
    1: (4, as_float),
    2: (5, as_int),
    3: (6, lambda field: as_int(field, 32)),
    4: (7, lambda field: as_int(field) != 0),
    5: (8, as_text),
    6: (9, lambda field: base64.b64encode(as_bytes(field)).decode("ascii")),
}
"""ValueType to the number of its field, and the function that reads it; bytes become base64 text."""
_PLACE: Final[dict[int, tuple[str, str | None, Callable[[Field], _Value]]]] = {
    1: ("latitude", "°", as_double),
    2: ("longitude", "°", as_double),
    3: ("altitude", "m", as_double),
    4: ("precision", None, as_double),
    5: ("heading", "°", as_double),
    6: ("speed", "m/s", as_double),
    8: ("satellites", None, lambda field: as_int(field, 32)),
}


def decode_kura(payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoded | Reject:
    """Decode one Kura payload; see `Decoder`. Content in gzip has the limit of any payload."""
    if len(payload) > limits.max_payload_bytes:
        return Reject(Reason.TOO_LARGE, got=f"{len(payload)} bytes", wanted=f"at most {limits.max_payload_bytes} bytes")
    content = inflate_gzip(payload, limits.max_payload_bytes) if _is_gzip(payload) else payload
    if isinstance(content, Reject):
        return content
    try:
        return _read_payload(content, match, limits, received_us)
    except BadProtobuf as error:
        return Reject(Reason.UNDECODED, got=show_text(str(error)), wanted="a Kura payload in protobuf")


def _is_gzip(payload: bytes) -> bool:
    """Return whether this begins like gzip (RFC 1952); no protobuf message does: its first field would be of wire type 7."""
    return payload.startswith(_MAGIC)


def inflate_gzip(payload: bytes, max_bytes: int) -> bytes | Reject:
    """Return the content of gzip data with one member and a right checksum; more than `max_bytes` of it are never held."""
    unpacker = zlib.decompressobj(_GZIP_ONLY)
    try:
        content = unpacker.decompress(payload, max_bytes + 1)
    except zlib.error as error:
        return Reject(Reason.UNDECODED, got=f"gzip that cannot be unpacked: {error}"[:120], wanted="whole gzip data")
    if len(content) > max_bytes:
        return Reject(Reason.TOO_LARGE, got=f"gzip of more than {max_bytes} bytes", wanted=f"at most {max_bytes} bytes")
    if not unpacker.eof or unpacker.unused_data:
        got = "gzip that is cut off" if not unpacker.eof else "bytes after the end of the gzip data"
        return Reject(Reason.UNDECODED, got=got, wanted="whole gzip data")
    return content


def _read_payload(content: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoded | Reject:
    time_us, position, body = None, None, False
    metrics: list[Field] = []
    known = False
    for field in _few_fields(content, limits.max_readings_per_message + _MAX_FIELDS):
        known = known or field[0] in _PAYLOAD_FIELDS
        if field[0] == _TIMESTAMP:
            # 0 comes from an unset clock.
            time_us = as_int(field) * 1000 or None
        elif field[0] == _POSITION:
            position = as_bytes(field)
        elif field[0] == _METRIC:
            metrics.append(field)
            if len(metrics) > limits.max_readings_per_message:
                wanted = f"at most {limits.max_readings_per_message} readings in a message"
                return Reject(Reason.TOO_LARGE, "metric", "more metrics", wanted)
        body = body or field[0] == _BODY
    if not known:
        return Reject(Reason.UNDECODED, got="none of Kura's fields", wanted="a Kura payload in protobuf")
    if body and not metrics:
        return Reject(Reason.UNDECODED, "body", "bytes without metrics", "metrics: the meaning of the body is unknown")
    refused = time_us and check_plausible_time(time_us, received_us, limits.max_future_seconds, "timestamp")
    if refused:
        return refused
    readings = _Readings(match, time_us, [BODY_NOT_READ] if body else None)
    for index, metric in enumerate(metrics):
        readings.add_metric(metric, f"metric[{index}]")
    if position is not None:
        readings.add_position(position)
    return readings.decoded


def _few_fields(data: bytes, most: int) -> Iterator[Field]:
    """Yield the fields, of which Kura writes few; more would cost more time than a message may."""
    for count, field in enumerate(read_fields(data)):
        if count >= most:
            message = f"more than {most} fields"
            raise BadProtobuf(message)
        yield field


class _Readings:
    """Readings of one message; a fault of one metric affects only that metric."""

    def __init__(self, match: RouteMatch, time_us: int | None, flags: list[str] | None) -> None:
        self.decoded = Decoded(match.device, [], [], flags, match.tags, None, None, [])
        self._units, self._time_us = match.units, time_us
        self._seen: dict[str, int] = {}

    def add_metric(self, field: Field, path: str) -> None:
        """Add one `KuraMetric`."""
        try:
            fields = {each[0]: each for each in _few_fields(as_bytes(field), _MAX_FIELDS)}
            name = as_text(fields[_NAME]) if _NAME in fields else ""
            kind = as_int(fields[_TYPE]) if _TYPE in fields else None
            if kind not in _TYPES:
                got = "no type" if kind is None else f"type {kind}"
                self._refuse(Reason.WRONG_TYPE, path, got, "a type from 0 (double) to 6 (bytes)")
                return
            number, read = _TYPES[kind]
            if number in fields:
                self._add(name, read(fields[number]), None, path)
            else:
                self._refuse(Reason.MISSING_FIELD, path, "no value of its type", f"field {number}")
        except BadProtobuf as error:
            self._refuse(Reason.UNDECODED, path, show_text(str(error)), "a KuraMetric in protobuf")

    def add_position(self, content: bytes) -> None:
        """Add the content of the `KuraPosition`."""
        fields = {each[0]: each for each in _few_fields(content, _MAX_FIELDS)}
        for number, (name, unit, read) in _PLACE.items():
            if number in fields:
                self._add(f"position.{name}", read(fields[number]), unit, f"position.{name}")

    def _add(self, metric: str, value: _Value, unit: str | None, path: str) -> None:
        finite = not isinstance(value, float) or math.isfinite(value)
        given = value if finite else BadNumber(str(value))
        reading = read_value(metric, given, self._units.get(metric) or unit, path)
        if isinstance(reading, Reject):
            self.decoded.rejects.append(reading)
            return
        reading.time_us, reading.index = self._time_us, self._seen.get(metric, 0)
        self._seen[metric] = reading.index + 1
        self.decoded.readings.append(reading)

    def _refuse(self, reason: Reason, path: str, got: str, wanted: str) -> None:
        self.decoded.rejects.append(Reject(reason, path, got, wanted))

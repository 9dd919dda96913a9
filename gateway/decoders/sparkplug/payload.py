"""Sparkplug B payloads: the protobuf message `org.eclipse.tahu.protobuf.Payload` to metrics, and a rebirth request to bytes.

Values stay in wire form: their meaning depends on the datatype, which only the birth gives.
Source: Sparkplug 3.0.0, chapter 6 (payloads) and sparkplug_b.proto.
"""

import struct
import zlib
from itertools import islice
from typing import Final

import msgspec

from gateway.decoders.protobuf import WIRE_BYTES, WIRE_VARINT, BadProtobuf, Field, as_bytes, as_text, read_fields

__all__ = [
    "SparkplugMetric",
    "SparkplugPayload",
    "TooManyMetrics",
    "read_payload",
    "read_properties",
    "read_template",
    "rebirth_request",
]

_MAX_FIELDS: Final = 100
"""Most fields of a metric, and of a message besides its metrics."""
_MAX_PROPERTY_FIELDS: Final = 1000
_WIRES: Final = {10: 0, 11: 0, 12: 5, 13: 1, 14: 0, 15: 2, 16: 2, 17: 2, 18: 2}
"""Wire type of each field that holds a value."""
_ALIAS_TAG, _TIME_TAG, _DATATYPE_TAG = 0x10, 0x18, 0x20
_NUMBER_TAGS: Final = frozenset({_ALIAS_TAG, _TIME_TAG, _DATATYPE_TAG, 0x50, 0x58, 0x70})
"""Field number and wire type of the fields of data messages; the last three are int, long and boolean values."""
_ONE_BYTE: Final = 0x7F
_64_BITS: Final = 0xFFFF_FFFF_FFFF_FFFF
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_REAL_FORMS: Final = {0x65: _FLOAT, 0x69: _DOUBLE}
_COMPRESSED: Final = "SPBV1.0_COMPRESSED"
_SENT_TAG, _METRIC_TAG, _SEQ_TAG = 0x08, 0x12, 0x18
_PAYLOAD_TAGS: Final = frozenset({_SENT_TAG, _METRIC_TAG, _SEQ_TAG})


class TooManyMetrics(Exception):
    """A message has more metrics than allowed; holds that number."""


class SparkplugMetric(msgspec.Struct, gc=False):
    """One metric; None for a missing field. Times in epoch ms.

    `field` is the number of the field that holds the value (10 int, 11 long, 12 float, 13 double, 14 boolean,
    15 string, 16 bytes, 17 dataset, 18 template), 0 for none; `raw` is an unsigned integer, a float, or bytes.
    `traits` caches the parsed properties. `is_plain`: only alias, time, datatype and a number or boolean, as in usual
    data messages.
    """

    name: str | None = None
    alias: int | None = None
    time_ms: int | None = None
    datatype: int | None = None
    historical: bool = False
    transient: bool = False
    null: bool = False
    properties: bytes | None = None
    field: int = 0
    raw: int | float | bytes = 0
    is_plain: bool = True
    traits: tuple[str | None, list[str]] | None = None


class SparkplugPayload(msgspec.Struct, gc=False):
    """One message; `time_ms` is when it was sent by its sender's clock, `seq` (0-255) its place among the node's."""

    metrics: list[SparkplugMetric]
    time_ms: int | None = None
    seq: int | None = None


def read_payload(data: bytes, *, max_metrics: int, max_bytes: int) -> SparkplugPayload:
    """Read one payload; a compressed one (a body in zlib's or gzip's form) is inflated to at most `max_bytes`.

    Raises:
        BadProtobuf: these bytes are not a Sparkplug payload.
        TooManyMetrics: it has more than `max_metrics` metrics.
    """
    payload, rest = SparkplugPayload([]), []
    metrics = payload.metrics
    stamp = b""
    at, end = 0, len(data)
    try:
        while at < end:
            start, tag = at, data[at]
            if tag not in _PAYLOAD_TAGS:
                # Rare, and bounded by the rest: the generic reader takes over.
                rest = _read_short_fields(data[at:], max_metrics + _MAX_FIELDS)
                break
            number = data[at + 1]
            at += 2
            if number > _ONE_BYTE:
                number, at = _read_long_varint(data, at - 1)
            if tag == _METRIC_TAG:
                if len(metrics) >= max_metrics:
                    raise TooManyMetrics(max_metrics)
                metrics.append(_read_metric(data, at, at + number, stamp, payload.time_ms))
                at += number
            elif tag == _SENT_TAG:
                payload.time_ms = number
                stamp = b"\x18" + data[start + 1 : at]
            else:
                payload.seq = number
    except (IndexError, struct.error):
        at = end + 1
    if at > end:
        message = f"the payload is cut off at byte {end}"
        raise BadProtobuf(message)
    return _finish(payload, rest, max_metrics, max_bytes) if rest else payload


def _finish(payload: SparkplugPayload, rest: list[Field], max_metrics: int, max_bytes: int) -> SparkplugPayload:
    """Return the payload with the fields after a rare one; inflated if it is compressed."""
    uuid, body = None, None
    for field in rest:
        number = field[0]
        if number == 2:
            if len(payload.metrics) >= max_metrics:
                raise TooManyMetrics(max_metrics)
            data = as_bytes(field)
            payload.metrics.append(_read_whole_metric(data))
        elif number == 1:
            payload.time_ms = _as_number(field)
        elif number == 3:
            payload.seq = _as_number(field)
        elif number == 4:
            uuid = as_text(field)
        elif number == 5:
            body = as_bytes(field)
    if uuid != _COMPRESSED or body is None:
        return payload
    inner = read_payload(_inflate(body, max_bytes), max_metrics=max_metrics, max_bytes=0)
    inner.time_ms = payload.time_ms if inner.time_ms is None else inner.time_ms
    inner.seq = payload.seq if inner.seq is None else inner.seq
    return inner


def _inflate(body: bytes, max_bytes: int) -> bytes:
    """Inflate a body; both forms of the specification (DEFLATE and GZIP) are recognised by their header."""
    inflater = zlib.decompressobj(32 + zlib.MAX_WBITS)
    try:
        data = inflater.decompress(body, max_bytes + 1)
    except zlib.error as error:
        message = f"the compressed body cannot be inflated: {error}"
        raise BadProtobuf(message) from error
    if len(data) > max_bytes or not inflater.eof:
        message = f"the compressed body is cut off, or holds more than {max_bytes} bytes"
        raise BadProtobuf(message)
    return data


def _read_metric(data: bytes, at: int, end: int, stamp: bytes = b"", sent_ms: int | None = None) -> SparkplugMetric:
    """Read the metric from `at` to before `end`; a truncated one raises IndexError or struct.error.

    Usual fields are read here, the others one by one. Most metrics have the message's own time: `stamp` is its encoding in
    a metric, so it is not parsed again.
    """
    metric = SparkplugMetric()
    start = at
    while at < end:
        tag = data[at]
        if tag == _TIME_TAG and stamp and data.startswith(stamp, at):
            metric.time_ms = sent_ms
            at += len(stamp)
        elif tag in _NUMBER_TAGS:
            number = data[at + 1]
            at += 2
            if number > _ONE_BYTE:
                number, at = _read_long_varint(data, at - 1)
            if tag == _ALIAS_TAG:
                metric.alias = number
            elif tag == _TIME_TAG:
                metric.time_ms = number
            elif tag == _DATATYPE_TAG:
                metric.datatype = number
            else:
                metric.field, metric.raw = tag >> 3, number
        elif tag in _REAL_FORMS:
            form = _REAL_FORMS[tag]
            metric.field, metric.raw = tag >> 3, form.unpack_from(data, at + 1)[0]
            at += 1 + form.size
        else:
            metric.is_plain = False
            for field in _read_short_fields(data[at:end], _MAX_FIELDS):
                _take_field(metric, field)
            return metric
    if at > end:
        message = f"the metric at byte {start} is cut off at byte {end}"
        raise BadProtobuf(message)
    return metric


def _read_whole_metric(data: bytes) -> SparkplugMetric:
    """Read the metric that these bytes are; raises BadProtobuf if they are not one."""
    try:
        return _read_metric(data, 0, len(data))
    except (IndexError, struct.error):
        message = f"a metric is cut off at byte {len(data)}"
        raise BadProtobuf(message) from None


def _read_short_fields(data: bytes, most: int) -> list[Field]:
    """Read the fields, of which no sender writes many; more would cost more time than a message may."""
    fields = list(islice(read_fields(data), most + 1))
    if len(fields) > most:
        message = f"more than {most} fields"
        raise BadProtobuf(message)
    return fields


def _read_long_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of more than one byte at `at`, cut to 64 bits, and the place after it."""
    number = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        number |= (byte & _ONE_BYTE) << shift
        if byte <= _ONE_BYTE:
            return number & _64_BITS, at
        shift += 7
    message = f"the number before byte {at} is longer than 10 bytes"
    raise BadProtobuf(message)


def _take_field(metric: SparkplugMetric, field: Field) -> None:
    number, wire, value = field
    if number in _WIRES:
        if wire != _WIRES[number]:
            message = f"field {number} of a metric has wire type {wire}"
            raise BadProtobuf(message)
        metric.field = number
        metric.raw = value if wire in (0, 2) else _real(number, value)
    elif number == 1:
        metric.name = as_text(field)
    elif number == 2:
        metric.alias = _as_number(field)
    elif number == 3:
        metric.time_ms = _as_number(field)
    elif number == 4:
        metric.datatype = _as_number(field)
    elif number == 5:
        metric.historical = _as_number(field) != 0
    elif number == 6:
        metric.transient = _as_number(field) != 0
    elif number == 7:
        metric.null = _as_number(field) != 0
    elif number == 9:
        metric.properties = as_bytes(field)


def _as_number(field: Field) -> int:
    """Return an unsigned number; raises BadProtobuf if the field is not one."""
    number, wire, value = field
    if wire != WIRE_VARINT or not isinstance(value, int):
        message = f"field {number} has wire type {wire}, but a number was wanted"
        raise BadProtobuf(message)
    return value


def _real(number: int, value: int | bytes) -> float:
    form = _FLOAT if number == 12 else _DOUBLE
    found: float = form.unpack(value)[0]  # type: ignore[arg-type]
    return found


def read_template(data: bytes, *, max_metrics: int) -> list[SparkplugMetric] | None:
    """Return the members of a template instance; None for a definition, which holds no values.

    Raises:
        BadProtobuf: these bytes are not a template.
        TooManyMetrics: it has more than `max_metrics` members.
    """
    members: list[SparkplugMetric] = []
    for field in _read_short_fields(data, max_metrics + _MAX_FIELDS):
        if field[0] == 2:
            if len(members) >= max_metrics:
                raise TooManyMetrics(max_metrics)
            members.append(_read_whole_metric(as_bytes(field)))
        elif field[0] == 5 and _as_number(field):
            return None
    return members


def read_properties(data: bytes, wanted: tuple[str, ...]) -> dict[str, str | int]:
    """Return the properties of these names that are texts or integers.

    Raises:
        BadProtobuf: these bytes are not a property set.
    """
    keys: list[str] = []
    values: list[bytes] = []
    for field in _read_short_fields(data, _MAX_PROPERTY_FIELDS):
        if field[0] == 1:
            keys.append(as_text(field))
        elif field[0] == 2:
            values.append(as_bytes(field))
    found: dict[str, str | int] = {}
    for key, value in zip(keys, values, strict=False):
        if key in wanted:
            for field in _read_short_fields(value, _MAX_FIELDS):
                if field[0] in (3, 4) and isinstance(field[2], int):
                    found[key] = field[2]
                elif field[0] == 8 and field[1] == WIRE_BYTES:
                    found[key] = as_text(field)
    return found


def rebirth_request(time_ms: int) -> bytes:
    """Return the payload of an NCMD that asks an edge node to send its births again.

    Source: Sparkplug 3.0.0, tck-id-operational-behavior-data-commands-ncmd-rebirth-*: no seq, a Boolean metric, true.
    """
    name = b"Node Control/Rebirth"
    at = _varint(time_ms)
    metric = b"\x0a" + bytes([len(name)]) + name + b"\x18" + at + b"\x20\x0b\x70\x01"
    return b"\x08" + at + b"\x12" + bytes([len(metric)]) + metric


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)

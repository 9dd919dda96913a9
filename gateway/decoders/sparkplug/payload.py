"""Sparkplug B payload bytes to metrics: the protobuf message `org.eclipse.tahu.protobuf.Payload`, and a rebirth request.

Source: Sparkplug 3.0.0, chapter 6 (payloads) and sparkplug_b.proto.
"""

import struct
import zlib
from typing import Final

import msgspec

from gateway.decoders.protobuf import BadProtobuf, Field, as_bytes, as_text
from gateway.decoders.sparkplug.metric import (
    MAX_FIELDS,
    SparkplugMetric,
    TooManyMetrics,
    as_number,
    read_long_varint,
    read_metric,
    read_short_fields,
    read_whole_metric,
)

__all__ = ["SparkplugPayload", "read_payload", "rebirth_request"]

_COMPRESSED: Final = "SPBV1.0_COMPRESSED"
_TIME_TAG, _METRIC_TAG, _SEQ_TAG = 0x08, 0x12, 0x18
_PAYLOAD_TAGS: Final = frozenset({_TIME_TAG, _METRIC_TAG, _SEQ_TAG})
_ONE_BYTE: Final = 0x7F


class SparkplugPayload(msgspec.Struct, gc=False):
    """One message; `time_ms` is when it was sent by its sender's clock, `seq` (0-255) its place among the node's."""

    metrics: list[SparkplugMetric]
    time_ms: int | None = None
    seq: int | None = None


def read_payload(data: bytes, *, max_metrics: int, max_bytes: int) -> SparkplugPayload:
    """Read one payload; a compressed one (a body in zlib's or gzip's form) is inflated to at most `max_bytes`.

    Raises:
        BadProtobuf: these bytes are not a Sparkplug payload.
        TooMany: it has more than `max_metrics` metrics.
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
                rest = read_short_fields(data[at:], max_metrics + MAX_FIELDS)
                break
            number = data[at + 1]
            at += 2
            if number > _ONE_BYTE:
                number, at = read_long_varint(data, at - 1)
            if tag == _METRIC_TAG:
                if len(metrics) >= max_metrics:
                    raise TooManyMetrics(max_metrics)
                metrics.append(read_metric(data, at, at + number, stamp, payload.time_ms))
                at += number
            elif tag == _TIME_TAG:
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
            payload.metrics.append(read_whole_metric(data))
        elif number == 1:
            payload.time_ms = as_number(field)
        elif number == 3:
            payload.seq = as_number(field)
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

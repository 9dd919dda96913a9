"""Writes Sparkplug B payloads for tests, apart from the reader that they test."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from gateway.decoders.shape import Decoded, Ignored, RouteMatch
from gateway.decoders.sparkplug.decoder import SparkplugDecoder
from gateway.decoders.state import DecoderState
from gateway.gateway_settings import GatewaySettings
from ingest.contract.dead_letter import Reject

T = 1_750_000_000_000
NOW_US = (T + 60_000) * 1000

FIELDS = {"int": 10, "long": 11, "float": 12, "double": 13, "boolean": 14, "string": 15, "bytes": 16, "dataset": 17}


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def properties(values: dict[str, str | int]) -> bytes:
    keys = b"".join(block(1, key.encode()) for key in values)
    items = (
        number(1, 12) + block(8, value.encode()) if isinstance(value, str) else number(1, 3) + number(3, value)
        for value in values.values()
    )
    return keys + b"".join(block(2, item) for item in items)


def metric(spec: dict[str, Any]) -> bytes:
    """`{name, alias, time_ms, datatype, historical, transient, null, properties, template, VALUE}`, VALUE one of FIELDS."""
    out = block(1, spec["name"].encode()) if "name" in spec else b""
    for key, field in (("alias", 2), ("time_ms", 3), ("datatype", 4), ("historical", 5), ("transient", 6), ("null", 7)):
        if key in spec:
            out += number(field, int(spec[key]))
    if "properties" in spec:
        out += block(9, properties(spec["properties"]))
    if "template" in spec:
        out += block(18, template(spec["template"]))
    for key, field in FIELDS.items():
        if key in spec:
            out += value(field, spec[key])
    return out


def value(field: int, content: Any) -> bytes:
    if field == 12:
        return varint(12 << 3 | 5) + struct.pack("<f", content)
    if field == 13:
        return varint(13 << 3 | 1) + struct.pack("<d", content)
    if field <= 14:
        return number(field, int(content))
    return block(field, content.encode() if isinstance(content, str) else content)


def template(spec: dict[str, Any]) -> bytes:
    out = b"".join(block(2, metric(member)) for member in spec.get("metrics", ()))
    return out + (number(5, 1) if spec.get("definition") else b"")


def payload(metrics: list[dict[str, Any]], *, time_ms: int | None = None, seq: int | None = None) -> bytes:
    out = b"" if time_ms is None else number(1, time_ms)
    out += b"".join(block(2, metric(spec)) for spec in metrics)
    return out if seq is None else out + number(3, seq)


class Host:
    """One gateway's decoder, with the state that it leaves."""

    def __init__(self, state: DecoderState | None = None, **limits: int) -> None:
        self.state = state or DecoderState()
        self.decoder = SparkplugDecoder(self.state)
        self.encode, self.limits = payload, GatewaySettings(**limits)

    def raw(self, topic: str, payload: bytes, *, now_us: int = NOW_US) -> Decoded | Reject | Ignored:
        full = topic if topic.startswith("STATE") else f"spBv1.0/{topic}"
        match = RouteMatch("sparkplug", full.rpartition("/")[0], "", topic=full)
        return self.decoder(payload, match, self.limits, now_us)

    def send(
        self, topic: str, metrics: list[dict[str, Any]], *, seq: int | None = 0, at: int = T, now_us: int = NOW_US
    ) -> Decoded:
        decoded = self.raw(topic, self.encode(metrics, time_ms=at, seq=seq), now_us=now_us)
        assert isinstance(decoded, Decoded), decoded
        return decoded


@pytest.fixture(scope="session")
def new_sparkplug_host() -> Callable[..., Host]:
    """`new_sparkplug_host(state, **limits)`: a gateway's decoder; its `send(topic, metrics, seq=…, at=…)` decodes one."""
    return Host


@pytest.fixture
def sparkplug_host() -> Host:
    return Host()


@pytest.fixture(scope="session")
def sparkplug() -> Callable[..., bytes]:
    """`sparkplug([{metric}, …], time_ms=…, seq=…)` is one payload; see `metric`."""
    return payload

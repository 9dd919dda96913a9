"""Kura payloads, as they are and in gzip; bombs and bytes that are none."""

import base64
import gzip
import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoders.kura import decode_kura, inflate_gzip
from gateway.decoders.shape import Decoded, RouteMatch
from gateway.gateway_settings import GatewaySettings
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

NOW_US = 1_800_000_000_000_000
MATCH = RouteMatch("kura", "gw-1", "data", units={"temperature": "°C"})
LIMITS = GatewaySettings()


def varint(number: int) -> bytes:
    out = bytearray()
    number &= 2**64 - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def metric(name: str, kind: int, value: bytes) -> bytes:
    return block(5000, block(1, name.encode()) + number(2, kind) + value)


def decode(payload: bytes, limits: GatewaySettings = LIMITS) -> Decoded:
    decoded = decode_kura(payload, MATCH, limits, NOW_US)
    assert isinstance(decoded, Decoded), decoded
    return decoded


def refused(payload: bytes, limits: GatewaySettings = LIMITS) -> Reject:
    decoded = decode_kura(payload, MATCH, limits, NOW_US)
    assert isinstance(decoded, Reject), decoded
    return decoded


ALL_TYPES = (
    number(1, 1_700_000_000_123)
    + metric("temperature", 0, double(3, 0.0))
    + metric("level", 1, varint(4 << 3 | 5) + struct.pack("<f", 0.5))
    + metric("big", 2, number(5, -(2**53) - 1))
    + metric("code", 3, number(6, -3))
    + metric("code32", 3, number(6, 2**32 - 3))
    + metric("fan", 4, number(7, 0))
    + metric("label", 5, block(8, "zwölf".encode()))
    + metric("raw", 6, block(9, b"\xff\x00"))
)
WANTED = [
    ("temperature", 0.0, None, "°C"), ("level", 0.5, None, None),
    ("big", -9007199254740992.0, "-9007199254740993", None), ("code", -3.0, None, None), ("code32", -3.0, None, None),
    ("fan", 0.0, "false", None), ("label", None, "zwölf", None), ("raw", None, "/wA=", None),
]  # fmt: skip


@pytest.mark.parametrize("payload", [ALL_TYPES, gzip.compress(ALL_TYPES)], ids=["plain", "gzip"])
def test_every_type_of_metric_is_a_reading(payload: bytes) -> None:
    decoded = decode(payload)
    assert [(x.metric, x.value, x.text, x.unit) for x in decoded.readings] == WANTED
    assert {reading.time_us for reading in decoded.readings} == {1_700_000_000_123_000}
    assert (decoded.device, decoded.rejects) == ("gw-1", [])


def test_the_position_has_units_of_its_own() -> None:
    decoded = decode(block(2, double(1, 46.25) + double(2, -13.5) + double(6, 2.0) + number(7, 5) + number(8, 9)))
    assert [(x.metric, x.value, x.unit, x.time_us) for x in decoded.readings] == [
        ("position.latitude", 46.25, "°", None), ("position.longitude", -13.5, "°", None),
        ("position.speed", 2.0, "m/s", None), ("position.satellites", 9.0, None, None),
    ]  # fmt: skip


def test_a_real_gateways_payload_is_read_whole() -> None:
    """Bytes as the shared example payloads have them: where the position stands is not ours to decide."""
    payload = base64.b64decode(
        "CIDQlf+8MRIbCW399J81PyRAEQUWwJSBpzTAGQAAAAAAAD9AwrgCGAoLdGVtcGVyYXR1cmUQABkAAAAAAIA0QMK4AhgKCWVycm9yQ29kZRAD"
        "MP3//////////wE="
    )
    decoded = decode(payload)
    assert [(x.metric, x.unit) for x in decoded.readings] == [
        ("temperature", "°C"), ("errorCode", None),
        ("position.latitude", "°"), ("position.longitude", "°"), ("position.altitude", "m"),
    ]  # fmt: skip
    assert [round(x.value or 0, 6) for x in decoded.readings] == [20.5, -3.0, 10.123456, -20.654321, 31.0]


def test_a_metric_that_stands_twice_is_kept_twice() -> None:
    decoded = decode(metric("a", 0, double(3, 1.0)) + metric("b", 0, double(3, 2.0)) + metric("a", 0, double(3, 3.0)))
    assert [(x.metric, x.value, x.index) for x in decoded.readings] == [("a", 1.0, 0), ("b", 2.0, 0), ("a", 3.0, 1)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (metric("x", 0, double(3, float("nan"))), Reason.BAD_NUMBER),
        (metric("x", 7, b""), Reason.WRONG_TYPE),
        (block(5000, block(1, b"x")), Reason.WRONG_TYPE),
        (metric("x", 0, number(5, 1)), Reason.MISSING_FIELD),
        (metric("x", 0, number(3, 1)), Reason.UNDECODED),
        (metric("x", 5, block(8, b"\xff")), Reason.UNDECODED),
        (metric("", 0, double(3, 1.0)), Reason.OUT_OF_RANGE),
        (block(5000, b"\x0a\x7f"), Reason.UNDECODED),
        (block(5000, number(2, 0) * 101), Reason.UNDECODED),
    ],
)
def test_a_bad_metric_costs_itself(bad: bytes, reason: Reason) -> None:
    decoded = decode(bad + metric("good", 0, double(3, 1.0)))
    assert [reading.metric for reading in decoded.readings] == ["good"]
    assert [(fault.reason, fault.path) for fault in decoded.rejects] == [(reason, "metric[0]")]


@pytest.mark.parametrize(
    ("time", "reason"),
    [(1000, Reason.TS_TOO_OLD), (-5, Reason.TS_TOO_OLD), (4_000_000_000_000, Reason.TS_TOO_FAR_FUTURE)],
)
def test_a_time_that_cannot_be_refuses_the_message(time: int, reason: Reason) -> None:
    assert refused(number(1, time) + metric("a", 0, double(3, 1.0))).reason is reason


def test_an_unset_time_is_the_receive_time() -> None:
    assert decode(number(1, 0) + metric("a", 0, double(3, 1.0))).readings[0].time_us is None


def test_a_body_beside_metrics_is_told_and_alone_is_undecoded() -> None:
    assert decode(block(5001, b"?") + metric("a", 0, double(3, 1.0))).flags == ["body_not_read"]
    assert refused(block(5001, b"?")).reason is Reason.UNDECODED


@pytest.mark.parametrize(
    "payload",
    [
        b"21.5", b"hello", b"{}", b"\x08", number(77, 1), number(2, 1), block(1, b""),
        gzip.compress(ALL_TYPES)[:-1], gzip.compress(ALL_TYPES) + b"x", b"\x1f\x8b\x08", b"\x1f\x8b\x08" + b"\xff" * 30,
        gzip.compress(b"hello"), number(78, 1) * 20_000,
    ],
)  # fmt: skip
def test_what_is_no_kura_payload_is_undecoded(payload: bytes) -> None:
    assert refused(payload).reason is Reason.UNDECODED


def test_a_changed_checksum_is_noticed() -> None:
    packed = bytearray(gzip.compress(ALL_TYPES))
    packed[-5] ^= 1
    assert refused(bytes(packed)).reason is Reason.UNDECODED


def test_more_metrics_or_bytes_than_allowed_are_refused() -> None:
    one = metric("a", 0, double(3, 1.0))
    assert refused(one * 3, GatewaySettings(max_readings_per_message=2)).reason is Reason.TOO_LARGE
    assert refused(one * 10, GatewaySettings(max_payload_bytes=64)).reason is Reason.TOO_LARGE


def test_a_decompression_bomb_is_refused_without_unpacking_it() -> None:
    bomb = gzip.compress(b"\0" * 100_000_000)
    assert len(bomb) < LIMITS.max_payload_bytes
    tracemalloc.start()
    try:
        fault = refused(bomb)
        assert tracemalloc.get_traced_memory()[1] < 4 * LIMITS.max_payload_bytes
    finally:
        tracemalloc.stop()
    assert (fault.reason, fault.got) == (Reason.TOO_LARGE, "gzip of more than 262144 bytes")


@given(st.binary(max_size=2000), st.integers(0, 2000))
def test_what_was_packed_is_unpacked_up_to_the_limit(content: bytes, limit: int) -> None:
    found = inflate_gzip(gzip.compress(content), limit)
    assert found == content if len(content) <= limit else isinstance(found, Reject)


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x1f\x8b\x08\x00", ALL_TYPES, ALL_TYPES[:40]]))
def test_random_bytes_have_an_outcome(data: bytes, head: bytes) -> None:
    for payload in (head + data, gzip.compress(head + data), zlib.compress(head + data)):
        decoded = decode_kura(payload, MATCH, LIMITS, NOW_US)
        assert isinstance(decoded, Reject) or all(x.value is not None or x.text is not None for x in decoded.readings)

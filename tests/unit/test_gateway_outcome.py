"""Every class of bad input to its one outcome; nothing a device sends raises."""

import base64
import hashlib
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoders import registry
from gateway.outcome import MAX_PARTS, Gate, Message, Outcome, shrink
from gateway.routes import compile_routes
from gateway.settings import GatewaySettings, RouteSettings
from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS

NATIVE = b"tidegate/v1/dev-1/readings"
NOW_US = 1_764_331_200_000_000
LIMITS = GatewaySettings()
ROUTES = (
    RouteSettings(filter="site/#", zone="Europe/Berlin", units={"temperature": "°C"}),
    RouteSettings(filter="j/#", decoder="json"),
    RouteSettings(filter="p/#", decoder="plain"),
)


def decide(topic: bytes, payload: bytes, limits: GatewaySettings = LIMITS, **envelope: Any) -> Outcome:
    message = Message(7, 1000, NOW_US, topic, payload, **envelope)
    return Gate(compile_routes(ROUTES), limits).decide(message)


def record_of(outcome: Outcome) -> ReadingRecord:
    assert outcome.accepted, letters_of(outcome)
    assert outcome.records[0].topic == READINGS
    return decode_record(outcome.records[0].value)


def letters_of(outcome: Outcome) -> list[DeadLetterRecord]:
    return [decode_dead_letter(record.value) for record in outcome.records if record.topic == DEAD_LETTERS]


def stored(outcome: Outcome) -> dict[str, Any]:
    return {r.metric: r.value if r.text is None else r.text for r in record_of(outcome).readings}


def native(values: object = None, **fields: object) -> bytes:
    return json.dumps({"values": {"temp": 21.5} if values is None else values, **fields}).encode()


# The native format: messages refused as a whole.


@pytest.mark.parametrize(
    ("payload", "reason", "path"),
    [
        pytest.param(b" ", "bad_json", None, id="B2"),
        pytest.param(b'{"values":', "bad_json", None, id="B3"),
        pytest.param(native() + native(), "bad_json", None, id="B5"),
        pytest.param(b"[" * 100_000, "too_deep", "$", id="B15"),
        pytest.param(b"5", "not_object", "$", id="B14 scalar"),
        pytest.param(b"null", "not_object", "$", id="B14 null"),
        pytest.param(b'"text"', "not_object", "$", id="B14 text"),
        pytest.param(b"\x08\x96\x01", "bad_encoding", None, id="B23 protobuf"),
        pytest.param(native(seq=1.5), "wrong_type", "$.seq", id="B38"),
        pytest.param(native(seq="7"), "wrong_type", "$.seq", id="seq text"),
        pytest.param(native(seq=True), "wrong_type", "$.seq", id="seq bool"),
        pytest.param(native(seq=-1), "out_of_range", "$.seq", id="B39"),
        pytest.param(native(seq=2**63), "out_of_range", "$.seq", id="B30 seq"),
        pytest.param(native(seq=2**63 - 1), "out_of_range", "$.seq", id="seq without a next one"),
        pytest.param(native(boot=2**63 - 1, seq=1), "out_of_range", "$.boot", id="boot without a next one"),
        pytest.param(native(boot=-1), "out_of_range", "$.boot", id="boot"),
        pytest.param(b'{"seq":NaN,"values":{"a":1}}', "bad_number", "$.seq", id="seq NaN"),
        pytest.param(native(ts=0), "ts_too_old", "$.ts", id="B45"),
        pytest.param(native(ts=-5), "ts_too_old", "$.ts", id="B46"),
        pytest.param(native(ts=NOW_US // 1_000_000), "ts_too_old", "$.ts", id="B44 seconds"),
        pytest.param(native(ts=NOW_US // 1000 + 86_400_000), "ts_too_far_future", "$.ts", id="B47"),
        pytest.param(native(ts=10**18), "ts_too_far_future", "$.ts", id="B48"),
        pytest.param(native(ts=1.5), "wrong_type", "$.ts", id="ts float"),
        pytest.param(native(ts=True), "wrong_type", "$.ts", id="ts bool"),
        pytest.param(native(ts="2025-11-28T12:00:00"), "ambiguous_time", "$.ts", id="B49"),
        pytest.param(native(ts="2025-02-30T00:00:00Z"), "bad_timestamp", "$.ts", id="B53"),
        pytest.param(b'{"ts":NaN,"values":{"a":1}}', "bad_number", "$.ts", id="ts NaN"),
        pytest.param(b'{"ts":1764331200000}', "missing_field", "$.values", id="B84"),
        pytest.param(b"{}", "missing_field", "$.values", id="B84 empty"),
        pytest.param(b'{"values":null}', "wrong_type", "$.values", id="values null"),
        pytest.param(b'{"values":[1]}', "wrong_type", "$.values", id="values list"),
        pytest.param(native({"temp": None}), "wrong_type", "$.values.temp", id="B36 alone"),
        pytest.param(b'{"values":{"t":NaN}}', "bad_number", "$.values.t", id="B25 alone"),
        pytest.param(b"[5]", "not_object", "$[0]", id="item no object"),
        pytest.param(native({f"m{n}": 1 for n in range(10_001)}), "too_large", "$", id="B87"),
        pytest.param(b"[" + b",".join([b'{"values":{}}'] * 10_001) + b"]", "too_large", "$", id="B87 batch"),
    ],
)
def test_native_messages_refused_as_a_whole(payload: bytes, reason: str, path: str | None) -> None:
    outcome = decide(NATIVE, payload)
    assert not outcome.accepted
    assert outcome.rejected == reason
    [letter] = letters_of(outcome)
    assert (letter.reason, letter.path, letter.partial) == (reason, path, False)
    assert base64.b64decode(letter.payload_base64) == payload
    assert letter.wanted


# The native format: a bad part costs itself.


@pytest.mark.parametrize(
    ("bad", "reason", "path"),
    [
        pytest.param("NaN", "bad_number", "$.values.bad", id="B25"),
        pytest.param("-Infinity", "bad_number", "$.values.bad", id="B26"),
        pytest.param("1e400", "bad_number", "$.values.bad", id="B27"),
        pytest.param("9" * 310, "bad_number", "$.values.bad", id="B31 310"),
        pytest.param("1" * 5000, "bad_number", "$.values.bad", id="B31"),
        pytest.param("null", "wrong_type", "$.values.bad", id="B36"),
        pytest.param("[1]", "wrong_type", "$.values.bad", id="list"),
        pytest.param('{"x":1}', "missing_field", "$.values.bad.value", id="B85"),
        pytest.param('{"value":null}', "wrong_type", "$.values.bad.value", id="quantity null"),
        pytest.param('{"value":NaN,"unit":"C"}', "bad_number", "$.values.bad.value", id="quantity NaN"),
        pytest.param('{"value":1,"unit":5}', "wrong_type", "$.values.bad.unit", id="unit number"),
    ],
)
def test_a_bad_field_among_good_ones_is_a_partial_dead_letter(bad: str, reason: str, path: str) -> None:
    payload = b'{"boot":1,"seq":2,"values":{"good":1.5,"bad":' + bad.encode() + b',"also":true}}'
    outcome = decide(NATIVE, payload)
    assert stored(outcome) == {"good": 1.5, "also": "true"}
    [letter] = letters_of(outcome)
    assert (letter.reason, letter.path, letter.partial, letter.device) == (reason, path, True, "dev-1")
    assert outcome.parts == [reason]
    assert base64.b64decode(letter.payload_base64) == payload


@pytest.mark.parametrize(
    "key", ["\0", "a\nb", "", "k" * 65536, "\x1b[31m"], ids=["B12", "newline", "empty", "B17", "B68"]
)
def test_a_metric_name_that_is_none_costs_its_field(key: str) -> None:
    outcome = decide(NATIVE, native({key: 1, "good": 2}))
    assert stored(outcome) == {"good": 2.0}
    [letter] = letters_of(outcome)
    assert letter.reason == "out_of_range"
    assert letter.path is not None
    assert len(letter.path) <= 120


def test_one_bad_item_of_a_hundred() -> None:
    items: list[object] = [{"boot": 1, "seq": n, "values": {"temp": n}} for n in range(100)]
    items[3] = {"boot": 1, "seq": 3, "values": {"temp": None}}
    items[5] = "no object"
    items[7] = {"boot": 1, "seq": 7, "ts": 0, "values": {"temp": 1}}
    outcome = decide(NATIVE, json.dumps(items).encode())
    assert outcome.readings == 97
    assert {(letter.path, letter.reason.value) for letter in letters_of(outcome)} == {
        ("$[3].values.temp", "wrong_type"),
        ("$[5]", "not_object"),
        ("$[7].ts", "ts_too_old"),
    }
    assert len(outcome.sequence) == 99, "the number of a refused item is no gap"


# The native format: what is kept.


def test_the_record_carries_envelope_identity_and_time() -> None:
    payload = native(
        {"t": 21.5, "n": 7, "on": False, "mode": "eco", "p": {"value": 3, "unit": "hPa"}},
        ts=1764331199123,
        boot=17,
        seq=4,
        extra={"kept": "out"},
    )
    outcome = decide(NATIVE, payload, qos=1, dup=True, trace=f"00-{'a' * 32}-{'b' * 16}-01")
    record = record_of(outcome)
    assert outcome.records[0].key == b"dev-1"
    assert (record.v, record.gateway, record.epoch, record.number) == (1, "gw-1", 1000, 7)
    assert (record.received_us, record.topic, record.device, record.dup) == (NOW_US, NATIVE.decode(), "dev-1", True)
    assert (record.message_id, record.boot, record.seq, record.flags) == ("bs:17:4", 17, 4, None)
    assert record.trace == f"00-{'a' * 32}-{'b' * 16}-01"
    assert stored(outcome) == {"t": 21.5, "n": 7.0, "on": "false", "mode": "eco", "p": 3.0}
    assert [r.unit for r in record.readings] == [None, None, None, None, "hPa"]
    assert {r.time_us for r in record.readings} == {1764331199123000}
    assert outcome.sequence == [(17, 4)]


@pytest.mark.parametrize(
    ("value", "double", "text", "flag"),
    [
        (2**53, float(2**53), None, None),
        (2**53 + 1, float(2**53), "9007199254740993", "beyond_double"),
        (-(2**63) - 1, -(2.0**63), "-9223372036854775809", "beyond_double"),
        (2**64 - 1, 2.0**64, "18446744073709551615", "beyond_double"),
        (-0.0, -0.0, None, None),
        ("12.5", None, "12.5", None),
        ("", None, "", None),
        ("\0 kept", None, "\0 kept", None),
        ("'; DROP TABLE readings; --${7*7}", None, "'; DROP TABLE readings; --${7*7}", None),
    ],
)
def test_values_are_kept_exactly(value: object, double: float | None, text: str | None, flag: str | None) -> None:
    [reading] = record_of(decide(NATIVE, native({"m": value}))).readings
    assert (reading.value, reading.text) == (double, text)
    assert reading.flags == (None if flag is None else [flag])


def test_flags_of_the_whole_message() -> None:
    assert record_of(decide(NATIVE, b'{"values":{"a":1,"a":2}}')).flags == ["duplicate_key", "no_identity"]
    assert record_of(decide(NATIVE, b'{"boot":1,"seq":1,"values":{"a":1e-400}}')).flags == ["underflow"]
    twins = stored(decide(NATIVE, '{"values":{"A":1,"a":2,"\u00e9":3,"e\u0301":4}}'.encode()))
    assert len(twins) == 4, "B21, B22: names are kept as sent, never folded"


def test_identity_by_boot_and_seq_then_property_then_retain_then_none() -> None:
    assert record_of(decide(NATIVE, native(boot=1, seq=2), message_id="x", retain=True)).message_id == "bs:1:2"
    assert record_of(decide(NATIVE, native(), message_id="x", retain=True)).message_id == "mp:x"
    long = record_of(decide(NATIVE, native(), message_id="x" * 5000)).message_id
    assert long is not None
    assert len(long) < 100
    digest = hashlib.sha256(NATIVE + b"\0" + native()).hexdigest()[:32]
    assert record_of(decide(NATIVE, native(), retain=True)).message_id == f"rt:{digest}"
    nothing = record_of(decide(NATIVE, native(seq=5)))
    assert (nothing.message_id, nothing.flags) == (None, ["no_identity"])
    assert record_of(decide(NATIVE, native(), trace="nonsense\n")).trace is None


def test_a_batch_identifies_each_item() -> None:
    items = [{"boot": 1, "seq": 8, "values": {"t": 1}}, {"values": {"t": 2}}, {"boot": 1, "seq": 9, "values": {"t": 3}}]
    record = record_of(decide(NATIVE, json.dumps(items).encode()))
    assert [(r.message_id, r.index, r.seq) for r in record.readings] == [
        ("bs:1:8", 0, 8),
        (None, 1, None),
        ("bs:1:9", 0, 9),
    ]
    assert (record.message_id, record.flags) == (None, ["no_identity"])
    numbered = record_of(decide(NATIVE, json.dumps([items[0], items[2]]).encode()))
    assert numbered.flags is None


def test_items_of_a_batch_with_the_same_counters_are_told_apart() -> None:
    items = [{"boot": 1, "seq": seq, "values": {"t": value}} for seq, value in ((8, 1), (9, 2), (8, 3), (8, 4))]
    record = record_of(decide(NATIVE, json.dumps(items).encode()))
    assert [(r.message_id, r.index, r.value) for r in record.readings] == [
        ("bs:1:8", 0, 1.0),
        ("bs:1:9", 0, 2.0),
        ("bs:1:8", 1, 3.0),
        ("bs:1:8", 2, 4.0),
    ]


def test_the_largest_counter_that_has_a_next_one_is_kept() -> None:
    assert record_of(decide(NATIVE, native(boot=1, seq=2**63 - 2))).seq == 2**63 - 2


def test_the_same_time_with_another_number_is_another_reading() -> None:
    first, second = (record_of(decide(NATIVE, native(ts=NOW_US // 1000, boot=1, seq=n))) for n in (1, 2))
    assert first.message_id != second.message_id


# Topics and routes.


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        pytest.param(b"tidegate/v1//readings", "bad_device_id", id="B58"),
        pytest.param(b"tidegate/v1/" + b"d" * 257 + b"/readings", "bad_device_id", id="B59"),
        pytest.param(b"tidegate/v1/" + b"d" * 65_000 + b"/readings", "bad_device_id", id="B59 65k"),
        pytest.param(b"tidegate/v1/a\nb/readings", "bad_device_id", id="B60"),
        pytest.param(b"tidegate/v1/a\0b/readings", "bad_device_id", id="B60 NUL"),
        pytest.param(b"a/" * 100, "no_route", id="B63 depth"),
        pytest.param(b"x" * 65_535, "no_route", id="B63 length"),
        pytest.param(b"tidegate/v1/\xff\xfe/readings", "bad_encoding", id="B64"),
        pytest.param(b"unknown/kind", "no_route", id="B65"),
        pytest.param(b"$share/g/site/x", "no_route", id="B62 share"),
        pytest.param(b"", "no_route", id="empty"),
    ],
)
def test_topics_that_are_refused(topic: bytes, reason: str) -> None:
    outcome = decide(topic, native())
    assert outcome.rejected == reason
    assert outcome.device is None
    [letter] = letters_of(outcome)
    assert base64.b64decode(letter.payload_base64) == native()
    assert len(outcome.records[0].key) <= 1024


@pytest.mark.parametrize("device", ["1", "d" * 256, "a b", "🌊", "..", "%2f", "ж", "\u202ex", "${x}", "=cmd()"])
def test_devices_that_are_kept_as_sent(device: str) -> None:
    assert record_of(decide(f"tidegate/v1/{device}/readings".encode(), native())).device == device


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        (NATIVE, b"", "empty_payload"),
        (b"site/room1/temperature", b"", "empty_payload"),
        (NATIVE, b'{"values":{}}', "no_value"),
        (NATIVE, b"[]", "no_value"),
        (b"site/a/b", b"{}", "no_value"),
        (b"site/a/b", b'{"a":null,"b":[],"c":{"d":""}}', "no_value"),
        (b"site/a/b", b" \n", "no_value"),
        (b"site/a/b", b"null", "no_value"),
        (b"site/a/b", b"unavailable", "no_value"),
        (b"site/a/b", b"???", "no_value"),
        (b"tidegate/receipts/dev-1", b"{}", "own_topic"),
        (b"$SYS/broker/uptime", b"5", "own_topic"),
    ],
)
def test_what_is_ignored_and_counted(topic: bytes, payload: bytes, reason: str) -> None:
    outcome = decide(topic, payload)
    assert (outcome.ignored, outcome.records) == (reason, [])


# Generic JSON.


@pytest.mark.parametrize(
    ("payload", "metrics"),
    [
        (
            b'{"a":{"b":1,"c":[2,3]},"d":"x","e":true}',
            {"a.b": 1.0, "a.c[0]": 2.0, "a.c[1]": 3.0, "d": "x", "e": "true"},
        ),
        (b"[21.5,21.7]", {"state[0]": 21.5, "state[1]": 21.7}),
        (b"21.5", {"state": 21.5}),
        (b'{"t":{"value":21.5,"unit":"C"}}', {"t": 21.5}),
        (b'[{"a":1},{"b":2}]', {"a": 1.0, "b": 2.0}),
        (b'{"PM2.5":2}', {"PM2.5": 2.0}),
        (b'{"ts":null,"a":1}', {"a": 1.0}),
    ],
)
def test_generic_json_is_flattened_by_one_rule(payload: bytes, metrics: dict[str, object]) -> None:
    outcome = decide(b"j/dev/state", payload)
    assert stored(outcome) == metrics
    assert record_of(outcome).device == "j/dev"


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        pytest.param(b"j/m/state", b'{"' + b"k" * 128_000 + b'":[' + b",".join([b"1"] * 10_000) + b"]}", id="array"),
        pytest.param(
            b"j/m/state",
            b'{"' + b"k" * 128_000 + b'":{' + b",".join(b'"%d":1' % n for n in range(10_000)) + b"}}",
            id="object",
        ),
        pytest.param(b"j/m/" + b"s" * 65_000, b"[" + b",".join([b"1"] * 10_000) + b"]", id="topic"),
        pytest.param(NATIVE, b'{"values":{"' + b"k" * 128_000 + b'":[' + b",".join([b"1"] * 10_000) + b"]}}", id="own"),
    ],
)
def test_a_name_of_any_length_is_not_copied_for_each_value_under_it(topic: bytes, payload: bytes) -> None:
    tracemalloc.start()
    outcome = decide(topic, payload)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert outcome.rejected in ("out_of_range", "wrong_type")
    assert peak_bytes < 40_000_000


def test_a_name_that_is_too_long_to_be_flattened_costs_itself() -> None:
    payload = json.dumps({"good": 1, "k" * 600: {"a": 1, "b": [2, 3]}, "x" * 600: [], "also": 2}).encode()
    outcome = decide(b"j/m/state", payload)
    assert stored(outcome) == {"good": 1.0, "also": 2.0}
    [letter] = letters_of(outcome)
    assert (letter.reason, letter.wanted) == ("out_of_range", "a name of at most 512 bytes")


def test_generic_json_time_applies_to_the_object_and_is_no_metric() -> None:
    record = record_of(decide(b"site/m/state", b'{"time":"2023-10-29 02:30:00","total":1}'))
    [reading] = record.readings
    assert (reading.metric, reading.flags) == ("total", ["ambiguous_local_time"])
    batch = record_of(decide(b"j/m/state", b'[{"ts":1764331100,"a":1},{"ts":1764331101,"a":2}]'))
    assert [(r.time_us, r.index) for r in batch.readings] == [(1764331100_000_000, 0), (1764331101_000_000, 1)]


def test_two_fields_of_one_flat_name_are_both_kept() -> None:
    record = record_of(decide(b"j/m/state", b'{"a.b":1,"a":{"b":2}}'))
    assert [(r.metric, r.value) for r in record.readings] == [("a.b", 1.0), ("a.b", 2.0)]
    assert len({r.index for r in record.readings}) == 2
    assert record.readings[1].flags == ["metric_twice"]


@pytest.mark.parametrize(
    ("payload", "reason", "path"),
    [
        (b'{"ts":"soon","a":1}', "bad_timestamp", "$.ts"),
        (b'{"ts":100000000000,"a":1}', "ambiguous_time", "$.ts"),
        (b'{"time":"2025-11-28 12:00:00","a":1}', "ambiguous_time", "$.time"),
        (b'{"Time":"1970-01-01T00:00:03Z","a":1}', "ts_too_old", "$.Time"),
        (b'{"ts":"2099-01-01T00:00:00Z","a":1}', "ts_too_far_future", "$.ts"),
        (b'{"a":NaN}', "bad_number", "$.a"),
        (json.dumps({f"m{n}": n for n in range(10_001)}).encode(), "too_large", "$"),
    ],
)
def test_generic_json_refused_as_a_whole(payload: bytes, reason: str, path: str) -> None:
    [letter] = letters_of(decide(b"j/dev/state", payload))
    assert (letter.reason, letter.path, letter.partial) == (reason, path, False)


# Plain scalars.


@pytest.mark.parametrize(
    ("payload", "value", "text", "unit"),
    [
        ("21.5", 21.5, None, None),
        ("23\n", 23.0, None, None),
        ("21.5 °C", 21.5, None, "°C"),
        ("21.5°C", 21.5, None, "°C"),
        ("55%", 55.0, None, "%"),
        ("1.2 m/s²", 1.2, None, "m/s²"),
        ("-3 dBm", -3.0, None, "dBm"),
        ("00123", 123.0, None, None),
        ("+1", 1.0, None, None),
        (".5", 0.5, None, None),
        ("1.", 1.0, None, None),
        ("1e3", 1000.0, None, None),
        ("-0", 0.0, None, None),
        ("18446744073709551615", 2.0**64, "18446744073709551615", None),
        ("true", 1.0, "true", None),
        ("False", 0.0, "false", None),
        ("open", None, "open", None),
        ("00000511AA39", None, "00000511AA39", None),
        ("21:45", None, "21:45", None),
        ("2025-11-28", None, "2025-11-28", None),
        ("192.168.1.7", None, "192.168.1.7", None),
    ],
)
def test_plain_values(payload: str, value: float | None, text: str | None, unit: str | None) -> None:
    [reading] = record_of(decide(b"p/dev/metric", payload.encode())).readings
    assert (reading.metric, reading.value, reading.text, reading.unit) == ("metric", value, text, unit)


def test_a_unit_of_the_route_stands_in_where_the_text_names_none() -> None:
    [reading] = record_of(decide(b"site/room/temperature", b"21.5")).readings
    assert reading.unit == "°C"
    [reading] = record_of(decide(b"site/room/temperature", "70 °F".encode())).readings
    assert reading.unit == "°F"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"NaN", "bad_number"),
        (b"-inf", "bad_number"),
        (b"Infinity", "bad_number"),
        (b"1e400", "bad_number"),
        (b"9" * 400, "bad_number"),
        (b"12,5", "bad_number"),
        (b"1.234,5", "bad_number"),
        (b"0x1F", "bad_number"),
        (b"\x1f\x8b\x08\x00", "bad_encoding"),
        (b"\xef\xbb\xbf21.5", "bad_encoding"),
        (b"\x1b[31merror\x1b[0m", "undecoded"),
        (b"\x0a\x05hello", "undecoded"),
        (b"x" * 300_000, "too_large"),
    ],
)
def test_plain_text_that_is_refused(payload: bytes, reason: str) -> None:
    assert decide(b"p/dev/metric", payload).rejected == reason


@pytest.mark.parametrize("topic", [b"p/dev/", b"p/dev/a\nb"])
def test_a_topic_without_a_metric_name(topic: bytes) -> None:
    assert decide(topic, b"5").rejected == "out_of_range"


# Dead letters.


def test_a_large_payload_is_kept_to_the_limit_and_told_by_length_and_hash() -> None:
    payload = b"x" * (LIMITS.max_payload_bytes + 1)
    outcome = decide(NATIVE, payload)
    [letter] = letters_of(outcome)
    assert (letter.reason, letter.payload_bytes) == ("too_large", len(payload))
    assert base64.b64decode(letter.payload_base64) == payload[: 64 * 1024]
    assert letter.payload_sha256 == hashlib.sha256(payload).hexdigest()


def test_many_bad_fields_of_a_large_message_stay_bounded() -> None:
    values = {f"bad{n}": None for n in range(5000)} | {"good": 1, "pad": "x" * 100_000}
    outcome = decide(NATIVE, native(values))
    letters = letters_of(outcome)
    assert len(letters) == MAX_PARTS
    assert letters[-1].got == "4901 more parts refused"
    assert len(outcome.parts) == 5000
    assert sum(len(record.value) for record in outcome.records) < 4 * LIMITS.max_payload_bytes
    assert base64.b64decode(letters[0].payload_base64) == native(values)
    assert letters[50].payload_sha256


def test_a_dead_letter_shrinks_in_three_steps_and_then_says_so() -> None:
    topic = b"nowhere/" + b"x" * 5000
    record = decide(topic, b"y" * 200_000).records[0]
    sizes = [len(record.value)]
    while (smaller := shrink(record)) is not None:
        record = smaller
        sizes.append(len(record.value))
    assert len(sizes) == 4, "64 KiB of payload, none, a cut topic"
    assert sizes == sorted(sizes, reverse=True)
    letter = decode_dead_letter(record.value)
    assert letter.payload_sha256 == hashlib.sha256(b"y" * 200_000).hexdigest()
    assert letter.payload_bytes == 200_000


def test_a_fault_inside_a_decoder_is_a_dead_letter_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("boom\n\x1b[31m")

    monkeypatch.setitem(registry._PURE, "native", broken)
    outcome = decide(NATIVE, native())
    assert outcome.rejected == "internal_error"
    [letter] = letters_of(outcome)
    assert base64.b64decode(letter.payload_base64) == native()
    assert letter.got is not None
    assert "boom" in letter.got
    assert "\n" not in letter.got


# Whatever comes: exactly one outcome, and bombs are cheap.


def outcomes_of(outcome: Outcome) -> int:
    return outcome.accepted + (outcome.rejected is not None) + (outcome.ignored is not None)


topics = st.sampled_from([NATIVE, b"site/a/b", b"j/a/b", b"p/a/b"]) | st.binary(max_size=30)
almost = st.text(alphabet='{}[]":,\\utdeE+-.0123456789nalsf valuestbqo', max_size=80).map(str.encode)


@given(topics, st.binary(max_size=80) | almost | st.text(max_size=40).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_random_bytes_have_exactly_one_outcome(topic: bytes, payload: bytes) -> None:
    outcome = decide(topic, payload)
    assert outcomes_of(outcome) == 1
    assert outcome.rejected != "internal_error"
    if outcome.accepted:
        for reading in record_of(outcome).readings:
            assert reading.value is not None or reading.text is not None


leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(max_size=6)
    | st.fixed_dictionaries(
        {"value": st.integers() | st.none()}, optional={"unit": st.text(max_size=3) | st.integers()}
    )
)
items = st.fixed_dictionaries(
    {"values": st.dictionaries(st.text(max_size=6), leaves, max_size=5) | leaves},
    optional={"ts": leaves, "boot": leaves, "seq": leaves, "x": leaves},
)


@given(st.sampled_from([NATIVE, b"site/a/b"]), items | st.lists(items | leaves, max_size=4))
def test_almost_native_documents_have_exactly_one_outcome(topic: bytes, document: object) -> None:
    outcome = decide(topic, json.dumps(document).encode())
    assert outcomes_of(outcome) == 1
    assert outcome.rejected != "internal_error"


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * 250_000,
        b'{"values":{' + b",".join(b'"m%d":null' % n for n in range(18_000)) + b"}}",
        b'{"values":{' + b",".join(b'"m%d":null' % n for n in range(9_999)) + b"}}",
        b'{"values":{"m":' + b"9" * 250_000 + b"}}",
        b'{"values":{"' + b"k" * 250_000 + b'":1}}',
        b'{"a":' * 31 + b"1" + b"}" * 31,
        b"[" + b"[]," * 80_000 + b"[]]",
        b"1" * 250_000,
        b"1," * 125_000 + b"1",
        b" " * 250_000,
    ],
    ids=["depth", "18k nulls", "10k nulls", "digits", "key", "objects", "wide", "plain digits", "commas", "blanks"],
)
@pytest.mark.parametrize("topic", [NATIVE, b"site/a/b", b"p/a/b"])
def test_bombs_have_one_outcome_soon(topic: bytes, payload: bytes) -> None:
    started = time.process_time()
    outcome = decide(topic, payload)
    # No speed goal: a quadratic parse of these takes minutes.
    assert time.process_time() - started < 10
    assert outcomes_of(outcome) == 1
    assert outcome.rejected != "internal_error"


NAUGHTY = Path(__file__).parents[2].parent / "shared" / "data" / "naughty-strings.json"


@pytest.mark.skipif(not NAUGHTY.exists(), reason=f"the naughty strings are not at {NAUGHTY}")
def test_naughty_strings_as_device_metric_and_text() -> None:
    for text in json.loads(NAUGHTY.read_text("utf-8")):
        topic = f"tidegate/v1/{text}/readings".encode()
        for outcome in (
            decide(topic, native()),
            decide(NATIVE, native({text: 1, "good": 1})),
            decide(NATIVE, native({"m": text})),
            decide(b"j/a/b", json.dumps({text: text, "good": 1}).encode()),
            decide(b"p/a/b", text.encode()),
            decide(b"p/a/" + text.encode(), b"1"),
        ):
            assert outcomes_of(outcome) == 1, text
            assert outcome.rejected != "internal_error", text
        assert stored(decide(NATIVE, native({"m": text}))) == {"m": text}

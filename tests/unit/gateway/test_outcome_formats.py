"""Topics, generic JSON and plain texts: what is kept, ignored and refused, each with its reason."""

import base64
import json
import tracemalloc

import pytest

from tests.support.outcome import (
    NATIVE,
    decide,
    letters_of,
    native,
    record_of,
    stored,
)

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
    assert (reading.metric, reading.flags) == ("total", ["ambiguous_local_time", "clock_behind"])
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
        ("\ufeff21.5", 21.5, None, None),
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


@pytest.mark.parametrize(
    ("topic", "payload", "reason", "wanted"),
    [
        (b"site/room1/temp/", b"21.5", "out_of_range", "level 4 of the topic is empty (after the last slash)"),
        (b"site/room1/temp/", b'"on"', "out_of_range", "level 4 of the topic is empty (after the last slash)"),
        (b"j/", b"21.5", "out_of_range", "level 2 of the topic is empty (after the last slash)"),
        (b"tidegate/v1//readings", b"{}", "bad_device_id", "level 3 of the topic is empty"),
        (b"/nobody/state", b"1", "no_route", "level 1 of the topic is empty (before the first slash)"),
    ],
)
def test_an_empty_level_is_named(topic: bytes, payload: bytes, reason: str, wanted: str) -> None:
    [letter] = letters_of(decide(topic, payload))
    assert (letter.reason, letter.path) == (reason, "topic")
    assert wanted in (letter.wanted or "")


@pytest.mark.parametrize(
    ("topic", "device"), [(b"site/room1/", "site/room1"), (b"site//temp", "site/"), (b"site//room/temp", "site//room")]
)
def test_an_empty_level_is_a_level(topic: bytes, device: str) -> None:
    assert record_of(decide(topic, b'{"t":1}')).device == device


def test_an_empty_level_costs_no_value_that_is_none() -> None:
    assert decide(b"site/room1/temp/", b"null").ignored == "no_value"

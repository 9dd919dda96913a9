"""Every class of bad input in the native format to its one outcome; what is kept of the good ones."""

import base64
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.contract.reading import hash_payload
from tests.support.outcome import (
    NATIVE,
    NOW_US,
    decide,
    letters_of,
    native,
    record_of,
    stored,
)

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
    assert record.payload_hash == hash_payload(payload)
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


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
def test_the_hash_of_a_payload_is_blake2b(payloads: list[bytes]) -> None:
    for payload in payloads:
        assert hash_payload(payload) == int.from_bytes(
            hashlib.blake2b(payload, digest_size=8).digest(), "big", signed=True
        )

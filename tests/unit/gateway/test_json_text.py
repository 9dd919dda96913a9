import json
import math
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_text import BadNumber, Document, parse_json
from ingest.contract.dead_letter import Reject

SUITE = Path(__file__).parents[2] / "data" / "json-test-suite"
SPOILS_ITS_FIELD = {"n_number_NaN", "n_number_infinity", "n_number_minus_infinity"}
"""No JSON, but devices send it: the document is kept, the number is not."""


def parse(payload: bytes) -> Document | Reject:
    return parse_json(payload, max_bytes=256 * 1024, max_depth=32)


@pytest.mark.parametrize(
    ("payload", "got"),
    [
        (b'{"a":"x\x01y"}', r'Invalid control character at character 7: \u0001y"}'),
        (b'{"a":"x', 'Unterminated string starting at character 5: "x'),
        (b'{"a":1', "Expecting ',' delimiter at character 6, the end"),
        (b"[1, ", "Expecting value at character 4, the end"),
        (b"", "Expecting value at character 0, the end"),
        (b'{"a" 1}', "Expecting ':' delimiter at character 5: 1}"),
        (b'x\0"\0', "byte 0x00 at position 1, as in UTF-16 or UTF-32"),
    ],
)
def test_a_refusal_says_what_and_where_in_words(payload: bytes, got: str) -> None:
    found = parse(payload)
    assert isinstance(found, Reject)
    assert found.got == got


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        pytest.param(b"", "bad_json", id="empty"),
        pytest.param(b" \n", "bad_json", id="B2"),
        pytest.param(b'{"a":1', "bad_json", id="B3"),
        pytest.param(b'{"a":1} x', "bad_json", id="B4"),
        pytest.param(b'{"a":1}\n{"a":2}', "bad_json", id="B5"),
        pytest.param(b"{'a':1}", "bad_json", id="B6 quotes"),
        pytest.param(b'{"a":1,}', "bad_json", id="B6 comma"),
        pytest.param(b'{"a":1/*c*/}', "bad_json", id="B6 comment"),
        pytest.param('{"a":1}'.encode("utf-16"), "bad_encoding", id="B8 16"),
        pytest.param('{"a":1}'.encode("utf-16-le"), "bad_encoding", id="B8 16le"),
        pytest.param('{"a":1}'.encode("utf-32-be"), "bad_encoding", id="B8 32be"),
        pytest.param(b'{"a":"\xff"}', "bad_encoding", id="B9"),
        pytest.param(b'{"a":"\xc0\xaf"}', "bad_encoding", id="B10 overlong"),
        pytest.param(b'{"a":"\xed\xa0\x80"}', "bad_encoding", id="B10 cesu"),
        pytest.param(b'{"a":"\\ud800"}', "bad_encoding", id="B11"),
        pytest.param(b'{"\\udfff":1}', "bad_encoding", id="B11 key"),
        pytest.param(b'{"a":"x\x01y"}', "bad_json", id="B13"),
        pytest.param(b"[" * 33 + b"]" * 33, "too_deep", id="B15 33"),
        pytest.param(b"[" * 65 + b"]" * 65, "too_deep", id="B15 65"),
        pytest.param(b'{"a":' * 1000 + b"1" + b"}" * 1000, "too_deep", id="B15 1k"),
        pytest.param(b"[" * 100_000, "too_deep", id="B15 100k"),
        pytest.param(b'{"a":' * 40_000, "too_deep", id="B15 objects"),
        pytest.param(b'"' + b"x" * (1 << 20) + b'"', "too_large", id="B18"),
        pytest.param(b"\x1f\x8b\x08\x00\x00\x00", "bad_encoding", id="B23 gzip"),
        pytest.param(b"<html></html>", "bad_json", id="B24"),
        pytest.param(b'{"a":01}', "bad_json", id="B32 zeros"),
        pytest.param(b'{"a":+1}', "bad_json", id="B32 plus"),
        pytest.param(b'{"a":.5}', "bad_json", id="B32 point"),
        pytest.param(b'{"a":1.}', "bad_json", id="B32 tail"),
        pytest.param(b'{"a":0x10}', "bad_json", id="B33"),
    ],
)
def test_what_is_no_json_document_is_refused_by_reason(payload: bytes, reason: str) -> None:
    refused = parse(payload)
    assert isinstance(refused, Reject)
    assert refused.reason == reason


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" * 5000])
def test_a_number_that_is_none_spoils_its_field_only(text: str) -> None:
    document = parse(b'{"good":1,"bad":' + text.encode() + b"}")
    assert isinstance(document, Document)
    assert document.value["good"] == 1
    assert isinstance(document.value["bad"], BadNumber)
    assert len(document.value["bad"].text) <= 120


@pytest.mark.parametrize(
    ("payload", "value", "flags"),
    [
        (b'{"a":1,"a":2}', {"a": 2}, ("duplicate_key",)),
        (b'{"a":1,"a":1}', {"a": 1}, ("duplicate_key",)),
        (b'{"o":{"a":1,"b":2,"a":3}}', {"o": {"a": 3, "b": 2}}, ("duplicate_key",)),
        (b'{"a":"x:y","b":"::"}', {"a": "x:y", "b": "::"}, ()),
        (b'{"a":1,"a" :2}', {"a": 2}, ("duplicate_key",)),
        (b'{"a" :1,"a":2,"b":"::"}', {"a": 2, "b": "::"}, ("duplicate_key",)),
        (b'{"t":"12:00:00","a":1,"a":2}', {"t": "12:00:00", "a": 2}, ("duplicate_key",)),
        (b'{"t":"12:00:00","o":{"a":1,"a"\t: 2}}', {"t": "12:00:00", "o": {"a": 2}}, ("duplicate_key",)),
        (b'{"t":"\\":","a":1}', {"t": '":', "a": 1}, ()),
        (b'{"a":1e-400}', {"a": 0.0}, ("underflow",)),
        (b'{"a":0e-400,"b":0.0,"c":1e-5}', {"a": 0.0, "b": 0.0, "c": 1e-5}, ()),
        (b'{"a":9007199254740993}', {"a": 9007199254740993}, ()),
        (b'{"a":18446744073709551616}', {"a": 18446744073709551616}, ()),
        (b'{"a":"\\u0000"}', {"a": "\0"}, ()),
        (b'{"a":"\\ud83c\\udf0a"}', {"a": "🌊"}, ()),
        (b" [1, 2]\r\n", [1, 2], ()),
        (b"null", None, ()),
    ],
)
def test_what_is_kept_and_how_it_is_flagged(payload: bytes, value: object, flags: tuple[str, ...]) -> None:
    assert parse(payload) == Document(value, flags)


def test_negative_zero_keeps_its_sign() -> None:
    document = parse(b"[-0.0]")
    assert isinstance(document, Document)
    assert math.copysign(1, document.value[0]) == -1


def test_a_depth_bomb_costs_no_more_memory_than_its_size() -> None:
    tracemalloc.start()
    parse(b"[" * 200_000)
    parse(b'{"a":' * 50_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 1024 * 1024


def test_the_public_json_test_suite() -> None:
    files = sorted(SUITE.glob("*.json"))
    assert len(files) == 318
    for path in files:
        parsed = parse(path.read_bytes())
        if path.name.startswith("y_"):
            assert isinstance(parsed, Document), path.name
        elif path.name.startswith("n_") and path.stem not in SPOILS_ITS_FIELD:
            assert isinstance(parsed, Reject), path.name


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, st.booleans())
def test_both_parses_agree_with_the_standard_library(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    try:
        payload = text.encode()
    except UnicodeEncodeError:
        return
    parsed = parse(payload)
    if isinstance(parsed, Reject):
        assert parsed.reason in ("bad_encoding", "too_deep")
    else:
        assert parsed.value == json.loads(text)


@given(st.binary(max_size=60))
def test_random_bytes_never_raise(payload: bytes) -> None:
    assert isinstance(parse(payload), Document | Reject)


@given(st.text(alphabet='{}[]":,\\utdeE+-.0123456789nalsf \t', max_size=60))
def test_almost_json_never_raises(text: str) -> None:
    assert isinstance(parse(text.encode()), Document | Reject)

"""The short ways for usual messages: they give what the long ways give."""

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.decoders.mapping import compiled_case as mapping_case
from gateway.decoders.mapping import reader as mapping_reader
from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.number_text import guess_number
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.json_text import Document, parse_json
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from gateway.time_rules import read_time
from ingest.contract.dead_letter import Reject

NAMES = st.sampled_from(["t", "ts", "time", "at", "value", "unit", "temp", "state", "id", "log", "a", "b", "a.b", ":k"])
TEXTS = st.sampled_from(
    [
        *("on", "OFF", "not_charging", "true", "unknown", "nan", "--", "ä", "", " ", "21.5", "-0", "42", "007", "1,5"),
        *("1.2.3", "12 V", "24h", "0x1F", "2026-11-28T21:06:40Z", "1795890000", "n/a", "a:b", "²", "half ½"),
    ]
)
SCALARS = st.none() | st.booleans() | st.sampled_from([0, -0.0, 21.5, 85, 2**53 + 1, 1795890000, 1795890000000]) | TEXTS
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
MAPPINGS: list[dict[str, Any]] = [
    {},
    {"time": ["ts", "$.at"], "message_id": ["{.id}"], "tags": {"state": "{.state}"}},
    {"keep": ["temp*", "log*"], "text": ["state"], "units": {"temp": "{.unit}", "t": "V"}, "errors": {"t": [85]}},
    {"numeric_text": ["*"], "no_values": ["on"], "rename": {"t": "temp"}, "flags": {"odd": {"state": "on"}}},
    {"time": [], "skip": ["log"], "unset_clock": True, "prefix": "{.id}."},
]


NOW_US = 1_796_000_000_000_000


def decide(gate: MessageProcessor, document: object) -> Outcome:
    return gate.decide(Message(7, 1000, NOW_US, b"plant/a", json.dumps(document).encode()))


def gate_of(mapping: dict[str, Any] | None) -> MessageProcessor:
    route = RouteSettings(filter="plant/{device}", device="{device}", mapping=mapping and MappingSettings(**mapping))
    limits = GatewaySettings(presets=())
    return MessageProcessor(compile_routes((route,), limits), limits)


@cache
def kept_gate(mapping: str) -> MessageProcessor:
    return gate_of(json.loads(mapping))


@pytest.mark.parametrize("mapping", [None, *MAPPINGS])
@settings(max_examples=80)
@given(document=st.dictionaries(NAMES, DOCUMENTS, max_size=5))
@example(document={"a.b": 1, "a": {"b": 2}, "ts": 1})
@example(document={"ts": 1795890000, "log": {"a": 1}, "state": "on"})
def test_an_object_that_is_one_item_reads_as_items_do(mapping: dict[str, Any] | None, document: dict[str, Any]) -> None:
    gate = kept_gate(json.dumps(mapping))
    usual = decide(gate, document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mapping_reader._Reader, "read_usual", lambda reader, _root: reader.read())
        assert decide(gate, document) == usual


@pytest.mark.parametrize("mapping", [None, *MAPPINGS])
@settings(max_examples=25)
@given(documents=st.lists(st.dictionaries(NAMES, DOCUMENTS, max_size=5), min_size=1, max_size=4))
@example(documents=[{"id": "42", "a": {"id": "1.5"}}, {"temp": "42", "a": {"b": "1.5"}}])
@example(documents=[{"temp": "--", "state": "on"}, {"temp": "on", "state": True}])
def test_what_came_before_changes_no_message(mapping: dict[str, Any] | None, documents: list[dict[str, Any]]) -> None:
    gate = gate_of(mapping)
    for document in [*documents, *documents]:
        assert decide(gate, document) == decide(gate_of(mapping), document)


def test_the_words_that_are_remembered_are_bounded() -> None:
    shape = mapping_case.ValueRules()
    for number in range(5000):
        shape.remember("".join(chr(ord("a") + int(digit)) for digit in str(number)))
        assert len(shape.words) <= 1000
    shape.remember("x" * 33)
    shape.remember("a1")
    assert not {"x" * 33, "a1"} & shape.words


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{0,18})?", fullmatch=True))
def test_a_usual_number_in_text_reads_as_with_a_blank(text: str) -> None:
    assert guess_number(text, "level") == guess_number(f"{text} ", "level")


@given(st.datetimes(), st.text(alphabet="0123456789", max_size=12))
def test_a_usual_time_reads_as_in_another_spelling(moment: Any, fraction: str) -> None:
    text = moment.replace(microsecond=0).isoformat() + (f".{fraction}" if fraction else "")
    assert read_time(f"{text}Z", "$", None) == read_time(f"{text}z", "$", None)


@pytest.mark.parametrize(
    "text",
    [
        *("2026-W48-6T21:06:40Z", "2026-11-28T24:00:00Z", "2026-11-28T21:06:40.Z", "2026-11-28T21:06:40Z5Z"),
        *("2026-11-28T21:06:4\u0660Z", "2026-02-30T21:06:40Z", "2026-11-28T21:06:60Z", "2026-11-28T21:06:40.\u0665Z"),
    ],
)
def test_a_text_almost_like_a_usual_time_is_refused(text: str) -> None:
    found = read_time(text, "$", None)
    assert isinstance(found, Reject)
    assert found.reason == "bad_timestamp"


TWICE = st.sampled_from(['"k":1,"k":2', '"k" : {"b":":"},"k":":"', '"k":1,"k":"\\u003a"', '"k":[], "k":"a:b\\u003Ac"'])


@given(st.dictionaries(st.text(max_size=4), DOCUMENTS, max_size=3), TWICE, st.booleans(), st.booleans())
def test_a_key_that_is_there_twice_is_always_found(
    document: dict[str, Any], twice: str, is_inner: bool, is_compact: bool
) -> None:
    rest = json.dumps(document, separators=(",", ":") if is_compact else (", ", ": "), ensure_ascii=is_compact)
    text = "{" + twice + (',"r":' + rest if is_inner or not document else "," + rest[1:-1]) + "}"
    pairs: list[int] = []
    json.loads(text, object_pairs_hook=lambda found: pairs.append(len(found) - len(dict(found))))
    found = parse_json(text.encode(), max_bytes=10**6, max_depth=32)
    assert isinstance(found, Document)
    assert any(pairs)
    assert "duplicate_key" in found.flags


@given(DOCUMENTS, st.booleans())
def test_a_number_that_became_zero_is_always_found(document: object, is_compact: bool) -> None:
    rest = json.dumps(document, separators=(",", ":") if is_compact else (", ", ": "))
    for small in ("1e-400", "-1E-4000", f"0.{'0' * 400}1"):
        found = parse_json(f'{{"a":{small},"b":{rest}}}'.encode(), max_bytes=10**6, max_depth=32)
        assert isinstance(found, Document)
        assert found.flags == ("underflow",)

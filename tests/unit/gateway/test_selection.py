"""What a mapping selects: a message of which nothing is kept is no loss in silence, and what is left out is counted."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.devtools.decode_file import decode_lines
from gateway.devtools.explain_route import explain_message
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.routes import RouteTable, compile_routes
from tests.fuzz.seeds import read_seeds

NOW_US = round(datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()) * 1_000_000
LIMITS = GatewaySettings()
CHIRPSTACK = "preset chirpstack number 1 (application/{application}/device/{device}/event/{event})"
SEEDS = read_seeds(Path(__file__).parents[2] / "data" / "payloads.jsonl")


def route(mapping: dict[str, Any]) -> tuple[RouteSettings, ...]:
    return (RouteSettings.model_validate({"filter": "keep/#", "mapping": mapping}),)


def decode(mapping: dict[str, Any], document: object) -> dict[str, Any]:
    line = json.dumps({"id": 1, "topic": "keep/x/data", "payload": json.dumps(document)})
    [found] = decode_lines([line], route(mapping), LIMITS, received_us=NOW_US)
    return found


def preset(topic: str, document: object) -> dict[str, Any]:
    line = json.dumps({"id": 1, "topic": topic, "payload": json.dumps(document)})
    [found] = decode_lines([line], (), LIMITS, received_us=NOW_US)
    return found


@pytest.mark.parametrize(
    ("mapping", "document", "got", "wanted"),
    [
        ({"keep": ["temperature"]}, {"temp": 21.5, "hum": 40}, "2 fields, none kept: temp, hum", "keeps: temperature"),
        ({"keep": ["t"], "rename": {"v": "T"}}, {"v": 1, "t": None}, "1 field, none kept: T", "keeps: t"),
        ({"keep": ["a.t"]}, {"a": {"x": 1}, "b": [1]}, "2 fields, none kept: a.x, b[0]", "keeps: a.t"),
        ({"text": []}, {"state": "on"}, "1 field, none kept: state", "a field that the mapping keeps"),
        ({"values": "data"}, {"payload": {"t": 1}}, "1 field, none kept: payload.t", "values at data"),
        ({"items": "readings[]"}, {"samples": [{"t": 1}]}, "1 field, none kept: samples[0].t", "values at readings[]"),
        ({"items": ["a[]", "b"]}, {"a": {"x": 1}}, "1 field, none kept: a.x", "values at a[] or b"),
        ({"keep": ["t"]}, {f"f{n}": n for n in range(20)}, "f7 and 12 more", "keeps: t"),
    ],
)  # fmt: skip
def test_a_mapping_that_keeps_nothing_is_a_dead_letter(mapping: Any, document: object, got: str, wanted: str) -> None:
    found = decode(mapping, document)
    assert (found["outcome"], found["reason"], found["path"]) == ("dead_letter", "nothing_kept", "$")
    assert found["got"].endswith(got)
    assert wanted in found["wanted"]


@pytest.mark.parametrize(
    ("mapping", "document"),
    [
        ({"keep": ["t"]}, {}),
        ({"keep": ["t"]}, {"t": None, "x": ""}),
        ({"keep": ["t"]}, {"t": "unavailable"}),
        ({"skip": ["x"]}, {"x": 1}),
        ({"device": "{.id}"}, {"id": "a"}),
        ({"values": "data"}, {"data": None, "rssi": 5}),
        ({"items": "readings[]"}, {"readings": [], "count": 0}),
    ],
)
def test_a_message_without_a_value_is_ignored_as_before(mapping: Any, document: object) -> None:
    found = decode(mapping, document)
    assert (found["outcome"], found["reason"]) == ("ignored", "no_value")


@pytest.mark.parametrize(
    ("mapping", "document", "wanted"),
    [
        ({"keep": ["v"], "rename": {"v": "{.id}"}}, {"id": "T1", "v": 21.5, "x": 1}, {"T1": 21.5}),
        ({"keep": ["T1"], "rename": {"v": "{.id}"}}, {"id": "T1", "v": 21.5, "x": 1}, {"T1": 21.5}),
        ({"keep": ["a.v"], "rename": {"a.v": "t"}}, {"a": {"v": 1}, "v": 2}, {"t": 1}),
        ({"keep": ["v"], "prefix": "p/"}, {"v": 1, "x": 2}, {"p/v": 1}),
        ({"keep": ["te*"], "rename": {"temp": "T"}}, {"temp": 1, "x": 2}, {"T": 1}),
        ({"text": ["state"], "rename": {"state": "light"}}, {"state": "on", "x": "y"}, {"light": "on"}),
        ({"numeric_text": ["v"], "rename": {"v": "t"}}, {"v": "21.5"}, {"t": 21.5}),
    ],
)
def test_a_renamed_field_is_chosen_by_its_old_or_its_new_name(mapping: Any, document: object, wanted: object) -> None:
    found = decode(mapping, document)
    assert {one["metric"]: one["value"] if one["text"] is None else one["text"] for one in found["readings"]} == wanted


def test_unit_and_errors_of_a_renamed_field_hold_by_its_old_name() -> None:
    mapping = {"rename": {"v": "t"}, "units": {"v": "°C"}, "errors": {"v": [85.0]}}
    assert decode(mapping, {"v": 21.5})["readings"][0]["unit"] == "°C"
    assert decode(mapping, {"v": 85})["reason"] == "bad_number"


def test_route_test_names_what_was_not_kept() -> None:
    found = explain_message(
        "keep/x/data", b'{"temp":21.5}', route({"keep": ["temperature"]}), LIMITS, received_us=NOW_US
    )
    assert (found["outcome"], found["reason"]) == ("dead_letter", "nothing_kept")
    assert "temp" in found["got"]


def test_what_trackers_add_to_a_location_is_stored() -> None:
    body = {"_type": "location", "tst": 1_795_900_000, "lat": 10.2, "lon": -20.7, "odometer": 12034.5, "uext": 12.4}
    own = {"temp_c-01": -18.5, "din1": True, "vel": 83, "t": "u", "tid": "x9", "conn": "m", "bs": 1, "SSID": "home"}
    found = preset("owntracks/fleet/truck9", body | own)
    metrics = {"lat", "lon", "odometer", "uext", "temp_c-01", "din1", "vel"}
    assert {one["metric"] for one in found["readings"]} == metrics
    assert {one["time"] for one in found["readings"]} == {"2026-11-28T21:06:40Z"}


def test_what_a_mapping_leaves_out_is_counted_by_name() -> None:
    mapping = {"keep": ["t", "door"], "skip": ["debug"], "device": "{.id}", "text": [], "numeric_text": ["*"]}
    table = compile_routes(route(mapping), LIMITS)
    match = table.match("keep/x/data")
    assert match is not None
    assert not isinstance(match, str)
    assert match.mapping is not None
    for n in range(3):
        document = {"id": "a", "t": 1, "x": n, "y": None, "a": {"z": 1}, "debug": {"k": 1}, "door": "open"}
        match.mapping(json.dumps(document).encode(), match, LIMITS, NOW_US)
    fields = table.left_out()["[[routes]] number 1 (keep/#)"]
    assert fields == {"x": 3, "a.z": 3, "debug": 3, "door": 3}


def test_the_names_that_are_counted_are_bounded() -> None:
    table = compile_routes(route({"keep": ["t"]}), LIMITS)
    match = table.match("keep/x/data")
    assert match is not None
    assert not isinstance(match, str)
    assert match.mapping is not None
    for n in range(30):
        document = {"t": 1} | {f"x{n}-{k}": 1 for k in range(100)}
        match.mapping(json.dumps(document).encode(), match, LIMITS, NOW_US)
    fields = table.left_out()["[[routes]] number 1 (keep/#)"]
    assert len(fields) == 1000


def test_each_gateway_of_a_process_counts_from_zero_and_alone() -> None:
    messages = [Message(n, 0, NOW_US, topic.encode(), payload) for n, (topic, payload) in enumerate(SEEDS)]

    def count(table: RouteTable) -> dict[str, dict[str, int]]:
        gate = MessageProcessor(table, LIMITS)
        for message in messages:
            gate.decide(message)
        return table.left_out()

    first, second = compile_routes((), LIMITS), compile_routes((), LIMITS)
    found = count(first)
    assert "Node_type" in found[CHIRPSTACK], "a vendor's rules leave out too"
    assert second.left_out() == compile_routes((), LIMITS).left_out() == {}
    assert count(second) == found
    assert first.left_out() == found

"""Who sends and which message it is, where a mapping takes either from the payload."""

import json
import re
import tomllib
from collections.abc import Mapping

import pytest

from gateway.decoders.mapping import names as mapping_names
from gateway.decoders.mapping.engine import CompiledMapping
from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.shape import Decoded, RouteMatch
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.glob_patterns import glob_pattern
from gateway.message_processor import Message, MessageProcessor
from gateway.routes import compile_routes
from ingest.contract.reading import ReadingRecord, decode_record

NOW_US = 1_764_331_200_000_000


def send(route: Mapping[str, object], topic: str, document: object) -> ReadingRecord | str:
    """The record of a message behind one route, or why there is none."""
    gate = MessageProcessor(compile_routes((RouteSettings.model_validate(route),)), GatewaySettings(presets=()))
    outcome = gate.decide(Message(1, 1, NOW_US, topic.encode(), json.dumps(document).encode()))
    return decode_record(outcome.records[0].value) if outcome.accepted else str(outcome.rejected or outcome.ignored)


SAME = {"device": "{.id}", "same_device": "{.id}"}


@pytest.mark.parametrize(
    ("route", "topic", "claim", "device"),
    [
        ({"device": "{d}"}, "x/a", "a", "a"),
        ({"device": "{d}"}, "x/a", "b", None),
        ({"device": "{d}"}, "x/a", "A", None),
        ({"device": "{d}"}, "x/a:b", "ab", None),
        ({"device": "{d}"}, "x/a", None, "a"),
        ({"device": "{d}"}, "x/4C33A6000001", "4c:33:a6:00:00:01", "4c:33:a6:00:00:01"),
        ({"device": "{d}"}, "x/4C33A6000001", "4c:33:a6:00:00:02", None),
        ({"device": "{d}"}, "x/A84041FF00000001", "a84041ff00000001", "a84041ff00000001"),
        # A route may call it otherwise; the payload must still name a level of the topic.
        ({"device": "{app}/{d}"}, "x/a", "a", "x/a"),
        ({"device": "{app}/{d}"}, "x/a", "b", None),
        ({"device": "fixed"}, "x/a", "a", "fixed"),
        ({"device": "fixed"}, "x/a", "b", None),
        ({"device": "fixed"}, "x/4C33A6000001", "4c:33:a6:00:00:01", "fixed"),
        # A route that names no device leaves it to the payload.
        ({}, "x/a", "b", "b"),
    ],
)
def test_the_payload_s_device_must_be_the_route_s(
    route: dict[str, object], topic: str, claim: str | None, device: str | None
) -> None:
    body = {"t": 1} if claim is None else {"t": 1, "id": claim}
    found = send({"filter": "{app}/{d}", "mapping": SAME, **route}, topic, body)
    if device is None:
        assert found == "identity_mismatch"
    else:
        assert isinstance(found, ReadingRecord)
        assert (found.device, [reading.metric for reading in found.readings]) == (device, ["t"])


def test_what_is_refused_whole_is_of_the_topic_s_device() -> None:
    route = RouteSettings.model_validate(
        {"filter": "x/{d}", "device": "{d}", "mapping": {**SAME, "refuse": "undecoded"}}
    )
    gate = MessageProcessor(compile_routes((route,)), GatewaySettings(presets=()))
    outcome = gate.decide(Message(1, 1, NOW_US, b"x/a", b'{"id": "b"}'))
    assert (outcome.rejected, outcome.device) == ("undecoded", "a")


@pytest.mark.parametrize(
    ("message_id", "time", "kept"),
    [
        ("{.t}:{payload}", "2025-10-26 02:30:00", False),
        ("{$.t}:{payload}", "2025-10-26 02:30:00", False),
        ("{.t}:{payload}", "1970-01-01 00:00:09", False),
        ("{.t}:{payload}", "2025-10-26 03:30:00", True),
        ("{.t}:{payload}", "2025-10-26T02:30:00+01:00", True),
        # A counter does not depend on the clock.
        ("{.n}", "2025-10-26 02:30:00", True),
    ],
)
def test_a_time_that_comes_twice_is_no_identity(message_id: str, time: str, kept: bool) -> None:
    mapping = {"time": ["t"], "message_id": message_id, "unset_clock": True}
    route = {"filter": "x", "device": "d", "zone": "Europe/Berlin", "mapping": mapping}
    found = send(route, "x", {"t": time, "n": 7, "v": 1})
    assert isinstance(found, ReadingRecord)
    assert (found.message_id is not None, "no_identity" in (found.flags or ())) == (kept, not kept)


def test_of_several_items_only_those_of_a_sure_time_have_an_identity() -> None:
    mapping = {"items": "l[]", "time": ["t"], "message_id": "{.t}"}
    route = {"filter": "x", "device": "d", "zone": "Europe/Berlin", "mapping": mapping}
    times = ("2025-10-26 01:30:00", "2025-10-26 02:30:00", "2025-10-26 02:30:00")
    found = send(route, "x", {"l": [{"t": time, "v": 1} for time in times]})
    assert isinstance(found, ReadingRecord)
    ids = [reading.message_id for reading in found.readings]
    assert ids == ["fm:2025-10-26 01:30:00", None, None]
    assert found.flags == ["no_identity"]
    keys = {(reading.time_us, reading.index, reading.message_id) for reading in found.readings}
    assert len(keys) == 3, "the two that may be one are told apart within their message"


def test_a_unit_can_be_taken_from_some_names() -> None:
    units = tomllib.loads('units = { xvoltage = "", "*voltage" = "V" }')
    mapping = CompiledMapping(MappingSettings.model_validate(units), ())
    decoded = mapping(b'{"voltage": 1, "xvoltage": 2}', RouteMatch("mapping", "d", "m"), GatewaySettings(), NOW_US)
    assert isinstance(decoded, Decoded)
    assert [reading.unit for reading in decoded.readings] == ["V", None]


# Names and globs of any number and length.


def test_prefixes_beyond_the_bound_are_read_and_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping_names, "_MAX_CONTEXTS", 3)
    forgotten: list[bool] = []
    monkeypatch.setattr(mapping_names.NameRules, "forget", lambda _self: forgotten.append(True))
    mapping = CompiledMapping(MappingSettings(items=("l[]",), prefix="{.n}/"), ())
    body = json.dumps({"l": [{"n": f"x{n}", "v": n} for n in range(50)]}).encode()
    monkeypatch.setattr(mapping_names._held, "names", 0)  # mappings of other tests may hold all there is
    held = 0
    for _ in range(3):
        decoded = mapping(body, RouteMatch("mapping", "d", "m"), GatewaySettings(), NOW_US)
        assert isinstance(decoded, Decoded)
        assert [reading.metric for reading in decoded.readings] == [f"x{n}/v" for n in range(50)]
    # Those that were there first stay: nothing is forgotten, to be found out again for each message.
    contexts = mapping._own.names._contexts
    assert ([key for (key,) in contexts], forgotten) == (["x0/", "x1/", "x2/"], [])
    assert mapping_names._held.names - held == sum(rules.held() for rules in contexts.values())


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("", "", True),
        ("*", "", True),
        ("a*", "ab", True),
        ("*a", "ba", True),
        ("*a", "ab", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("*ab*b", "abab", True),
        ("*a?*c", "xaxbc", True),
        ("*a?*c", "xac", False),
        ("a**b", "axb", True),
        ("?*", "", False),
        ("[*]", "[\n]", True),
        ("[*]", "a", False),
    ],
)
def test_globs(pattern: str, text: str, matches: bool) -> None:
    assert (re.fullmatch(glob_pattern(pattern), text, re.DOTALL) is not None) is matches


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("*a*a*a*a*b", "a"),
        ("*?a*?a*?b", "aa"),
        ("*ab*ab*ab*c", "ab"),
    ],
)
def test_a_glob_takes_no_more_time_than_its_text_is_long(pattern: str, text: str) -> None:
    """One that looks at each place again from each other place would not come back from this within the day."""
    route = RouteSettings(filter="x", payload=(pattern,), device="d", decoder="plain")
    gate = MessageProcessor(compile_routes((route,)), GatewaySettings(presets=()))
    payload = (text * 250_000)[:250_000].encode()
    assert gate.decide(Message(1, 1, NOW_US, b"x", payload)).rejected == "no_route"

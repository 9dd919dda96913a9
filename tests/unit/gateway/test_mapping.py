"""Formats written as data: what a mapping may say, and what each of it does to a message."""

import json
import tomllib
import tracemalloc
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.decoders.mapping.engine import BadPath, CompiledMapping
from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.shape import Decoded, Ignored, RouteMatch
from gateway.gateway_settings import GatewaySettings
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading

LIMITS = GatewaySettings()
NOW_US = 1_764_331_200_000_000
MATCH = RouteMatch("mapping", "from-topic", "state", ("ts",), topic="a/from-topic/state", names={"site": "north"})


def decode(toml: str, document: object, match: RouteMatch = MATCH, limits: GatewaySettings = LIMITS) -> Any:
    mapping = CompiledMapping(MappingSettings.model_validate(tomllib.loads(toml)), match.names, match.units)
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    return mapping(payload, match, limits, NOW_US)


def readings(toml: str, document: object, match: RouteMatch = MATCH) -> list[Reading]:
    decoded = decode(toml, document, match)
    assert isinstance(decoded, Decoded), decoded
    return decoded.readings


def values(toml: str, document: object, match: RouteMatch = MATCH) -> dict[str, object]:
    return {r.metric: r.value if r.text is None else r.text for r in readings(toml, document, match)}


def devices(toml: str, document: object) -> dict[str, list[tuple[str, float | None]]]:
    decoded = decode(toml, document)
    several = decoded if isinstance(decoded, list) else [decoded]
    return {one.device: [(r.metric, r.value) for r in one.readings] for one in several}


def rejects(toml: str, document: object) -> list[tuple[str, str | None]]:
    decoded = decode(toml, document)
    return [(fault.reason.value, fault.path) for fault in decoded.rejects]


# Items and devices.


@pytest.mark.parametrize(
    ("toml", "document", "wanted"),
    [
        ("", {"a": 1}, {"from-topic": [("a", 1.0)]}),
        ('values = "d"', {"d": {"a": 1}, "b": 2}, {"from-topic": [("a", 1.0)]}),
        ('items = "l[]"\ndevice = "{.id}"', {"l": [{"id": "x", "a": 1}, {"id": "y", "a": 2}], "b": 3},
         {"x": [("a", 1.0)], "y": [("a", 2.0)]}),
        ('items = "*"\ndevice = "{key}"', {"x": {"a": 1}, "y": {"a": 2}}, {"x": [("a", 1.0)], "y": [("a", 2.0)]}),
        ('items = "*[]"\ndevice = "{key}"\nvalues = "v"', {"x": [{"v": {"a": 1}}, {"v": {"a": 2}}]},
         {"x": [("a", 1.0), ("a", 2.0)]}),
        ('items = "*.*"\ndevice = "{key}/{key2}"', {"x": {"y": {"a": 1}}}, {"x/y": [("a", 1.0)]}),
        ('items = "a.*"\ndevice = ["{.Name}", "{key}"]', {"a": {"0x1": {"Name": "n", "t": 1}, "0x2": {"t": 2}}},
         {"n": [("t", 1.0)], "0x2": [("t", 2.0)]}),
        ('items = ["h[]", "now"]', {"h": [{"a": 1}], "now": {"a": 2}}, {"from-topic": [("a", 1.0), ("a", 2.0)]}),
        ('device = "{site}/{device}/{$.n}"', {"n": 7, "a": 1}, {"north/from-topic/7": [("a", 1.0)]}),
        ('device = ["{.model}/{.ch}/{.id}", "{.model}/{.id}"]', {"model": "M", "id": 0, "a": 1}, {"M/0": [("a", 1.0)]}),
        ('device = "{.list[1].id}"', {"list": [{}, {"id": "00345678"}]}, {"00345678": []}),
        ('device = "{.\\"a.b\\"}"', {"a.b": "dotted", "c": 1}, {"dotted": [("c", 1.0)]}),
    ],
)  # fmt: skip
def test_items_and_their_devices(toml: str, document: object, wanted: dict[str, object]) -> None:
    assert devices(toml, document) == wanted


def test_an_item_without_a_device_costs_itself() -> None:
    toml = 'items = "l[]"\ndevice = "{.id}"'
    document = {"l": [{"id": "x", "a": 1}, {"a": 2}, {"id": None, "a": 3}, {"id": 1.5, "a": 4}, {"id": "", "a": 5}]}
    assert devices(toml, document) == {"x": [("a", 1.0)]}
    assert rejects(toml, document) == [("missing_field", f"$.l[{n}]") for n in (1, 2, 3, 4)]


def test_a_message_of_nobody_is_refused_and_says_what_was_looked_for() -> None:
    refused = decode('device = ["{.id}", "{.mac}"]', {"a": 1})
    assert isinstance(refused, Reject)
    assert (refused.reason, refused.path) == ("missing_field", "$")
    assert refused.wanted is not None
    assert "{.id}, else {.mac}" in refused.wanted


def test_items_of_one_device_are_told_apart_by_their_index() -> None:
    found = readings('items = "l[]"', {"l": [{"a": 1}, {"a": 2}]})
    assert [(r.metric, r.index) for r in found] == [("a", 0), ("a", 1)]
    assert [r.flags for r in found] == [None, None]


def test_what_says_who_and_when_is_no_reading() -> None:
    toml = 'device = "{.id}"\ntime = ["t"]\nmessage_id = "{.n}"\ntags = { g = "{.gw}" }\nunits = { a = "{.u}" }'
    assert values(toml, {"id": 5, "t": 1764331100, "n": 9, "gw": "x", "u": "W", "a": 1}) == {"a": 1.0}


# Names, units, values.


@pytest.mark.parametrize(
    ("toml", "document", "wanted"),
    [
        ("", {"a": {"b": 1, "c": [2, {"d": 3}]}}, {"a.b": 1, "a.c[0]": 2, "a.c[1].d": 3}),
        ('prefix = "{site}."', {"a": 1}, {"north.a": 1}),
        ('rename = { "a.b" = "c", value = "{metric}" }', {"a": {"b": 1}, "value": 2}, {"c": 1, "state": 2}),
        ('items = "l[]"\nprefix = "{.n}/"', {"l": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]}, {"x/v": 1, "y/v": 2}),
        ('skip = ["a", "*Id", "x.*.z"]', {"a": {"b": 1}, "devId": 2, "x": {"y": {"z": 3, "w": 4}}, "k": 5},
         {"x.y.w": 4, "k": 5}),
        ('keep = ["t*", "a.b"]', {"temp": 1, "x": 2, "a": {"b": 3, "c": 4, "t": 5}}, {"temp": 1, "a.b": 3, "a.t": 5}),
        ('keep = ["*"]\nskip = "x"', {"a": 1, "x": 2}, {"a": 1}),
        ('text = []', {"a": 1, "s": "on"}, {"a": 1}),
        ('text = ["state"]', {"a": 1, "s": "on", "state": "off"}, {"a": 1, "state": "off"}),
        ('numeric_text = ["h"]', {"h": "52.6", "s": "52.6"}, {"h": 52.6, "s": 52.6}),
        ("guess_numbers = []", {"s": "52.6", "v": 1}, {"s": "52.6", "v": 1}),
        ('guess_numbers = ["v"]', {"s": "52.6", "v": "1"}, {"s": "52.6", "v": 1}),
        ('text = []\nunits = { v = "V" }', {"s": "52.6", "v": "1,016.5", "w": 2}, {"v": 1016.5, "w": 2}),
        ('numeric_text = ["h"]\ntext = []', {"h": "low", "s": "52.6"}, {}),
        ("", {"a": None, "b": "", "c": "unavailable", "d": "Unknown", "e": False, "f": 0}, {"e": "false", "f": 0}),
        ('no_values = ["off"]', {"a": "off", "b": "--", "c": "on"}, {"c": "on"}),
        ('no_values = ["---"]\nguess_numbers = []', {"a": "---", "b": "--"}, {"b": "--"}),
        ("", 21.5, {"state": 21.5}),
        ("", [1, 2], {"state[0]": 1, "state[1]": 2}),
    ],
)  # fmt: skip
def test_names_and_what_is_a_reading(toml: str, document: object, wanted: dict[str, object]) -> None:
    assert values(toml, document) == wanted


@pytest.mark.parametrize(
    ("toml", "document", "unit"),
    [
        ('units = { t = "°C" }', {"t": 1}, "°C"),
        ('units = { t = "°C" }', {"a": {"t": 1}}, "°C"),
        ('units = { "a.t" = "K", t = "°C" }', {"a": {"t": 1}}, "K"),
        ('units = { "*_C" = "°C" }', {"temperature_C": 1}, "°C"),
        ('units = { "PM*" = "µg/m³" }', {"PMS": {"PB0.3": 1}}, None),
        ('units = { "PM*" = "µg/m³" }', {"PMS": {"PM2.5": 1}}, "µg/m³"),
        ('units = { "PMS.*" = "µg/m³" }', {"PMS": {"x": 1}}, "µg/m³"),
        ('units = { t = "{$.U}" }\nunit_names = { C = "°C" }', {"t": 1, "U": "C"}, "°C"),
        ('units = { t = "{$.U}" }\nunit_names = { C = "°C" }', {"t": 1, "U": "F"}, "F"),
        ('units = { t = "{$.U}" }\nunit_names = { None = "" }', {"t": 1, "U": "None"}, None),
        ('units = { t = "{$.U}" }', {"t": 1}, None),
        ('units = { t = "°C" }', {"t": {"value": 1, "unit": "K"}}, "K"),
        ('quantity = { value = "V", unit = "U" }', {"t": {"V": 1, "U": "K", "quality": 3}}, "K"),
        ('rename = { value = "{metric}" }\nunits = { "sta*" = "W" }', {"value": 1}, "W"),
        ('numeric_text = "t"', {"t": "21.5 °C"}, "°C"),
    ],
)
def test_units_come_from_the_payload_then_from_the_table(toml: str, document: object, unit: str | None) -> None:
    [reading] = readings(toml + '\nskip = "U"', document)
    assert reading.unit == unit


def test_the_routes_units_win_over_the_mappings_and_lose_to_the_payloads() -> None:
    match = RouteMatch("mapping", "d", "m", units={"t*": "°F"})
    assert readings('units = { t = "°C" }', {"t": 1}, match)[0].unit == "°F"
    assert readings("", {"t": {"value": 1, "unit": "K"}}, match)[0].unit == "K"


def test_an_error_code_refuses_its_field_alone() -> None:
    toml = 'errors = { "*_DS" = [327.67, -127] }'
    document = {"T_DS": 327.67, "U_DS": -127, "V_DS": 327.66, "T": 327.67}
    assert values(toml, document) == {"V_DS": 327.66, "T": 327.67}
    assert rejects(toml, document) == [("bad_number", "$.T_DS"), ("bad_number", "$.U_DS")]


def test_a_bad_field_costs_itself() -> None:
    payload = b'{"a":NaN,"b":{"c":"nan","d":1},"e":[{"f":1e400}]}'
    assert rejects("", payload) == [("bad_number", "$.a"), ("bad_number", "$.b.c"), ("bad_number", "$.e[0].f")]
    assert values("", payload) == {"b.d": 1.0}


# Time and identity.


@pytest.mark.parametrize(
    ("toml", "document", "at_s"),
    [
        ("time = []", {"ts": 1764331100}, None),
        ("", {"ts": 1764331100}, 1764331100),
        ('time = ["E", "T"]', {"T": "2025-11-28T11:58:20Z", "E": 1764331100}, 1764331100),
        ('time = ["E", "T"]', {"T": "2025-11-28T11:58:20Z", "E": None}, 1764331100),
        ('time = { path = "t", format = "ms" }', {"t": 1764331100000}, 1764331100),
        ('time = { path = "t", format = "s" }', {"t": "1764331100.0"}, 1764331100),
        ('time = { path = "t", format = "ns" }', {"t": 1764331100000000000}, 1764331100),
        ('items = "l[]"\ntime = ["$.t"]', {"t": 1764331100, "l": [{"ts": 5}]}, 1764331100),
    ],
)
def test_times(toml: str, document: dict[str, object], at_s: int | None) -> None:
    document = document if "l" in document else {**document, "a": 1}
    reading = readings(toml, document)[-1]
    assert reading.time_us == (None if at_s is None else at_s * 1_000_000)


@pytest.mark.parametrize(
    ("toml", "document", "reason", "path"),
    [
        ('time = ["t"]', {"t": "soon", "a": 1}, "bad_timestamp", "$.t"),
        ('time = ["t"]', {"t": "2025-11-28T11:58:20", "a": 1}, "ambiguous_time", "$.t"),
        ('time = ["t"]', {"t": 3, "a": 1}, "ts_too_old", "$.t"),
        ('time = { path = "t", format = "s" }', {"t": 3, "a": 1}, "ts_too_old", "$.t"),
        ('time = { path = "t", format = "ms" }', {"t": "x", "a": 1}, "wrong_type", "$.t"),
        ('time = { path = "t", format = "rfc3339" }', {"t": 1764331100, "a": 1}, "wrong_type", "$.t"),
        ('time = ["$.t"]\nitems = "l[]"', {"t": "2099-01-01T00:00:00Z", "l": [{"a": 1}]}, "ts_too_far_future", "$.t"),
    ],
)
def test_times_that_refuse_their_item(toml: str, document: object, reason: str, path: str) -> None:
    assert rejects(toml, document) == [(reason, path)]
    assert values(toml, document) == {}


@pytest.mark.parametrize(
    ("value", "claimed_us"),
    [
        ("1970-01-01T00:00:03", 3_000_000),
        ("1970-01-01T00:00:03Z", 3_000_000),
        ("1999-12-31T23:00:00+00:00", 946_681_200_000_000),
        (3, 3_000_000),
    ],
)
def test_a_clock_that_was_never_set_is_receive_time_with_its_claim(value: object, claimed_us: int) -> None:
    [reading] = readings('time = ["t"]\nunset_clock = true', {"t": value, "a": 1})
    assert (reading.time_us, reading.claimed_us, reading.flags) == (None, claimed_us, ["clock_unset"])


def test_a_set_clock_without_a_zone_stays_refused() -> None:
    assert rejects('time = ["t"]\nunset_clock = true', {"t": "2025-11-28T11:58:20", "a": 1}) == [
        ("ambiguous_time", "$.t")
    ]


def test_each_value_has_its_own_time() -> None:
    quantities = 'quantity = { value = "V", time = { path = "S" } }\nskip = "Status"'
    document = {"a": {"V": 1, "S": "2025-11-28T11:58:20Z"}, "b": {"V": 2, "S": "never"}, "c": {"Status": {"Code": 5}}}
    assert [(r.metric, r.time_us) for r in readings(quantities, document)] == [("a", 1764331100_000_000)]
    assert rejects(quantities, document) == [("bad_timestamp", "$.b.S")]
    tree = 'values = "s"\nvalue_times = { tree = "$.m" }\ntime = ["$.t"]'
    document = {"s": {"a": 1, "b": {"c": 2}}, "m": {"b": {"c": {"timestamp": 1764331000}}}, "t": 1764331100}
    assert [(r.metric, r.time_us) for r in readings(tree, document)] == [
        ("a", 1764331100_000_000),
        ("b.c", 1764331000_000_000),
    ]


def test_the_formats_own_identity() -> None:
    assert decode('message_id = ["{.x}", "{.n}:{.m}"]', {"n": 1, "m": "k", "a": 1}).message_id == "1:k"
    assert decode('message_id = "{.n}"', {"a": 1}).message_id is None
    items = readings('items = "l[]"\nmessage_id = "{.n}"', {"l": [{"n": 1, "a": 1}, {"n": 2, "a": 1}, {"a": 1}]})
    assert [r.message_id for r in items] == ["fm:1", "fm:2", None]
    once, again, other = (decode('message_id = "{.t}:{payload}"', {"t": 1, "a": n}).message_id for n in (1, 1, 2))
    assert once == again != other
    assert len(decode('message_id = "{.n}"', {"n": "x" * 5000, "a": 1}).message_id) < 100
    assert decode('message_id = "{.p}:{received/600}"', {"p": 3, "a": 1}).message_id == f"3:{NOW_US // 600_000_000}"


def test_tags_and_flags() -> None:
    toml = 'tags = { app = "{$.app}", none = "{$.x}" }\nflags = { simulated = { sim = "true" }, odd = { x = true } }'
    match = RouteMatch("mapping", "d", "m", tags={"site": "n"})
    decoded = decode(toml, {"app": "A", "sim": True, "a": 1}, match)
    assert (decoded.tags, decoded.flags) == ({"app": "A", "site": "n"}, ["simulated"])


# Cases.

CASES = """
when = { kind = true }
units = { t = "°C", u = "V" }
skip = "kind"
ignore = "metadata"
[[cases]]
when = { kind = "hello*" }
ignore = "status"
[[cases]]
when = { kind = "raw", data = false }
refuse = "undecoded"
wanted = "a codec"
[[cases]]
when = { kind = ["a", "b"], "sub.x" = "true" }
units = { t = "K" }
"""


def test_the_first_case_that_holds_is_used() -> None:
    assert decode(CASES, {"kind": "hello world"}) == Ignored("status")  # type: ignore[arg-type]
    assert decode(CASES, {"kind": "other"}) == Ignored("metadata")  # type: ignore[arg-type]
    raw = decode(CASES, {"kind": "raw", "data": None})
    assert [(fault.reason, fault.wanted) for fault in raw.rejects] == [("undecoded", "a codec")]
    found = readings(CASES, {"kind": "b", "sub": {"x": True}, "t": 1, "u": 2})
    assert {r.metric: r.unit for r in found} == {"sub.x": None, "t": "K", "u": "V"}


def test_what_is_not_the_mappings_is_no_route() -> None:
    refused = decode(CASES, {"t": 1})
    assert (refused.reason, refused.wanted) == ("no_route", "kind = present")


# Bounds and mistakes.


def test_a_message_of_too_many_readings_is_refused_whole() -> None:
    limits = GatewaySettings(max_readings_per_message=10)
    for document in ({f"m{n}": n for n in range(11)}, {"a": list(range(11))}, [{"a": 1, "b": 2}] * 6, [1] * 11):
        refused = decode("", document, limits=limits)
        assert isinstance(refused, Reject), document
        assert (refused.reason, refused.path) == ("too_large", "$")


def test_names_that_come_once_only_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.decoders.mapping.names._MAX_NAMES", 10)
    monkeypatch.setattr("gateway.decoders.mapping.names._MAX_CONTEXTS", 3)
    mapping = CompiledMapping(MappingSettings(prefix="{.p}."), ())
    for n in range(50):
        body = {"p": f"p{n}", **{f"m{k}": k for k in range(20)}, "o": {f"x{k}": {"y": 1} for k in range(20)}}
        decoded = mapping(json.dumps(body).encode(), MATCH, LIMITS, NOW_US)
        assert isinstance(decoded, Decoded)
        assert len(decoded.readings) == 40
    contexts = mapping._own.names._contexts
    assert len(contexts) <= 3
    assert all(len(rules.known) <= 10 and len(rules._skipped) <= 10 for rules in contexts.values())


def test_all_mappings_together_keep_a_bounded_number_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.decoders.mapping.names._MAX_HELD", 100)
    mappings = [CompiledMapping(MappingSettings(), ()) for _ in range(5)]
    for n in range(40):
        body = json.dumps({f"m{n}.{k}": k for k in range(20)}).encode()
        assert isinstance(mappings[n % 5](body, MATCH, LIMITS, NOW_US), Decoded)
    held = sum(rules.held() for mapping in mappings for rules in mapping._own.names._contexts.values())
    assert 0 < held <= 120


def test_mappings_that_are_gone_take_no_room_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.decoders.mapping.names._MAX_HELD", 100)
    body = json.dumps({f"m{n}": n for n in range(20)}).encode()
    for _ in range(10):
        assert isinstance(CompiledMapping(MappingSettings(), ())(body, MATCH, LIMITS, NOW_US), Decoded)
    mapping = CompiledMapping(MappingSettings(), ())
    mapping(body, MATCH, LIMITS, NOW_US)
    verdicts = dict(mapping._own.names._contexts)
    mapping(body, MATCH, LIMITS, NOW_US)
    assert mapping._own.names._contexts == verdicts


def test_a_long_text_of_the_message_is_not_repeated_in_each_reading() -> None:
    long, many = "x" * 100_000, {f"m{n}": n for n in range(3000)}
    tracemalloc.start()
    units = readings('units = { "m*" = "{$.u}" }\ntext = []', {"u": long, **many})
    names = decode('items = "d"\nprefix = "{$.u}"', {"u": long, "d": many})
    owners = decode('items = "d.*"\ndevice = "{$.u}/{key}"', {"u": long, "d": {str(n): {"a": 1} for n in range(500)}})
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert {r.unit for r in units} == {None}
    assert (len(names.readings), len(names.rejects)) == (0, 3000)
    assert all(len(one.device) > 256 for one in owners)
    assert peak_bytes < 30_000_000


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"items": "a..b"}, "a..b"),
        ({"items": "a[x]"}, "not a path"),
        ({"device": "{.a[]}"}, "only allowed in `items`"),
        ({"device": "{nosuch}"}, "segment {nosuch}"),
        ({"prefix": "{nosuch}."}, "segment {nosuch}"),
        ({"device": "{not a name}"}, "not a reference"),
        ({"when": {"a[": True}}, "a["),
        ({"units": {"t": "{$.a..b}"}}, "a..b"),
        ({"time": ["x[y]"]}, "x[y]"),
    ],
)
def test_a_wrong_mapping_is_refused_when_it_is_compiled(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadPath) as caught:
        CompiledMapping(MappingSettings.model_validate(settings), ("site",))
    assert words in str(caught.value)


def test_unknown_keys_of_a_mapping_are_named() -> None:
    with pytest.raises(ValidationError, match="unit\n"):
        MappingSettings.model_validate({"unit": {"t": "°C"}})
    with pytest.raises(ValidationError, match=r"cases\.0\.devices\n"):
        MappingSettings.model_validate({"cases": [{"devices": "x"}]})


def test_a_template_that_the_filter_cannot_fill_gives_way_to_one_that_it_can() -> None:
    assert devices('device = ["{nosuch}", "{site}"]', {"a": 1}) == {"north": [("a", 1.0)]}

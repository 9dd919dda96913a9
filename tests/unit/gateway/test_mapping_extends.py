"""X03: a shipped mapping with changes."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.cli import run
from deploy.settings import load_settings
from gateway.decoders.mapping.extends import extend_mapping, resolve_extends
from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.vendor_settings import VendorSettings
from gateway.devtools.decode_file import decode_lines
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.presets.loader import load_vendors
from gateway.routes import compile_routes, shipped_mappings
from gateway.suggest.toml_text import show_mapping, show_vendor
from ingest.contract.errors import ConfigError
from ingest.contract.reading import decode_record

TELEGRAM = {"time": "2026-11-28T21:06:40Z", "model": "Acurite-5n1", "id": 1234, "temperature_C": 21.5, "rain_mm": 0.2}
VARIANT = """
[[routes]]
filter = "rtl_433/{receiver}/events"
[routes.mapping]
extends = "rtl_433"
device = "weather-{.id}"
rename = { rain_mm = "rain" }
skip = ["...", "*_mm_extra"]
units = { rain = "mm" }
[[routes.mapping.cases]]
when = { model = "Oregon*" }
ignore = "echo"
"""
Captured = pytest.CaptureFixture[str]


def decode(config: Path, topic: str, document: dict[str, Any]) -> dict[str, Any]:
    settings = load_settings(config, environ={})
    line = json.dumps({"id": "1", "topic": topic, "payload": json.dumps(document)})
    return next(decode_lines([line], settings.routes, settings.gateway, received_us=1_900_000_000_000_000))


def test_a_variant_changes_what_it_names_and_no_more(tmp_path: Path) -> None:
    config = tmp_path / "s.toml"
    config.write_text(VARIANT, "utf-8")
    found = decode(config, "rtl_433/a/events", TELEGRAM | {"x_mm_extra": 1, "mic": "CRC", "rssi": -3.1})
    shown = {(r["device"], r["metric"], r["value"], r["unit"]) for r in found["readings"]}
    assert shown == {
        ("weather-1234", "temperature_C", 21.5, "°C"), ("weather-1234", "rain", 0.2, "mm"), ("weather-1234", "rssi", -3.1, "dB"),
    }  # fmt: skip
    assert {r["time"] for r in found["readings"]} == {"2026-11-28T21:06:40Z"}
    assert decode(config, "rtl_433/a/events", TELEGRAM | {"model": "Oregon-1"})["reason"] == "echo"


def test_one_says_what_the_other_says_where_it_names_nothing() -> None:
    for mapping in shipped_mappings().values():
        assert extend_mapping(mapping, MappingSettings(extends="x")) == mapping


def mapping(toml: str) -> MappingSettings:
    return MappingSettings.model_validate(tomllib.loads(toml))


@pytest.mark.parametrize(
    ("variant", "name", "wanted"),
    [
        ('skip = ["x"]', "skip", ("x",)),
        ('skip = ["x", "..."]', "skip", ("x", "a", "b")),
        ('skip = ["...", "x"]', "skip", ("a", "b", "x")),
        ('skip = ["b", "..."]', "skip", ("b", "a")),
        ('keep = ["...", "x"]', "keep", ("x",)),
        ('units = { b = "B", c = "C" }', "units", {"b": "B", "c": "C", "a": "1"}),
        ('prefix = ""', "prefix", ""),
        ('quantity = { value = "w" }', "quantity", mapping('quantity = { value = "w" }').quantity),
        ('[[cases]]\nwhen = { y = true }', "cases", mapping('[[cases]]\nwhen = {y = true}\n[[cases]]\nwhen = {x = true}').cases),
    ],
)  # fmt: skip
def test_lists_replace_tables_join_cases_come_first(variant: str, name: str, wanted: object) -> None:
    base = mapping(
        'skip = ["a", "b"]\nunits = { a = "1", b = "2" }\nprefix = "p."\nquantity = { value = "v", unit = "u" }\n'
        "[[cases]]\nwhen = { x = true }"
    )
    assert getattr(extend_mapping(base, mapping(variant)), name) == wanted


def test_variants_of_variants_and_of_their_own_name() -> None:
    known = {"a": mapping('extends = "b"\nunits = { x = "a" }'), "b": mapping('extends = "b"\nunits = { y = "b" }')}
    found = resolve_extends("a", known["a"], known)
    assert (found.units, found.extends) == ({"x": "a", "y": "b"}, "b")


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
def test_mappings_that_extend_each_other_are_refused(names: list[str]) -> None:
    ring = {name: MappingSettings(extends=after) for name, after in zip(names, [*names[1:], names[0]], strict=True)}
    if len(names) == 1:
        assert resolve_extends(names[0], ring[names[0]], ring).extends == names[0]
        return
    with pytest.raises(ValueError, match="mappings extend each other"):
        resolve_extends(names[0], ring[names[0]], ring)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"extends": "rtl_443"}, "extends 'rtl_443', but no mapping has that name; did you mean 'rtl_433'?"),
        ({"skip": ["...", "x"]}, '"..." in skip stands for inherited entries'),
        ({"extends": "rtl_433", "skip": ["...", "..."]}, "only once"),
    ],
)
def test_wrong_variants_are_refused_in_words(settings: dict[str, Any], wanted: str) -> None:
    route = RouteSettings.model_validate({"filter": "x/#", "mapping": settings})
    with pytest.raises(ConfigError) as caught:
        compile_routes((route,), GatewaySettings())
    assert wanted in str(caught.value)
    assert "[[routes]] number 1 (x/#): mapping: " in str(caught.value)


def test_the_result_is_shown_as_toml_that_says_the_same(tmp_path: Path, capsys: Captured) -> None:
    config = tmp_path / "s.toml"
    config.write_text(VARIANT + '\n[mappings.mine]\nextends = "rtl_433"\ntime = []\n', "utf-8")
    assert run(["route", "show", "mine", "--config", str(config)]) == 0
    shown = MappingSettings.model_validate(tomllib.loads(capsys.readouterr().out)["mappings"]["mine"])
    assert shown == shipped_mappings()["rtl_433"].model_copy(update={"time": ()})
    assert run(["route", "show", "rtl_433/{receiver}/events", "--config", str(config)]) == 0
    [table] = tomllib.loads(capsys.readouterr().out)["mappings"].values()
    assert table["device"] == ["weather-{.id}"]
    assert "*_mm_extra" in table["skip"]
    assert run(["route", "show", "rtl_43", "--config", str(config)]) == 78
    assert "did you mean 'rtl_433'?" in capsys.readouterr().err


def test_the_rules_of_a_vendor_come_out_as_they_went_in(capsys: pytest.CaptureFixture[str]) -> None:
    for name, settings in load_vendors().items():
        table = tomllib.loads(show_vendor(name, settings))["vendors"][name]
        assert VendorSettings.model_validate(table) == settings, name
    assert run(["route", "show", "elsys"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["vendors"]["elsys"]["units"]["vdd"] == "mV"
    assert run(["route", "show", "elsys", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["units"]["vdd"] == "mV"
    assert run(["route", "show", "dragino"]) == 0
    both = tomllib.loads(capsys.readouterr().out)
    assert both["vendors"]["dragino"]["numeric_text"] == ["*"]
    assert both["mappings"]["dragino"]["vendors"] == ["dragino"]


def test_a_mapping_may_leave_the_rules_of_vendors_out() -> None:
    body: dict[str, Any] = {"end_device_ids": {"device_id": "d"}, "received_at": "2026-11-28T21:06:40Z"}
    body["uplink_message"] = {"decoded_payload": {"BatV": 3.0, "TempC_DS": 327.67}}
    values: dict[int, dict[str, str | None]] = {}
    for vendors in (["dragino"], []):
        mapping = {"extends": "tts", "vendors": vendors}
        route = RouteSettings.model_validate({"filter": "v3/{a}/devices/{d}/up", "device": "{d}", "mapping": mapping})
        gate = MessageProcessor(compile_routes((route,)), GatewaySettings())
        message = Message(1, 1, 1_800_000_000_000_000, b"v3/a/devices/d/up", json.dumps(body).encode())
        record = decode_record(gate.decide(message).records[0].value)
        values[len(vendors)] = {one.metric: one.unit for one in record.readings}
    assert values[1] == {"BatV": "V"}
    assert values[0]["BatV"] is None


def test_every_shipped_mapping_comes_out_of_its_toml_as_it_went_in() -> None:
    for name, settings in shipped_mappings().items():
        table = tomllib.loads(show_mapping(name, settings))["mappings"][name]
        assert MappingSettings.model_validate(table) == settings, name

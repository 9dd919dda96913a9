"""Vendors of the settings: `[vendors.NAME]` adds to the shipped vendors or takes the place of one of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli import app
from deploy.settings import Settings, load_settings
from deploy.settings_file import to_toml, write_private
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.errors import ConfigError
from ingest.contract.reading import decode_record
from ingest.contract.topics import READINGS

ACME = """
[vendors.acme]
brands = ["acme*"]
shapes = [{ t_ext = true, vbat = true }]
skip = ["fw"]
numeric_text = ["*"]
errors = { "t_*" = [-999] }
units = { "t_*" = "°C", vbat = "mV" }
"""
EUI = "a84041ff0000abcd"
DECODED = {"t_ext": "21.5", "t_int": -999, "vbat": 3600, "fw": "1.2"}
SERVERS = ("chirpstack v4", "the things stack v3")


def settings_of(folder: Path, text: str) -> Settings:
    file = folder / "my.toml"
    file.write_text(text, "utf-8")
    return load_settings(file, environ={})


def uplink(server: str, decoded: dict[str, Any], brand: str | None = None) -> tuple[str, Any]:
    if server == "chirpstack v4":
        device = {"devEui": EUI, "deviceProfileName": brand or "node"}
        body = {"time": "2026-11-28T21:06:40Z", "deviceInfo": device, "devAddr": "00189440", "fCnt": 7, "data": "AQI="}
        return f"application/a/device/{EUI}/event/up", body | {"object": decoded}
    message = {"f_cnt": 7, "frm_payload": "AQI=", "received_at": "2026-11-28T21:06:40Z", "decoded_payload": decoded}
    message |= {} if brand is None else {"version_ids": {"brand_id": brand}}
    return "v3/app@ttn/devices/freezer/up", {"end_device_ids": {"device_id": "freezer"}, "uplink_message": message}


def decide(settings: Settings, sent: tuple[str, Any]) -> Outcome:
    gate = MessageProcessor(compile_routes(settings.routes, settings.gateway), settings.gateway)
    return gate.decide(Message(1, 1, 1_795_900_000_000_000, sent[0].encode(), json.dumps(sent[1]).encode()))


def shown(outcome: Outcome) -> tuple[set[tuple[str, Any, str | None]], set[str]]:
    found: set[tuple[str, Any, str | None]] = set()
    refused: set[str] = set()
    for record in outcome.records:
        if record.topic == READINGS:
            readings = decode_record(record.value).readings
            found |= {(one.metric, one.value if one.text is None else one.text, one.unit) for one in readings}
        else:
            refused.add((decode_dead_letter(record.value).path or "").rpartition(".")[2])
    return found, refused


@pytest.mark.parametrize("server", SERVERS)
def test_a_vendor_of_the_settings_holds_behind_each_server(tmp_path: Path, server: str) -> None:
    found, refused = shown(decide(settings_of(tmp_path, ACME), uplink(server, DECODED)))
    assert found == {("t_ext", 21.5, "°C"), ("vbat", 3600, "mV")}
    assert refused == {"t_int"}


@pytest.mark.parametrize("server", SERVERS)
def test_the_brand_of_a_vendor_of_the_settings_counts(tmp_path: Path, server: str) -> None:
    found, _ = shown(decide(settings_of(tmp_path, ACME), uplink(server, {"t_ext": 4}, brand="acme-sensors")))
    assert found == {("t_ext", 4, "°C")}


@pytest.mark.parametrize("server", SERVERS)
def test_one_of_a_shipped_name_replaces_the_shipped_one(tmp_path: Path, server: str) -> None:
    text = '[vendors.dragino]\nshapes = [{ BatV = true }]\nunits = { BatV = "mV" }\n'
    found, refused = shown(decide(settings_of(tmp_path, text), uplink(server, {"BatV": 3100, "TempC_SHT": "21.5"})))
    assert found == {("BatV", 3100, "mV"), ("TempC_SHT", 21.5, None)}
    assert refused == set()


@pytest.mark.parametrize("server", SERVERS)
def test_one_that_extends_a_shipped_vendor_changes_what_it_names(tmp_path: Path, server: str) -> None:
    text = (
        '[vendors.dragino]\nextends = "dragino"\nskip = ["...", "Work_mode"]\nshapes = [{ BatMV = true }]\n'
        '[vendors.dragino.units]\nBatMV = "mV"\n'
    )
    decoded = {"BatMV": 3100, "TempC_SHT": "21.5", "TempC_DS": "327.67", "Work_mode": "x", "Node_type": "LHT65"}
    found, refused = shown(decide(settings_of(tmp_path, text), uplink(server, decoded)))
    assert found == {("BatMV", 3100, "mV"), ("TempC_SHT", 21.5, "°C")}
    assert refused == {"TempC_DS"}


def test_own_vendors_are_tried_before_the_shipped_ones(tmp_path: Path) -> None:
    text = '[vendors.zeta]\nshapes = [{ BatV = true }]\nunits = { BatV = "dV" }\n'
    found, _ = shown(decide(settings_of(tmp_path, text), uplink(SERVERS[0], {"BatV": 31})))
    assert found == {("BatV", 31, "dV")}


def test_a_mapping_of_the_settings_names_a_vendor_of_the_settings(tmp_path: Path) -> None:
    text = ACME + '[[routes]]\nfilter = "lns/+"\nmapping = { device = "{.id}", values = "d", vendors = ["acme"] }\n'
    found, _ = shown(decide(settings_of(tmp_path, text), ("lns/up", {"id": "x", "d": {"t_ext": "1", "vbat": 2}})))
    assert found == {("t_ext", 1, "°C"), ("vbat", 2, "mV")}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('[vendors.acme]\nunit = { t = "°C" }\n', "my.toml:2: unknown key vendors.acme.unit. Did you mean vendors.acme.units?"),
        ('[vendors.acme]\nnumbers = { v = { scale = "x" } }\n', "my.toml:2: vendors.acme.numbers.v.scale: 'x' is not a factor"),
    ],
)  # fmt: skip
def test_a_fault_names_file_key_and_suggestion(tmp_path: Path, text: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(tmp_path, text)
    assert caught.value.exit_code == 78
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('[vendors.acme]\nextends = "dragimo"\n', "extends 'dragimo', but no vendor has that name; did you mean 'dragino'"),
        ('[vendors.a]\nextends = "b"\n[vendors.b]\nextends = "a"\n', "[vendors.a]: extends 'a', but that leads back to it"),
        ('[vendors.acme]\nitems = ["a["]\n', "[vendors.acme]: "),
        ('[vendors.acme]\nrename = { t = "{room}" }\n', "[vendors.acme]: prefix or rename '{room}' needs the segment {room}"),
        (ACME + '[[routes]]\nfilter = "x"\nmapping = { vendors = ["akme"] }\n', "known: acme, decentlab, dragino"),
    ],
)  # fmt: skip
def test_a_vendor_that_cannot_be_followed_is_named_when_the_settings_are_checked(
    tmp_path: Path, text: str, wanted: str
) -> None:
    file = tmp_path / "my.toml"
    file.write_text(text, "utf-8")
    result = CliRunner().invoke(app, ["config", "validate", "--config", str(file)])
    if isinstance(result.exception, ConfigError):
        assert wanted in str(result.exception)
        assert result.exception.exit_code == 78
    else:
        assert result.exit_code == 78
        assert wanted in result.output.replace("\n", " ")


def test_the_file_that_a_part_is_started_with_holds_the_vendors(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, ACME)
    written = tmp_path / "part.toml"
    write_private(written, to_toml(settings))
    again = load_settings(written, environ={})
    assert again == settings
    assert shown(decide(again, uplink(SERVERS[0], DECODED))) == shown(decide(settings, uplink(SERVERS[0], DECODED)))


def test_route_show_prints_a_vendor_of_the_settings_with_what_it_extends(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('[vendors.acme]\nextends = "elsys"\nunits = { co2 = "%" }\n', "utf-8")
    shown_text = CliRunner().invoke(app, ["route", "show", "acme", "--config", str(file)]).output
    assert 'co2 = "%"' in shown_text
    assert 'vdd = "mV"' in shown_text

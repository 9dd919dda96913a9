"""`tidegate route test | ls`: what a device developer is told about a message."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run

Captured = pytest.CaptureFixture[str]
SETTINGS = """
[gateway]
zone = "Europe/Berlin"
[[routes]]
filter = "plant/{line}/temperature"
device = "{line}"
decoder = "plain"
units = { temperature = "°C" }
[[routes]]
filter = "plant/{line}/+"
payload = "on*"
ignore = "status"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS, "utf-8")
    return file


def explain(config: Path, capsys: Captured, topic: str, payload: str) -> tuple[int, dict[str, Any]]:
    code = run(["route", "test", topic, payload, "--config", str(config), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_route_of_the_settings(config: Path, capsys: Captured) -> None:
    code, found = explain(config, capsys, "plant/7/temperature", "21.5")
    assert code == 0
    assert found["route"] == {
        "name": "[[routes]] number 1",
        "filter": "plant/{line}/temperature",
        "decoder": "plain",
        "device": "7",
        "segments": {"line": "7"},
    }
    assert (found["tried"], found["suggestion"], found["outcome"]) == ([], None, "reading")
    [reading] = found["readings"]
    assert (reading["device"], reading["metric"], reading["value"], reading["unit"]) == ("7", "temperature", 21.5, "°C")


def test_a_preset_and_what_it_refused(config: Path, capsys: Captured) -> None:
    payload = '{"Time":"2021-01-02T09:09:44","DS18B20":{"Temperature":85},"X":{"Temperature":21.5},"TempUnit":"C"}'
    code, found = explain(config, capsys, "tele/boiler/SENSOR", payload)
    assert code == 0
    assert (found["route"]["name"], found["route"]["decoder"]) == ("preset tasmota number 1", "mapping tasmota")
    assert found["device"] == "boiler"
    assert [reading["metric"] for reading in found["readings"]] == ["X.Temperature"]
    [part] = found["rejected"]
    assert (part["path"], part["reason"], part["got"]) == ("$.DS18B20.Temperature", "bad_number", "85")
    assert [tried["why"] for tried in found["tried"]] == ["segment 1 is 'tele', not 'plant'"] * 2


def test_no_route_says_why_and_what_is_nearest(config: Path, capsys: Captured) -> None:
    code, found = explain(config, capsys, "tele/boiler/SENSR", "{}")
    assert (code, found["outcome"], found["reason"], found["route"]) == (1, "dead_letter", "no_route", None)
    assert "preset tasmota number 1 (tele/{device}/SENSOR): segment 3 is 'SENSR', not 'SENSOR'" in found["suggestion"]
    _code, found = explain(config, capsys, "plant/7/temperature/x", "1")
    assert found["tried"][0]["why"] == "the topic has more than the filter's 3 segments"
    _code, found = explain(config, capsys, "plant/7", "1")
    assert found["tried"][0]["why"] == "the topic ends before segment 3 (temperature)"
    _code, found = explain(config, capsys, "x", "1")
    assert found["suggestion"] == 'write a route: [[routes]] filter = "x"'


def test_a_route_that_asks_something_of_the_payload(config: Path, capsys: Captured) -> None:
    code, found = explain(config, capsys, "plant/7/state", "online")
    assert (code, found["outcome"], found["reason"]) == (0, "ignored", "status")
    assert found["route"]["decoder"] == "ignore status"
    code, found = explain(config, capsys, "plant/7/state", "21.5")
    assert (code, found["reason"], found["route"]) == (1, "no_route", None)
    [_other, tried] = found["tried"]
    assert (tried["topic"], tried["why"]) == (True, "the payload does not match: wanted payload = on*")


@pytest.mark.parametrize(
    ("topic", "payload", "name", "outcome"),
    [
        ("tidegate/v1/dev-1/readings", '{"values":{"a":1}}', "the native format", "reading"),
        ("tidegate/receipts/dev-1", "{}", None, "ignored"),
        ("$SYS/broker/uptime", "5", None, "ignored"),
    ],
)
def test_the_products_own_topics(
    config: Path, capsys: Captured, topic: str, payload: str, name: str | None, outcome: str
) -> None:
    code, found = explain(config, capsys, topic, payload)
    assert (code, found["outcome"], found["tried"]) == (0, outcome, [])
    assert (found["route"] and found["route"]["name"]) == name


def test_the_payload_comes_from_a_file_or_stdin(
    config: Path, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\xff\xfe")
    _code, found = explain(config, capsys, "plant/7/temperature", f"@{file}")
    assert found["reason"] == "bad_encoding"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"12 K")))
    _code, found = explain(config, capsys, "plant/7/temperature", "-")
    assert found["readings"][0]["unit"] == "K"
    assert run(["route", "test", "a", f"@{tmp_path / 'absent'}", "--config", str(config)]) == 69
    assert "cannot be read" in capsys.readouterr().err


def test_for_people_it_is_a_short_page(config: Path, capsys: Captured) -> None:
    assert run(["route", "test", "plant/7/temperature", "21.5 °C", "--config", str(config)]) == 0
    out = capsys.readouterr().out
    assert "route     [[routes]] number 1 (plant/{line}/temperature)" in out
    assert "outcome   1 reading\n" in out
    assert "7       temperature  21.5   °C    receive time" in out
    assert run(["route", "test", "plant/7/x", "1", "--config", str(config)]) == 1
    out = capsys.readouterr().out
    assert "dead letter, no_route" in out
    assert "tried     [[routes]] number 2 (plant/{line}/+): the payload does not match" in out


def test_a_wrong_route_is_a_configuration_fault(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[[routes]]\nfilter = "a"\nmapping = "tasmoto"\n')
    assert run(["route", "ls", "--config", str(file)]) == 78
    assert "did you mean 'tasmota'" in capsys.readouterr().err


def test_ls_lists_routes_in_the_order_in_which_they_are_tried(config: Path, capsys: Captured) -> None:
    assert run(["route", "ls", "--config", str(config), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows[:3]] == ["the native format", "[[routes]] number 1", "[[routes]] number 2"]
    assert rows[2]["conditions"] == ["payload = on*"]
    assert {"filter": "tele/{device}/SENSOR", "decoder": "mapping tasmota"}.items() <= next(
        row for row in rows if row["name"] == "preset tasmota number 1"
    ).items()
    assert run(["route", "ls", "--config", str(config)]) == 0
    assert "plant/{line}/temperature" in capsys.readouterr().out.splitlines()[1]

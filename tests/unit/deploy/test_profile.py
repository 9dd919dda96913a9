"""`tidegate profile ls | show | test`: what people see, and exit codes."""

import json
from pathlib import Path

import pytest

from deploy.cli import run
from gateway.device_registry import add_device

SOIL = """
name = "soil"
version = 3
description = "Soil probes"
devices = ["soil-*"]

[metrics.t]
unit = "°F"
convert_to = "°C"
max = 60
required = true
on = { out_of_range = "reject" }
"""
ALL = 'name = "all"\nversion = 1\ndevices = ["*"]\nunknown_metrics = "flag"\n[metrics.t]\nmax_step = 5\n'


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "soil.toml").write_text(SOIL)
    (tmp_path / "profiles" / "soil-2.toml").write_text(SOIL.replace("version = 3", "version = 2"))
    (tmp_path / "profiles" / "all.toml").write_text(ALL)
    add_device(tmp_path / "devices.jsonl", "x", profile="soil", tags={"site": "berlin"})
    (tmp_path / "tidegate.toml").write_text(
        '[gateway]\nprofiles = "profiles"\ndevice_registry = "devices.jsonl"\n'
        '[[routes]]\nfilter = "garden/{id}"\ndevice = "{id}"\ndecoder = "json"\nprofile = "soil"\n'
    )
    return tmp_path


def lines(*messages: tuple[str, object]) -> str:
    return "\n".join(
        json.dumps({"id": number, "topic": topic, "payload": json.dumps(body)})
        for number, (topic, body) in enumerate(messages, start=1)
    )


def test_ls_names_versions_and_what_applies(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "ls", "--config", "tidegate.toml"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out == [
        "all@1  *  1 metrics  all.toml",
        "soil@2  soil-*  1 metrics  soil-2.toml  (a higher version applies)",
        "soil@3  soil-*  1 metrics  soil.toml",
    ]


def test_ls_says_which_file_is_bad_and_shows_the_rest(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "profiles" / "bad.toml").write_text(SOIL.replace("max", "maxx"))
    assert run(["profile", "ls", "--folder", "profiles", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [one["version"] for one in told["profiles"]] == [1, 2, 3]
    assert told["refused"] == {"bad.toml": "unknown key metrics.t.maxx; did you mean max?"}
    assert run(["config", "validate", "--config", "tidegate.toml"]) == 78
    assert "bad.toml: unknown key metrics.t.maxx; did you mean max?" in capsys.readouterr().err


def test_ls_without_any_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "ls", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["profiles"] == []
    assert "set gateway.profiles, or use --folder" in captured.err


def test_show_says_which_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "show", "soil-1", "--config", "tidegate.toml"]) == 0
    captured = capsys.readouterr()
    assert "soil-1 (not registered): profile soil@3, by pattern soil-*" in captured.out
    assert "t: a number of at most 60 °C; required; in °F if the payload names no unit; converted to °C" in captured.out
    assert "reject: out_of_range; salvage: wrong_type" in captured.out
    assert "Less specific: all@1 by pattern *" in captured.err
    assert run(["profile", "show", "x", "--config", "tidegate.toml"]) == 0
    assert "x (registered, site=berlin): profile soil@3, by the registry" in capsys.readouterr().out


def test_show_takes_the_route_of_a_topic(capsys: pytest.CaptureFixture[str]) -> None:
    def because(*more: str) -> object:
        assert run(["profile", "show", "y", "--config", "tidegate.toml", "--json", *more]) == 0
        told = json.loads(capsys.readouterr().out)
        return told["profile"], told["because"]

    assert because() == ("all@1", "*")
    assert because("--topic", "garden/y") == ("soil@3", "route")


def test_show_where_no_profile_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "show", "y"]) == 0
    assert capsys.readouterr().out == "y (not registered): no profile applies\n"


def test_test_shows_each_reading_and_fails_where_one_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "m.jsonl").write_text(
        lines(
            ("tidegate/v1/soil-1/readings", {"values": {"t": 68}}),
            ("tidegate/v1/soil-1/readings", {"values": {"t": 212}}),
            ("tidegate/v1/other/readings", {"values": {"t": 1, "u": 2}}),
            ("tidegate/v1/other/readings", {"values": {"t": 90, "v": None}}),
            ("garden/soil-1", {"t": 50}),
        )
    )
    assert run(["profile", "test", "m.jsonl", "--config", "tidegate.toml"]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "1: stored",
        "  device soil-1, profile soil@3 (soil-*)",
        "    ok       t  20 °C (sent 68)",
        "2: rejected (out_of_range)",
        "  device soil-1, profile soil@3 (soil-*)",
        "    rejected $.values.t  out_of_range: got 212 °F = 100 °C, wanted a number of at most 60 °C",
        "3: stored",
        "  device other, profile all@1 (*)",
        "    ok       t  1",
        "    flagged  u  2  unknown_metric",
        "4: rejected (wrong_type)",
        "  device other, profile all@1 (*)",
        "    rejected $.values.t  step_exceeded: got 90 after 1, wanted a step of at most 5",
        '    rejected $.values.v  wrong_type: got null, wanted a number, boolean, string or {"value": …, "unit": …}',
        "5: stored",
        "  device soil-1, profile soil@3 (route)",
        "    ok       t  10 °C (sent 50)",
    ]
    assert captured.err == "5 messages: 3 stored, 0 stored in part, 2 rejected, 0 ignored.\n"


def test_test_as_json_is_a_line_per_message(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "m.jsonl").write_text(lines(("tidegate/v1/soil-1/readings", {"values": {"t": 50}})))
    assert run(["profile", "test", "m.jsonl", "--folder", "profiles", "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    [check] = json.loads(line)["checks"]
    assert (check["device"], check["profile"], check["because"]) == ("soil-1", "soil@3", "soil-*")
    [reading] = check["readings"]
    assert reading["verdict"] == "ok"
    assert (reading["path"], reading["sent"], reading["stored"]) == ("$.values.t", "50", "10 °C")


def test_decode_applies_profiles(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "m.jsonl").write_text(lines(("tidegate/v1/soil-1/readings", {"values": {"t": 212}})))
    assert run(["decode", "--config", "tidegate.toml", "m.jsonl"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["reason"], told["profile"], told["path"]) == (
        "dead_letter", "out_of_range", "soil@3", "$.values.t",
    )  # fmt: skip


def test_a_file_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "test", "nowhere.jsonl", "--folder", "profiles"]) == 69
    assert "nowhere.jsonl cannot be read" in capsys.readouterr().err
    assert run(["profile", "ls", "--folder", "nowhere"]) == 78

"""`tidegate route suggest`: from messages to a route in the settings file."""

import io
import json
import tomllib
from pathlib import Path

import pytest

from deploy.cli import run
from deploy.command_line import command_name
from deploy.commands.route_suggest import suggest_next_step

Captured = pytest.CaptureFixture[str]
LINES = (
    'plant/kiln-4/state {"at": 1795890000000, "temp_c": "812.5", "fw": "1.2.0"}\n'
    '{"topic": "plant/kiln-5/state", "payload": "{\\"at\\": 1795890001000, \\"temp_c\\": \\"99.0\\", \\"fw\\": \\"1.2.0\\"}"}\n'
)
OWN = '# my settings\n[gateway]\nzone = "Europe/Berlin"\n\n[[routes]]\nfilter = "plant/#"\n'


@pytest.fixture
def messages(tmp_path: Path) -> Path:
    file = tmp_path / "messages.txt"
    file.write_text(LINES, "utf-8")
    return file


def test_the_draft_is_shown_with_its_readings_and_written_on_yes(
    messages: Path, tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "new" / "settings.toml"
    assert run(["route", "suggest", "--file", str(messages), "--write", str(file), "--yes"]) == 0
    shown = capsys.readouterr().out
    assert "kiln-4  temp_c  812.5  °C    2026-11-28T18:20:00Z" in shown
    assert "left out  fw: " in shown
    [route] = tomllib.loads(file.read_text("utf-8"))["routes"]
    assert (route["filter"], route["device"]) == ("plant/{device}/state", "{device}")
    capsys.readouterr()
    payload = '{"at": 1795890000000, "temp_c": "12.5"}'
    assert run(["route", "test", "plant/kiln-9/state", payload, "--config", str(file), "--json"]) == 0
    [reading] = json.loads(capsys.readouterr().out)["readings"]
    assert (reading["device"], reading["value"], reading["unit"]) == ("kiln-9", 12.5, "°C")


def test_a_run_takes_the_file_that_was_written_without_a_restart() -> None:
    said = suggest_next_step(Path("my.toml"), None, Path("my data"), from_dlq=True)
    name = command_name()
    assert f"`{name} route apply my.toml --data 'my data'` applies it to the running gateway. " in said
    assert f"`{name} dlq redrive --data 'my data'` stores" in said
    assert suggest_next_step(Path("x"), None, None, from_dlq=False) == "Restart the gateway with it."
    assert suggest_next_step(Path("x"), Path("y"), None, from_dlq=False) == "Restart the gateway with it."
    same = suggest_next_step(Path("x"), Path("x"), None, from_dlq=False)
    assert same == "A gateway that runs with this file reads it within seconds."


def test_what_the_file_says_stays_and_the_draft_comes_before_the_route_that_took_the_topic(
    messages: Path, tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(OWN, "utf-8")
    file.chmod(0o640)
    assert run(["route", "suggest", "--file", str(messages), "--config", str(file), "--yes"]) == 0
    text = file.read_text("utf-8")
    head, tail = OWN.split("[[routes]]")
    assert text.startswith(head)
    assert text.endswith(f"[[routes]]{tail}")
    assert [route["filter"] for route in tomllib.loads(text)["routes"]] == ["plant/{device}/state", "plant/#"]
    assert file.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir() if each.name.endswith(".part")] == []
    capsys.readouterr()
    assert run(["route", "suggest", "--file", str(messages), "--config", str(file), "--yes"]) == 78
    assert "already has this route" in capsys.readouterr().err
    assert file.read_text("utf-8") == text


def test_nothing_is_written_without_a_yes(messages: Path, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "settings.toml"
    assert run(["route", "suggest", "--file", str(messages), "--write", str(file)]) == 1
    assert "--yes" in capsys.readouterr().err
    assert not file.exists()


def test_a_file_that_is_wrong_stays_as_it_is(messages: Path, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[gateway]\nzoen = 1\n", "utf-8")
    assert run(["route", "suggest", "--file", str(messages), "--write", str(file), "--yes"]) == 78
    assert "zoen" in capsys.readouterr().err
    assert file.read_text("utf-8") == "[gateway]\nzoen = 1\n"


def test_messages_come_from_stdin_and_one_topic_of_them(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(LINES.encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert run(["route", "suggest", "plant/kiln-5/state", "--file", "-", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert [message["topic"] for message in found["messages"]] == ["plant/kiln-5/state"]
    assert found["works"]
    assert {"name": "fw", "why": "describes the sender or the message"} in found["left_out"]


def test_one_source_must_be_named_and_have_a_message(messages: Path, capsys: Captured) -> None:
    assert run(["route", "suggest", "a/b"]) == 2
    assert "--from-dlq" in capsys.readouterr().err
    assert run(["route", "suggest", "no/such", "--file", str(messages)]) == 69
    assert "no complete message of no/such" in capsys.readouterr().err


def test_what_no_draft_reads_is_said(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "messages.txt"
    file.write_text('lora/up {"deviceId": "70b3d57ed0000001", "data": "AQIDBAUGBwg="}\n', "utf-8")
    assert run(["route", "suggest", "--file", str(file), "--write", str(tmp_path / "x.toml"), "--yes"]) == 1
    assert "tidegate route new" in capsys.readouterr().err
    assert not (tmp_path / "x.toml").exists()


def test_messages_that_no_route_can_take_are_said(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "sms.txt"
    file.write_text("sms/gateway/+436641234567 21.5\n", encoding="utf-8")
    assert run(["route", "suggest", "--file", str(file)]) == 1
    assert "MQTT does not allow publishing" in capsys.readouterr().err


def test_a_draft_in_doubt_is_shown_and_not_written(tmp_path: Path, capsys: Captured) -> None:
    file, target = tmp_path / "seen.txt", tmp_path / "my.toml"
    groups = '{"ts": 1795830000, "groups": [{"values": [{"n": "in", "v": 1}]}, {"values": [{"n": "in", "v": 2}]}]}'
    file.write_text(f'hut/dev-1 {groups}\nlab/kiln-4 {{"t": 21.5}}\n', encoding="utf-8")
    assert run(["route", "suggest", "--file", str(file), "--write", str(target), "--yes"]) == 0
    shown = capsys.readouterr()
    assert "doubt     2 values of one message have the name in and the same time" in shown.out
    assert "1 of 2 drafts need an edit" in shown.err
    assert "hut" not in target.read_text("utf-8")
    assert 'filter = "lab/{device}"' in target.read_text("utf-8")


def test_a_payload_cannot_steer_the_terminal_or_leave_the_comment(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "messages.txt"
    payload = json.dumps({"evil\u001b[2J\nfilter": 1.5, "model\u009b": "x", 't"]': "21.5"}, ensure_ascii=False)
    file.write_text(json.dumps({"topic": "a\u001b[1m/b", "payload": payload}) + "\n", "utf-8")
    run(["route", "suggest", "--file", str(file), "--write", str(tmp_path / "x.toml"), "--yes"])
    shown = capsys.readouterr()
    assert not [sign for sign in shown.out + shown.err if not sign.isprintable() and sign != "\n"]

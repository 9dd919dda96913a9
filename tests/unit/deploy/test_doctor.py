"""`doctor --config` as a command: what it asks, errors as findings with a next step, exit codes, lines and JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run
from deploy.doctor import examine
from deploy.doctor.examine import examine_production
from deploy.local.preflight import PreflightCheck
from deploy.settings import Settings
from ingest.contract.errors import FatalError, MissingRightError, RetryableError

Captured = pytest.CaptureFixture[str]


def raising(error: Exception) -> Any:
    def ask(*_arguments: Any, **_options: Any) -> Any:
        raise error

    return ask


def examined(tmp_path: Path, *answering: str) -> dict[str, PreflightCheck]:
    settings = Settings.model_validate(
        {"lake": {"root": str(tmp_path / "tables")}, "stream": {"checkpoint": str(tmp_path / "checkpoint")}}
    )
    checks = examine_production(settings, answering, outage_seconds=3600.0, timeout_seconds=0.1)
    return {check.name: check for check in checks}


@pytest.fixture
def nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ask_broker", "read_facts", "read_state", "check_kafka_clock"):
        monkeypatch.setattr(examine, name, raising(RetryableError("the server is slow. Look at its log")))


def test_servers_that_do_not_answer_are_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ask_broker", "read_facts", "read_state", "check_kafka_clock"):
        monkeypatch.setattr(examine, name, raising(AssertionError("asked")))
    assert set(examined(tmp_path)) == {"tables", "checkpoint", "disk", "filters"}


@pytest.mark.usefixtures("nothing_answers")
def test_a_check_that_cannot_run_is_a_finding_with_its_next_step(tmp_path: Path) -> None:
    found = examined(tmp_path, "mqtt", "kafka")
    for name in ("mqtt login", "topics", "client id", "clock"):
        assert (found[name].state, found[name].text, found[name].fix) == (
            "fail",
            "the server is slow",
            "Look at its log",
        )


@pytest.mark.usefixtures("nothing_answers")
@pytest.mark.parametrize(
    ("error", "state", "words"),
    [
        (MissingRightError("user u may not read it: grant it READ on the topic"), "warn", "other gateways are unknown"),
        (FatalError("Kafka has no topic"), "ok", "not used by a running gateway"),
    ],
)
def test_unknown_gateways_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, state: str, words: str
) -> None:
    monkeypatch.setattr(examine, "read_state", raising(error))
    found = examined(tmp_path, "kafka")["client id"]
    assert (found.state, words in found.text) == (state, True)


def test_wrong_settings_are_78_and_not_a_finding(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "prod.toml"
    file.write_text('[kafka]\nsasl_username = "u"\n')
    assert run(["doctor", "--config", str(file)]) == 78
    assert run(["doctor", "--config", str(file), "--outage", "soon"]) == 2
    assert capsys.readouterr().out == ""


def test_lines_and_json_say_the_same_and_a_warning_alone_is_not_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def findings(*_arguments: Any, **_options: Any) -> Iterator[PreflightCheck]:
        yield PreflightCheck("a long name", "warn", "something is odd", "Change it.")

    monkeypatch.setattr(
        "deploy.local.preflight.examine_setup", lambda *_, **__: iter([PreflightCheck("x", "ok", "fine")])
    )
    monkeypatch.setattr(examine, "examine_production", findings)
    file = tmp_path / "prod.toml"
    file.write_text("")
    assert run(["doctor", "--config", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok    x           fine",
        "warn  a long name something is odd. Change it.",
    ]
    assert run(["doctor", "--config", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], [one["fix"] for one in told["checks"]]) == (True, ["", "Change it."])

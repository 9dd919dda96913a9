"""The monitor as a whole: the commands that it hands to people, and the secrets that it does not."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run
from deploy.local.runfile import RunFile
from deploy.monitor.monitor_process import _command_line
from deploy.monitor.page_answers import make_page_api
from deploy.monitor.silent_devices import HealthyFlowSpans
from deploy.settings import Settings
from monitoring.page.page_api import PageApi
from tests.support.secret_settings import with_secrets


def test_commands_name_the_embedded_run_or_the_settings_that_are_watched(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    assert _command_line(config).where == f"--config {config}"
    RunFile("r", 1, 0.0).write(tmp_path)
    assert _command_line(config).where == f"--data {tmp_path}"
    assert _command_line(tmp_path / "mine.toml").where == f"--config {tmp_path / 'mine.toml'}"
    RunFile("r", 1, 0.0, part_configs=["config-monitor.toml"]).write(tmp_path)
    assert _command_line(tmp_path / "config-monitor.toml").where == f"--data {tmp_path}", "a secured run's own file"


def test_no_secret_stands_in_any_answer(
    small_lake: Any, tmp_path: Path, make_page_stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings full of secrets: neither a snapshot nor any answer, refusal or metric holds one of them."""
    from deploy.monitor.monitor_process import Monitor

    secrets = {name: f"S3CR3T-{name}" for name in ("page", "extra")}
    (tmp_path / "token").write_text(secrets["page"])
    plain = Settings.model_validate(
        {
            "mqtt": {"username": "u", "password": "x", "port": 1},
            "kafka": {
                "bootstrap_servers": "127.0.0.1:1", "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_username": "u", "sasl_password": "x", "extra": {"client.rack": secrets["extra"]},
            },
            "lake": {"root": small_lake.root},
            "monitoring": {"page_token_file": str(tmp_path / "token"), "page_port": 0},
        }
    )  # fmt: skip
    settings, filled = with_secrets(plain)
    # Its key belongs to TLS, which these settings do not use.
    settings = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"ssl_key_password": None})})
    monitor = Monitor(settings, tmp_path / "config.toml", threading.Event())
    monitor.look.run_once()
    monkeypatch.setattr("ingest.gateway_state.read_state", lambda _kafka: [])
    stage = make_page_stage(
        page_token_file=str(tmp_path / "token"),
        answers=_as_mapping(make_page_api(settings, threading.Event(), HealthyFlowSpans())),
    )
    snapshot = monitor._board.encoded or b""
    assert b'"redrive":true' in snapshot
    told = [snapshot]
    for target in (
        "/api/device?device=x",
        "/api/devices",
        "/api/dead-letters",
        "/api/dead-letter?id=0-1",
        "/metrics",
        "/nowhere",
    ):
        told.append(stage.ask(target).body)
    for given in ("x", secrets["page"]):
        body = [b'{"ids": ["0-1"], "dry_run": false}' if given == "x" else b'{"ids": ["0-1"], "dry_run": true}']
        told.append(
            stage.ask("/api/redrive", method="POST", headers=[("authorization", f"Bearer {given}")], chunks=body).body
        )
    for text in (*secrets.values(), *filled.values()):
        assert not [answer for answer in told if text.encode() in answer]


def _as_mapping(answers: PageApi) -> dict[str, Any]:
    return {name: getattr(answers, name) for name in ("device", "devices", "dead_letters", "dead_letter", "redrive")}


@pytest.mark.parametrize("command", [["monitor"], ["config", "validate"], ["up"]])
def test_a_page_for_the_network_without_a_login_is_refused_before_anything_starts(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEGATE_DATA", str(tmp_path / "data"))
    config = tmp_path / "open.toml"
    config.write_text('[monitoring]\nhost = "0.0.0.0"\n')
    assert run([*command, "--config", str(config)]) == 78
    told = capsys.readouterr()
    assert "Set monitoring.read_token_file to a file that holds a token" in told.err
    assert told.out == ""
    assert not (tmp_path / "data").exists()

"""`device add`, and what `device watch` prints of hostile receipts: no server."""

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli import app, run
from deploy.device_watch import show_line
from gateway.device_registry import read_registry
from gateway.devtools.listeners import ReceiptListener
from gateway.gateway_settings import MqttSettings


def test_a_device_is_added_once_with_profile_and_tags(tmp_path: Path) -> None:
    config, registry = tmp_path / "t.toml", tmp_path / "devices.jsonl"
    config.write_text(f"[gateway]\ndevice_registry = {json.dumps(str(registry))}\n", encoding="utf-8")
    command = [
        "device",
        "add",
        "pump 1",
        "--profile",
        "pump",
        "--tag",
        "site=Köln=2",
        "--config",
        str(config),
        "--json",
    ]
    added = [json.loads(CliRunner().invoke(app, command, catch_exceptions=False).stdout)["added"] for _ in range(2)]
    assert added == [True, False]
    entry = read_registry(registry)["pump 1"]
    assert (entry.profile, entry.tags) == ("pump", {"site": "Köln=2"})


def test_what_add_cannot_do_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "t.toml"
    config.write_text("", encoding="utf-8")
    assert run(["device", "add", "x", "--config", str(config)]) == 78
    assert "gateway.device_registry is not set" in capsys.readouterr().err
    config.write_text(f"[gateway]\ndevice_registry = {json.dumps(str(tmp_path))}\n", encoding="utf-8")
    assert run(["device", "add", "x", "--config", str(config), "--tag", "site"]) == 2
    assert "use name=value" in capsys.readouterr().err
    assert run(["device", "add", "x", "--config", str(config)]) in (1, 78)
    assert str(tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[1]",
        b"no json",
        b"[" * 100_000,
        b'{"reason": "\\u001b[2J\\n\\u009b", "held_back": ["\\u001b"], "count": "x"}',
    ],
)
def test_whatever_stands_on_a_receipts_topic_is_one_safe_entry(payload: bytes) -> None:
    listener = ReceiptListener(MqttSettings(), "attic", client_id="t")
    message: Any = SimpleNamespace(payload=payload)
    listener._on_message(listener._client, None, message)
    told = listener.next(0)
    assert told is not None
    shown = show_line({"kind": "refused", "next": "x", **told}, as_json=False)
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert shown.count("\n") == 1


def test_a_stored_reading_is_one_line() -> None:
    row = {
        "kind": "stored", "metric": "temp", "value": 21.5, "text": None, "unit": "°C", "message_id": None, "flags": ["x"],
        "event_time": datetime(2026, 5, 1, 12, tzinfo=UTC),
    }  # fmt: skip
    assert show_line(row, as_json=False).endswith("stored   temp = 21.5 °C  at 2026-05-01T12:00:00.000Z  x")
    assert json.loads(show_line(row, as_json=True))["event_time"] == "2026-05-01T12:00:00Z"

"""`bench run` of kind mqtt on a real mosquitto: plaintext and TLS with a password; nothing of it stays behind."""

import json
import tempfile
from pathlib import Path

import psutil
import pytest

from deploy.bench.mqtt_load.connection import LoadConnection
from deploy.bench.mqtt_load.packets import PacketForm
from deploy.bench.suite.command import RunRequest, run_scenarios
from deploy.bench.suite.scenario import ScenarioTarget
from deploy.bench.suite.scenario_run import target_text
from deploy.bench.temporary import PREFIX, clear_orphans
from deploy.local.broker import find_mosquitto
from deploy.testbed.mosquitto import open_mosquitto

SCENARIO = """
title = "mqtt"
repeats = 1
warmup_runs = 0
[workload]
kind = "mqtt"
message_bytes = 200
producers = 2
warmup_messages = 100
[[matrix]]
messages = 3001
[[matrix]]
messages = 1200
rate = 800
[[targets]]
runs = "mosquitto"
security = "plaintext"
[[targets]]
runs = "mosquitto"
security = "tls_password"
[[goals]]
figure = "lost"
at_most = 0
"""

pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not on this machine")


def test_all_that_is_published_arrives_with_and_without_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "own.toml").write_text(SCENARIO)
    told: list[str] = []
    (result,) = run_scenarios(RunRequest((str(tmp_path / "own.toml"),)), say=told.append, ask=lambda _: False)
    assert result["faults"] == []
    cells = result["cells"]
    assert [(cell["runs"], cell["security"], cell["messages"], cell["lost"]) for cell in cells] == [
        ("mosquitto", security, messages, 0) for security in ("plaintext", "tls_password") for messages in (3001, 1200)
    ]
    for cell in cells:
        assert (cell["received"], cell["unacknowledged"], cell["duplicates"]) == (cell["messages"], 0, 0)
        assert 0 < cell["puback_p50_ms"] <= cell["puback_p99_ms"] and cell["end_to_end_p50_ms"] > 0
        assert cell["publish_per_second"] > 0 < cell["broker_cpu_us_per_message"]
        assert {"puback", "end_to_end"} == set(cell["curves"]) and cell["mosquitto_rss_mb"] > 0
        # Open loop: 1,200 messages at 800 a second take one and a half seconds, however quick the broker is.
        assert not cell["rate"] or cell["publish_per_second"] < 805
    assert cells[1]["over_time"]["puback"]["seconds"]
    assert any(target_text(ScenarioTarget(runs="mosquitto", security="tls_password")) in line for line in told)
    assert not list(tmp_path.glob(f"{PREFIX}*"))


def test_a_client_without_the_password_is_refused_and_a_broker_that_is_left_is_ended(tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}left ü"
    folder.mkdir()
    with open_mosquitto(folder, "tls_password") as (server, address):
        for wrong in ({"password": "wrong"}, {"username": "", "password": ""}):
            with pytest.raises(ConnectionError, match="refuses a client"):
                LoadConnection({**vars(address), **wrong}, "c")
        link = LoadConnection(vars(address), "c")
        link.send(PacketForm("t", 16).build(*(_one() for _ in range(3))))
        assert link.receive(10)[:2] == b"\x40\x02"
        link.close()
        (folder / "owner.json").write_text(json.dumps({"pid": 2**22 + 1, "started_at": 1.0}))
        assert clear_orphans(tmp_path) == [folder]
        assert not psutil.pid_exists(server.pid or 0) or not server.alive


def _one() -> list[int]:
    return [1]

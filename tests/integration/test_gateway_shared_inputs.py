"""Profiles and devices from a real Kafka: pushed by the commands, followed by two gateways."""

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run
from deploy.processes import follow_inputs
from deploy.settings import load_settings
from gateway.device_registry import read_registry
from ingest.kafka_settings import KafkaSettings
from ingest.topics.setup import ensure_topics
from tests.support.servers import KafkaServer

PUMP = 'name = "pump"\nversion = 1\n[metrics.t]\ntype = "number"\nmax = 10\n'


@pytest.fixture
def settings_file(tmp_path: Path, kafka_server: KafkaServer) -> Callable[[str], Path]:
    """Settings of a gateway of that name, with places of its own."""
    ensure_topics(KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers))

    def make(name: str) -> Path:
        place = tmp_path / name
        place.mkdir()
        file = place / "tidegate.toml"
        file.write_text(
            f'[kafka]\nbootstrap_servers = "{kafka_server.bootstrap_servers}"\n[gateway]\nshared_inputs = true\n'
            f'profiles = "{place / "profiles"}"\ndevice_registry = "{place / "devices.jsonl"}"\n'
        )
        return file

    return make


def test_a_push_reaches_all_gateways(
    settings_file: Callable[[str], Path],
    tmp_path: Path,
    wait_until: Callable[..., Any],
    capfd: pytest.CaptureFixture[str],
) -> None:
    files = [settings_file("one"), settings_file("two")]
    config, folder, registry = str(files[0]), tmp_path / "mine", tmp_path / "mine.jsonl"
    folder.mkdir()
    (folder / "pump.toml").write_text(PUMP)
    registry.write_text('{"device":"pump-1","profile":"pump"}\n')
    assert run(["profile", "push", "--config", config, "--folder", str(folder), "--dry-run", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["changed"] == ["pump.toml"]
    with ExitStack() as running:
        for file in files:
            running.enter_context(follow_inputs(load_settings(file), threading.Event()))
        assert run(["profile", "push", "--config", config, "--folder", str(folder)]) == 0
        assert run(["device", "push", "--config", config, str(registry)]) == 0
        assert run(["device", "add", "--config", config, "pump-2", "--tag", "site=b"]) == 0
        assert run(["device", "add", "--config", config, "pump-2", "--tag", "site=b"]) == 0
        told = capfd.readouterr()
        assert "pump-2 is already registered like this in Kafka" in told.err
        for file in files:
            devices = file.with_name("devices.jsonl")
            wait_until(devices.exists, what="the first copy of the devices")
            wait_until(lambda devices=devices: set(read_registry(devices)) == {"pump-1", "pump-2"}, what="both devices")
            assert (file.parent / "profiles" / "pump.toml").read_text() == PUMP
        assert run(["device", "push", "--config", config, str(registry)]) == 0
        assert "Devices in Kafka: 0 new or changed, 1 removed, 1 as before (pump-2)." in capfd.readouterr().out
        for file in files:
            devices = file.with_name("devices.jsonl")
            wait_until(lambda devices=devices: set(read_registry(devices)) == {"pump-1"}, what="one device")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [(["profile", "push", "--folder", "{empty}"], "has no profile"), (["device", "push", "{empty}/none"], "cannot be read"),
     (["profile", "push", "--folder", "{bad}"], "unknown key"), (["device", "push", "{blank}"], "has no device")],
)  # fmt: skip
def test_a_bad_push_sends_nothing(
    settings_file: Callable[[str], Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    wanted: str,
) -> None:
    for name in ("empty", "bad"):
        (tmp_path / name).mkdir()
    (tmp_path / "bad" / "x.toml").write_text("nonsense = 1\n")
    (tmp_path / "blank").write_text("\n")
    places = {name: str(tmp_path / name) for name in ("empty", "bad", "blank")}
    code = run([*(word.format(**places) for word in arguments), "--config", str(settings_file("one"))])
    assert code == 78
    assert wanted in capfd.readouterr().err

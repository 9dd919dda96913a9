"""What an embedded run decides: settings of its parts, memory, and what it tells when it is ready."""

import json
from pathlib import Path

import pytest

from deploy.local.announce import announcement, render_announcement
from deploy.local.budget import memory_budget_mb, memory_line
from deploy.local.locate import locate_settings
from deploy.local.plan import embedded_settings
from deploy.settings import Settings, load_settings
from deploy.settings_file import to_toml, write_private
from gateway.decoders.mapping_settings import MappingSettings
from ingest.contract.errors import UnavailableError

PORTS = {"mqtt": 1, "mqtt_v5": 2, "kafka": 3, "kafka_controller": 4, "gateway": 5, "stream": 6, "canary": 7}


def embedded(tmp_path: Path, **overrides: object) -> Settings:
    person = load_settings(environ={}, overrides={"mqtt.subscriptions": ["#", "$aws/#"], **overrides})
    return embedded_settings(person, tmp_path, PORTS, username="tidegate", password="hunter2")


def test_the_run_decides_addresses_and_places_and_keeps_the_rest(tmp_path: Path) -> None:
    routes = [{"filter": "site/#", "zone": "Europe/Berlin"}]
    settings = embedded(tmp_path, routes=routes, **{"kafka.security_protocol": "SASL_SSL", "kafka.partitions": 12})
    assert (settings.mqtt.port, settings.kafka.bootstrap_servers) == (2, "127.0.0.1:3")
    assert (settings.kafka.security_protocol, settings.kafka.partitions) == ("PLAINTEXT", 2)
    assert settings.lake.root == str(tmp_path / "tables")
    assert settings.mqtt.subscriptions == ("#", "$aws/#")
    assert settings.routes[0].zone == "Europe/Berlin"
    assert embedded(tmp_path, **{"mqtt.protocol": "3.1.1"}).mqtt.port == 1


def test_mappings_reach_the_parts_as_they_were_written(tmp_path: Path) -> None:
    case = {"when": {"x": True}, "skip": "x"}
    mappings = {"mine.v1": {"prefix": "p.", "units": {"y": "V"}, "cases": [case]}}
    settings = embedded(tmp_path, mappings=mappings, routes=[{"filter": "a/#", "mapping": "mine.v1"}])
    file = tmp_path / "config.toml"
    file.write_text(to_toml(settings), "utf-8")
    for again in (settings, load_settings(file, environ={})):
        mapping = again.routes[0].mapping
        assert isinstance(mapping, MappingSettings)
        assert mapping == again.mappings["mine.v1"]
        assert mapping.cases[0].model_fields_set == {"when", "skip"}


def test_profiles_and_devices_have_a_place_in_the_run_unless_the_person_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = embedded(tmp_path).gateway
    assert (gateway.profiles, gateway.device_registry) == (str(tmp_path / "profiles"), str(tmp_path / "devices.jsonl"))
    monkeypatch.chdir(tmp_path)
    assert embedded(tmp_path / "data", **{"gateway.profiles": "mine"}).gateway.profiles == str(tmp_path / "mine")


def test_the_embedded_kafka_is_bounded_for_a_laptop(tmp_path: Path) -> None:
    settings = embedded(tmp_path)
    assert settings.kafka.partitions * settings.kafka.retention_bytes <= 2 * 1024**3


def test_memory_stays_within_the_promise() -> None:
    assert sum(memory_budget_mb(Settings()).values()) <= 3.5 * 1024
    assert "needs up to" in memory_line(Settings())[1]


def test_it_tells_four_things(tmp_path: Path) -> None:
    told = announcement(embedded(tmp_path), tmp_path / "with space", PORTS)
    text = render_announcement(told, as_json=False)
    assert "mqtt://127.0.0.1:1  (MQTT 5 on port 2)  user tidegate  password hunter2" in text
    assert str(tmp_path / "tables") in text
    assert "http://127.0.0.1:5/metrics" in text
    assert text.count(f"--data '{tmp_path}/with space'") == 3
    assert json.loads(render_announcement(told, as_json=True))["ready"] is True


def test_readers_find_a_stopped_run_by_its_folder(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="No embedded run"):
        locate_settings(None, tmp_path, needs_run=False)
    write_private(tmp_path / "config.toml", to_toml(embedded(tmp_path)))
    assert locate_settings(None, tmp_path, needs_run=False).lake.root == str(tmp_path / "tables")
    with pytest.raises(UnavailableError, match="Nothing runs"):
        locate_settings(None, tmp_path, needs_run=True)


def test_iotcore_gets_a_listener_per_version_and_the_gateway_that_of_its_own(tmp_path: Path) -> None:
    overrides = {"embedded.broker": "iotcore"}
    assert embedded(tmp_path, **overrides).mqtt.port == PORTS["mqtt_v5"]
    assert embedded(tmp_path, **overrides, **{"mqtt.protocol": "3.1.1"}).mqtt.port == PORTS["mqtt"]


def test_the_gateway_remembers_its_subscriptions_in_the_runs_folder(tmp_path: Path) -> None:
    assert embedded(tmp_path).mqtt.session_file == str(tmp_path / "gateway-session.json")

"""What an embedded run decides: settings of its parts, memory, and what it tells when it is ready."""

import json
from pathlib import Path

import pytest
import yaml

from deploy.local import artifacts
from deploy.local.announce import announcement, render_announcement
from deploy.local.budget import describe_memory_budget, memory_budget_mb
from deploy.local.locate_settings import locate_settings
from deploy.local.monitor_client import make_page_token, page_address, page_token
from deploy.local.ports import PortClaims
from deploy.local.prometheus_servers import FLAGS, make_watchers, watcher_obstacle
from deploy.local.run_logins import RunLogins
from deploy.local.run_plan import choose_ports, embedded_settings
from deploy.settings import Settings, load_settings, masked_settings
from deploy.settings_file import to_toml, write_private
from gateway.decoders.mapping.settings import MappingSettings
from gateway.routes import shipped_mappings
from ingest.contract.errors import UnavailableError

PORTS = {
    "mqtt": 1, "mqtt_v5": 2, "kafka": 3, "kafka_controller": 4, "gateway": 5, "stream": 6, "canary": 7, "page": 8,
    "kafka_jmx": 9, "spark_jmx": 10,
}  # fmt: skip
LOGINS = RunLogins(
    {"gateway": "g-secret", "canary": "c-secret", "monitor": "m-secret", "tidegate": "hunter2"},
    client_id=f"tidegate-gateway-{'s3' * 16}",
)
WATCHED = {**PORTS, "prometheus": 11, "alertmanager": 12}


def embedded(tmp_path: Path, ports: dict[str, int] = PORTS, **overrides: object) -> Settings:
    person = load_settings(environ={}, overrides={"mqtt.subscriptions": ["#", "$aws/#"], **overrides})
    return embedded_settings(person, tmp_path, ports, LOGINS)


def test_the_run_decides_addresses_and_places_and_keeps_the_rest(tmp_path: Path) -> None:
    routes = [{"filter": "site/#", "zone": "Europe/Berlin"}]
    settings = embedded(tmp_path, routes=routes, **{"kafka.security_protocol": "SASL_SSL", "kafka.partitions": 12})
    assert (settings.mqtt.port, settings.kafka.bootstrap_servers) == (2, "127.0.0.1:3")
    assert (settings.kafka.security_protocol, settings.kafka.partitions) == ("PLAINTEXT", 2)
    assert settings.lake.root == str(tmp_path / "tables")
    assert settings.mqtt.subscriptions == ("#", "$aws/#")
    assert settings.routes[0].zone == "Europe/Berlin"
    assert embedded(tmp_path, **{"mqtt.protocol": "3.1.1"}).mqtt.port == 1


@pytest.mark.parametrize("named", [None, "latency", "balanced", "thrifty"])
def test_a_run_batches_for_a_small_fleet_unless_the_settings_name_a_profile(tmp_path: Path, named: str | None) -> None:
    settings = embedded(tmp_path, **({"stream.profile": named} if named else {}))
    assert settings.stream.profile == (named or "balanced")
    assert Settings().stream.profile == "latency", "a stream on a cluster begins a batch at once"


def test_each_part_has_a_user_of_its_own_and_the_secrets_are_not_shown(tmp_path: Path) -> None:
    settings = embedded(tmp_path, **{"mqtt.tls": True, "mqtt.ca_file": "/etc/ca.pem"})
    users = {None: "gateway", "canary": "canary", "monitor": "monitor", "devices": "tidegate"}
    for name, user in users.items():
        mqtt = settings.mqtt if name is None else settings.mqtt.with_login(name)  # type: ignore[arg-type]
        assert (mqtt.username, mqtt.tls, mqtt.ca_file) == (user, False, None)
        assert mqtt.password is not None and mqtt.password.get_secret_value() == LOGINS.passwords[user]
    (tmp_path / "config.toml").write_text(to_toml(settings), "utf-8")
    assert load_settings(tmp_path / "config.toml", environ={}).mqtt == settings.mqtt
    shown = f"{to_toml(settings, mask_secrets=True)}{masked_settings(settings)}{settings!r}"
    for secret in (*LOGINS.passwords.values(), "s3s3"):
        assert secret not in shown.replace(f"client_id='{settings.mqtt.client_id}'", "")


def test_mappings_reach_the_parts_as_they_were_written(tmp_path: Path) -> None:
    case = {"when": {"x": True}, "skip": "x"}
    rows = {"kind": "rows", "separator": ";", "columns": {"2??": ["code", "t?"], "201": ["code", ["n", "v"]]}}
    numbers = {"t*": {"scale": "1/16", "offset": -273.15, "text": "[{number}]"}}
    more = {
        "format": rows,
        "inside": {"a.b[]": "columns"},
        "numbers": numbers,
        "time_offset": {"step": "^.dt", "unit": "s"},
    }
    mappings = {"mine.v1": {"prefix": "p.", "units": {"y": "V"}, "cases": [case], **more}}
    settings = embedded(tmp_path, mappings=mappings, routes=[{"filter": "a/#", "mapping": "mine.v1"}])
    file = tmp_path / "config.toml"
    file.write_text(to_toml(settings), "utf-8")
    for again in (settings, load_settings(file, environ={})):
        mapping = again.routes[0].mapping
        assert isinstance(mapping, MappingSettings)
        assert mapping == again.mappings["mine.v1"]
        assert mapping.cases[0].model_fields_set == {"when", "skip"}


def test_a_variant_of_a_shipped_mapping_reaches_the_parts_as_what_it_comes_to(tmp_path: Path) -> None:
    variant = {"extends": "rtl_433", "skip": ["...", "x"]}
    settings = embedded(tmp_path, mappings={"rtl_433": variant}, routes=[{"filter": "a/#", "mapping": "rtl_433"}])
    file = tmp_path / "config.toml"
    file.write_text(to_toml(settings), "utf-8")
    for again in (settings, load_settings(file, environ={})):
        mapping = again.routes[0].mapping
        assert isinstance(mapping, MappingSettings)
        assert mapping.skip == (*shipped_mappings()["rtl_433"].skip, "x")
        assert mapping.units["*_C"] == "°C"


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
    assert sum(memory_budget_mb(Settings()).values()) <= 4 * 1024
    assert "needs up to" in describe_memory_budget(Settings())[1]
    assert "kafka" not in describe_memory_budget(Settings(), embedded=False)[1], "not on a machine of the hops"


def test_it_tells_where_the_page_is_first_and_what_a_person_needs(tmp_path: Path) -> None:
    token = make_page_token(tmp_path).read_text("utf-8").strip()
    told = announcement(embedded(tmp_path), tmp_path / "with space", PORTS)
    text = render_announcement(told, as_json=False)
    assert text.splitlines()[0] == f"Page     http://127.0.0.1:8/#token={token}"
    assert text.count(token) == 1
    assert "Alerts" not in text
    assert "mqtt://127.0.0.1:1  (MQTT 5 on port 2)  user tidegate  password hunter2" in text
    assert str(tmp_path / "tables") in text
    assert "http://127.0.0.1:5/metrics" in text
    assert text.count(f"--data '{tmp_path}/with space'") == 3
    as_data = json.loads(render_announcement(told, as_json=True))
    assert (as_data["ready"], as_data["page"], as_data["prometheus"]) == (True, told["page"], None)


def test_the_pages_token_is_made_once_and_is_this_users_alone(tmp_path: Path) -> None:
    file = make_page_token(tmp_path)
    first = file.read_text("utf-8")
    assert make_page_token(tmp_path).read_text("utf-8") == first
    assert file.stat().st_mode & 0o077 == 0
    assert page_token(embedded(tmp_path).monitoring) == first.strip()
    assert page_token(Settings().monitoring) is None
    (tmp_path / "mine").write_text("own\n")
    assert page_token(embedded(tmp_path, **{"monitoring.page_token_file": str(tmp_path / "mine")}).monitoring) == "own"


def test_the_readers_token_is_found_from_the_folder_of_the_run_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts of a run start in its folder, not where the person named a file."""
    monkeypatch.chdir(tmp_path)
    assert embedded(tmp_path).monitoring.read_token_file is None
    named = embedded(tmp_path, **{"monitoring.read_token_file": "readers"}).monitoring.read_token_file
    assert named == str(tmp_path / "readers")


@pytest.mark.parametrize(
    ("host", "address"),
    [("::", "http://[::1]:9470/"), ("::1", "http://[::1]:9470/"), ("ops.lan", "http://ops.lan:9470/")],
)
def test_the_page_has_an_address_that_a_browser_can_open(host: str, address: str) -> None:
    assert page_address(load_settings(environ={}, overrides={"monitoring.host": host}).monitoring) == address


def test_a_prometheus_that_is_started_is_told_to_the_monitor_and_to_people(tmp_path: Path) -> None:
    started = embedded(tmp_path, ports=WATCHED)
    urls = started.monitoring.prometheus_url, started.monitoring.alertmanager_url
    assert urls == ("http://127.0.0.1:11", "http://127.0.0.1:12")
    told = announcement(started, tmp_path, WATCHED)
    assert told["prometheus"] == "http://127.0.0.1:11"
    assert "Alerts   http://127.0.0.1:11/alerts" in render_announcement(told, as_json=False)
    own = embedded(tmp_path, **{"monitoring.prometheus_url": "http://ops.lan:9090"}).monitoring
    assert (own.prometheus_url, own.alertmanager_url) == ("http://ops.lan:9090", None)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the JMX agent."""
    jar = tmp_path / "agent.jar"
    jar.touch()
    monkeypatch.setattr(artifacts, "jmx_agent", lambda: jar)
    return jar


@pytest.mark.usefixtures("agent")
def test_ports_of_the_monitor_reach_the_parts_and_an_agent_that_is_off_stays_off(tmp_path: Path) -> None:
    monitoring = embedded(tmp_path).monitoring
    assert (monitoring.page_port, monitoring.kafka_jmx_port, monitoring.spark_jmx_port) == (8, 9, 10)
    off = load_settings(environ={}, overrides={"embedded.spark_jmx_port": 0})
    claims = PortClaims(tmp_path / "claims")
    try:
        ports = choose_ports(off, 40_000, claims, [], ["prometheus"])
    finally:
        claims.release()
    assert set(ports) == {*PORTS, "prometheus"} - {"spark_jmx"}
    assert len(set(ports.values())) == len(ports)
    assert all(port > 40_000 for port in ports.values())


def test_an_agent_that_could_not_be_fetched_is_not_looked_for(agent: Path, tmp_path: Path) -> None:
    agent.unlink()
    claims = PortClaims(tmp_path / "claims")
    try:
        ports = choose_ports(load_settings(environ={}), 40_000, claims, [], [])
    finally:
        claims.release()
    assert not {"kafka_jmx", "spark_jmx"} & set(ports)
    monitoring = embedded(tmp_path, ports).monitoring
    assert (monitoring.kafka_jmx_port, monitoring.spark_jmx_port) == (0, 0)


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


def test_a_prometheus_that_is_too_old_for_the_rules_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "prometheus"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for said, obstacle in (
        ("prometheus, version 2.31.2+ds1", f"{program} is 2.31, but the alerts need 2.42"),
        ("prometheus, version 3.5.0", None),
        ("nobody knows", None),
    ):
        program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        program.chmod(0o755)
        assert watcher_obstacle("prometheus") == obstacle
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert watcher_obstacle("alertmanager") == "alertmanager is not on PATH"


def test_prometheus_gets_its_files_and_serves_this_machine_alone(tmp_path: Path) -> None:
    settings = embedded(tmp_path, ports=WATCHED)
    for watcher in make_watchers(settings, tmp_path, WATCHED):
        watcher.prepare()
        assert watcher.url in (settings.monitoring.prometheus_url, settings.monitoring.alertmanager_url)
        assert all(file.stat().st_mode & 0o077 == 0 for file in watcher.folder.iterdir())
        assert not any("lifecycle" in flag or "admin" in flag for flag in FLAGS[watcher.name])
    config = yaml.safe_load((tmp_path / "prometheus" / "prometheus.yml").read_text("utf-8"))
    assert (tmp_path / "prometheus" / config["rule_files"][0]).is_file()
    jobs = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    assert jobs["tidegate-monitor"] == ["127.0.0.1:8"]
    assert jobs["tidegate-kafka"] == ["127.0.0.1:9"]
    assert make_watchers(settings, tmp_path, PORTS) == []

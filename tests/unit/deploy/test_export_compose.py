"""The exported Compose file: services that fit together, bounded and confined, filled from the settings, without a secret."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.cli import run
from deploy.export.compose import compose_files
from deploy.settings import Settings, load_settings
from monitoring.addresses import parse_address
from monitoring.monitoring_settings import MonitoringSettings

OURS = ("gateway", "stream", "canary", "monitor")
EXTERNAL = """
[mqtt]
host = "mqtt.example.org"
username = "tidegate"
password = "hunter2"
tls = true
ca_file = "/etc/mqtt/ca.pem"
[kafka]
bootstrap_servers = "kafka-1.example.org:9092,kafka-2.example.org:9092"
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-512"
sasl_username = "tidegate"
sasl_password = "hunter3"
replication = 3
[gateway]
device_registry = "/srv/registry/devices.jsonl"
[stream]
checkpoint = "/data/$x/checkpoints/land"
extra = {"spark.hadoop.fs.s3a.secret.key" = "hunter4", "spark.ui.enabled" = "false"}
[lake]
root = "/data/tables"
"""


def exported(tmp_path: Path, text: str = "") -> tuple[dict[str, str], dict[str, Any]]:
    file = tmp_path / "given.toml"
    file.write_text(text, encoding="utf-8")
    files = compose_files(load_settings(file, environ={}), image="tidegate:1")
    return files, yaml.safe_load(files["compose.yaml"])


def inside(tmp_path: Path, files: dict[str, str]) -> Settings:
    file = tmp_path / "inside.toml"
    file.write_text(files["config/tidegate.toml"], encoding="utf-8")
    return load_settings(file, environ={})


def test_servers_on_this_machine_become_services(tmp_path: Path) -> None:
    files, compose = exported(tmp_path)
    assert {*compose["services"]} == {*OURS, "mosquitto", "kafka", "prometheus", "alertmanager", "grafana"}
    settings = inside(tmp_path, files)
    assert (settings.mqtt.host, settings.mqtt.username) == ("mosquitto", "tidegate")
    assert (settings.kafka.bootstrap_servers, settings.kafka.replication) == ("kafka:9092", 1)
    assert "password_file /tmp/passwords" in files["mosquitto/mosquitto.conf"]
    assert "persistence_location /mosquitto/data/" in files["mosquitto/mosquitto.conf"]
    assert "\nuser " not in files["mosquitto/mosquitto.conf"]


def test_servers_elsewhere_stay_where_they_are(tmp_path: Path) -> None:
    files, compose = exported(tmp_path, EXTERNAL)
    assert not {"mosquitto", "kafka"} & {*compose["services"]}
    settings = inside(tmp_path, files)
    assert (settings.mqtt.host, settings.mqtt.ca_file) == ("mqtt.example.org", "/etc/mqtt/ca.pem")
    assert settings.kafka.bootstrap_servers == "kafka-1.example.org:9092,kafka-2.example.org:9092"
    assert (settings.kafka.security_protocol, settings.kafka.replication) == ("SASL_SSL", 3)
    assert "depends_on" not in compose["services"]["gateway"]


@pytest.mark.parametrize("text", ["", EXTERNAL])
def test_all_that_the_file_names_is_in_it(tmp_path: Path, text: str) -> None:
    files, compose = exported(tmp_path, text)
    services = compose["services"]
    used: dict[str, set[str]] = {"secrets": set(), "volumes": set()}
    for name, service in services.items():
        used["secrets"] |= set(service.get("secrets", []))
        for mount in service["volumes"]:
            source = mount["source"] if isinstance(mount, dict) else mount.partition(":")[0]
            if source.startswith("./"):
                assert any(path.startswith(source[2:]) for path in files), (
                    f"{name} mounts {source}, which is not exported"
                )
            elif not source.startswith("/"):
                used["volumes"].add(source)
        for other, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in services[other], f"{name} waits for the health of {other}, which has no check"
    assert used["secrets"] == {*compose["secrets"]}
    assert used["volumes"] == {*compose["volumes"]}
    for name in compose["secrets"]:
        assert f"secrets/{name}\n" in files["README.md"]


def test_the_order_of_start_follows_the_way_of_a_reading(tmp_path: Path) -> None:
    _, compose = exported(tmp_path)
    waits = {name: [*service.get("depends_on", {})] for name, service in compose["services"].items()}
    assert waits["gateway"] == ["mosquitto", "kafka"]
    assert waits["stream"] == ["kafka"]
    assert waits["canary"] == ["gateway", "stream"]
    assert waits["monitor"] == []


def test_each_service_is_confined_and_bounded(tmp_path: Path) -> None:
    _, compose = exported(tmp_path)
    for name, service in compose["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}, name
        assert re.fullmatch(r"\d+m", service["mem_limit"]), name
        assert service["pids_limit"] > 0
        assert service.get("read_only") is (None if name == "kafka" else True), name
        assert not re.search(r":latest$|^[^:]+$", service["image"]), f"{name}: no version"
        for port in service.get("ports", []):
            assert port.startswith(("127.0.0.1:", "${TIDEGATE_MQTT_ADDRESS:-127.0.0.1}:")), (
                f"{name} is open to the network"
            )
    for name in OURS:
        assert compose["services"][name]["user"] == "10001:10001"


def test_prometheus_and_the_monitor_find_every_part(tmp_path: Path) -> None:
    files, compose = exported(tmp_path)
    jobs = yaml.safe_load(files["prometheus/prometheus.yml"])["scrape_configs"]
    asked = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
    assert asked["tidegate-gateway"] == ["gateway:9471"]
    assert asked["tidegate-monitor"] == ["monitor:9470"]
    assert {target.partition(":")[0] for targets in asked.values() for target in targets} <= {*compose["services"]}
    monitoring = inside(tmp_path, files).monitoring
    assert {*monitoring.targets} >= {*OURS}
    assert monitoring.prometheus_url is not None
    assert parse_address(monitoring.prometheus_url).netloc == "prometheus:9090"
    provisioning = compose["services"]["grafana"]["environment"]
    assert f"grafana/{Path(provisioning['GF_PATHS_PROVISIONING']).name}/datasources/tidegate.yaml" in files


def test_no_file_holds_a_secret(tmp_path: Path) -> None:
    files, compose = exported(tmp_path, EXTERNAL)
    assert [name for name, text in files.items() if "hunter" in text] == []
    assert set(compose["secrets"]) >= {
        "mqtt.password",
        "kafka.sasl_password",
        "monitoring.page_token",
        "grafana.password",
    }
    services = compose["services"]
    assert "mqtt.password" not in services["stream"]["secrets"]
    assert services["gateway"]["environment"] == {
        "TIDEGATE_MQTT__PASSWORD": "file:/run/secrets/mqtt.password",
        "TIDEGATE_KAFKA__SASL_PASSWORD": "file:/run/secrets/kafka.sasl_password",
    }
    # Options that sound like a secret come from a file that the person makes.
    assert services["stream"]["env_file"] == ["./tidegate.env"]
    assert "env_file" not in services["gateway"]
    assert "TIDEGATE_STREAM__EXTRA" in files["README.md"]
    assert inside(tmp_path, files).stream.extra == {"spark.ui.enabled": "false"}


def test_absolute_paths_are_bound_and_only_writers_write_them(tmp_path: Path) -> None:
    _, compose = exported(tmp_path, EXTERNAL)
    binds = {
        name: {
            mount["source"]: not mount.get("read_only", False)
            for mount in compose["services"][name]["volumes"]
            if isinstance(mount, dict)
        }
        for name in OURS
    }
    assert binds["stream"] == {"/data/tables": True, "/data/$$x/checkpoints": True}
    assert binds["canary"] == {"/data/tables": False, "/etc/mqtt/ca.pem": False}
    assert binds["gateway"] == {"/etc/mqtt/ca.pem": False, "/srv/registry": False}


@pytest.mark.parametrize("root", ["tables", "/var/lib/tidegate/tables"])
def test_tables_without_a_place_of_their_own_are_in_a_volume(tmp_path: Path, root: str) -> None:
    files, compose = exported(tmp_path, f'[lake]\nroot = "{root}"\n[mqtt]\nsession_file = "/var/lib/tidegate/s.json"\n')
    settings = inside(tmp_path, files)
    assert settings.lake.root == "/var/lib/tidegate/stream/tables"
    assert settings.mqtt.session_file == "/var/lib/tidegate/gateway/session.json"
    mounts = {name: compose["services"][name]["volumes"] for name in OURS}
    assert "stream:/var/lib/tidegate/stream" in mounts["stream"]
    assert "stream:/var/lib/tidegate/stream:ro" in mounts["canary"]
    assert not [mount for mount in mounts["gateway"] if str(mount).startswith("stream:")]


def test_tables_in_an_object_store_need_no_bind(tmp_path: Path) -> None:
    files, compose = exported(
        tmp_path, '[lake]\nroot = "s3a://lake/tables"\n[stream]\ncheckpoint = "s3a://lake/c/land"\n'
    )
    assert inside(tmp_path, files).lake.root == "s3a://lake/tables"
    assert all(isinstance(mount, str) for mount in compose["services"]["stream"]["volumes"])


def test_without_a_canary_there_is_no_service_and_no_target(tmp_path: Path) -> None:
    files, compose = exported(tmp_path, "[monitoring]\ncanary_port = 0\n")
    assert "canary" not in compose["services"]
    assert inside(tmp_path, files).monitoring.targets["canary"] == ()


def test_ports_of_the_own_settings_do_not_matter_inside(tmp_path: Path) -> None:
    files, compose = exported(tmp_path, "[monitoring]\ngateway_port = 0\npage_port = 8080\n[mqtt]\nport = 1999\n")
    settings = inside(tmp_path, files)
    assert settings.monitoring.page_port == MonitoringSettings().page_port
    assert settings.monitoring.gateway_port == MonitoringSettings().gateway_port
    assert compose["services"]["mosquitto"]["ports"][0].endswith(":1999:1883")


def test_routes_and_mappings_reach_the_containers(tmp_path: Path) -> None:
    text = '[mappings.m]\nformat = "json"\n[[routes]]\nfilter = "a/#"\nmapping = "m"\n'
    files, _ = exported(tmp_path, text)
    (route,) = inside(tmp_path, files).routes
    assert route.filter == "a/#"
    assert route.mapping is not None


def test_the_command_writes_the_files_and_names_the_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "compose", str(tmp_path / "out"), "--image", "registry.example/tidegate:7"]) == 0
    assert "compose.yaml" in capsys.readouterr().out
    compose = yaml.safe_load((tmp_path / "out" / "compose.yaml").read_text("utf-8"))
    assert compose["services"]["gateway"]["image"] == "${TIDEGATE_IMAGE:-registry.example/tidegate:7}"
    assert run(["export", "compose", str(tmp_path / "out")]) == 78

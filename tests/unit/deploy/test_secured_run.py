"""A secured embedded run before anything starts: its certificates, its users, what each part knows, and what is rejected."""

import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deploy.certificates.read import report_certificates
from deploy.local import broker, run_plan
from deploy.local.announce import announcement, render_announcement
from deploy.local.java import Java
from deploy.local.ports import PortClaims
from deploy.local.run_logins import NODE_CERTIFICATE, RunLogins, is_secured, load_logins
from deploy.local.run_plan import RunPlan, make_plan
from deploy.local.runfile import CREDENTIALS, RunFile, read_run
from deploy.local.secured_run import (
    broker_tls,
    check_secured,
    kafka_profile,
    kafka_roles,
    make_run_certificates,
    part_settings,
)
from deploy.local.up import UpOptions, _own_command
from deploy.settings import Settings, load_settings
from deploy.settings_file import to_toml
from deploy.testbed.cluster_security import NODE_FILE
from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import ConfigError, UnavailableError
from ingest.contract.topics import READINGS
from ingest.security import client_conf
from ingest.topics.roles import Role, needed_acls
from tests.support.handshake import shake_hands

USERS = ("gateway", "stream", "monitor", "operator")


@pytest.fixture
def claims(tmp_path: Path) -> Iterator[PortClaims]:
    made = PortClaims(tmp_path / "claims")
    yield made
    made.release()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run on a machine with mosquitto and its plugin."""
    folder = tmp_path / "da ta"
    folder.mkdir()
    java = Java(tmp_path, tmp_path / "java", (17,), serial_gc_only=False, source="test")
    monkeypatch.setattr(run_plan, "find_java", lambda: java)
    monkeypatch.setattr(broker, "find_mosquitto", lambda: tmp_path / "sbin" / "mosquitto")
    for module in ("broker", "secured_run"):
        monkeypatch.setattr(f"deploy.local.{module}.find_plugin", lambda _executable: tmp_path / "plugin.so")
    monkeypatch.setattr("deploy.local.secured_run.find_mosquitto", lambda: tmp_path / "sbin" / "mosquitto")
    return folder


def plan(data: Path, claims: PortClaims, *, secure: bool, **overrides: object) -> tuple[RunPlan, RunFile]:
    settings = load_settings(environ={}, overrides={f"embedded.{name}": value for name, value in overrides.items()})
    run = RunFile("run", 1, 0.0)
    made = make_plan(settings, data, run, claims, port_offset=30_000, fleet=True, prometheus=False, secure=secure)
    return made, run


def passwords(data: Path) -> dict[str, str]:
    """Return all secrets of the run by the name that the assertions below use."""
    logins = load_logins(data / CREDENTIALS, MqttSettings(), has_session=True, secure=True)
    mqtt = {f"mqtt {name}": secret for name, secret in logins.passwords.items()}
    return {**mqtt, **{f"kafka {name}": secret for name, secret in logins.kafka.items()}, "client id": logins.client_id}


def commands(made: RunPlan) -> dict[str, list[str]]:
    """Return the command line of each part of Tidegate; those of the servers write files first."""
    return {spec.name: list(spec.command()) for spec in made.specs if spec.name not in ("broker", "kafka")}


def test_each_part_has_a_private_file_with_its_own_logins_only(data: Path, claims: PortClaims) -> None:
    made, run = plan(data, claims, secure=True)
    known = {
        "gateway": {"mqtt gateway", "kafka gateway", "client id"},
        "stream": {"kafka stream"},
        "fleet": {"mqtt tidegate"},
        "canary": {"mqtt canary"},
        "monitor": {"mqtt monitor", "kafka monitor"},
        "admin": set(),
    }
    secrets, lines = passwords(data), commands(made)
    assert len(set(secrets.values())) == len(secrets) == 10
    for part, wanted in known.items():
        file = data / f"config-{part}.toml"
        text = file.read_text("utf-8")
        assert {name for name, secret in secrets.items() if secret in text} == wanted, part
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert str(file) in lines["topics" if part == "admin" else part]
        client_conf(load_settings(file, environ={}).kafka, client_id="test") if part in (*USERS, "admin") else None
    assert stat.S_IMODE((data / CREDENTIALS).stat().st_mode) == 0o600
    assert [secret for line in lines.values() for word in line for secret in secrets.values() if secret in word] == []
    assert read_run(data) == run and run.configs == ["config.toml", *(f"config-{part}.toml" for part in known)]


def test_the_commands_are_the_operator_and_trust_the_authority_of_the_run(data: Path, claims: PortClaims) -> None:
    made, run = plan(data, claims, secure=True)
    for settings in (made.settings, load_settings(data / "config.toml", environ={})):
        kafka, mqtt, authority = settings.kafka, settings.mqtt, str(data / "certificates" / "ca.pem")
        assert (kafka.security_protocol, kafka.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
        assert (kafka.sasl_username, kafka.ssl_ca_file) == ("operator", authority)
        assert (mqtt.tls, mqtt.ca_file, mqtt.username) == (True, authority, "gateway")
        assert mqtt.port == run.ports["mqtt"] >= 30_000 + 8883
    told = announcement(made.settings, data, run.ports)
    text = render_announcement(told, as_json=False)
    assert f"mqtts://127.0.0.1:{run.ports['mqtt']}" in text
    assert f"SASL_SSL  user operator  password in {data / 'config.toml'}" in text
    assert f"Trust    {authority}" in text
    assert passwords(data)["kafka operator"] not in text


def test_kafka_and_mqtt_have_no_plain_listener_and_only_the_administrator_rules(data: Path, claims: PortClaims) -> None:
    made, run = plan(data, claims, secure=True)
    profile = kafka_profile(data, run.ports)
    protocols = dict(pair.split(":") for pair in str(profile.properties["listener.security.protocol.map"]).split(","))
    assert protocols == {"CLIENT": "SASL_SSL", "INTERNAL": "SSL", "CONTROLLER": "SSL"}
    assert profile.properties["super.users"] == "User:broker;User:admin"
    assert f"CLIENT://127.0.0.1:{run.ports['kafka']}" in str(profile.properties["listeners"])
    assert profile.users == {}, "they come over the internal listener, so that a plain folder gets them as well"
    admin = load_settings(data / "config-admin.toml", environ={}).kafka
    assert (admin.bootstrap_servers, admin.security_protocol) == (f"127.0.0.1:{run.ports['kafka_internal']}", "SSL")
    assert (admin.sasl_username, admin.ssl_certificate_file) == (None, str(data / "certificates" / "client-admin.pem"))
    (server,) = (spec for spec in made.specs if spec.name == "broker")
    server.command()
    lines = (data / "mqtt" / "mosquitto.conf").read_text("utf-8").splitlines()
    assert lines[:4] == [
        f"listener {run.ports['mqtt']} 127.0.0.1",
        f"certfile {data}/certificates/server-mqtt.pem",
        f"keyfile {data}/certificates/server-mqtt.pem",
        "tls_version tlsv1.2",
    ]
    assert [line for line in lines if line.startswith("listener")] == lines[:1]
    assert "allow_anonymous false" in lines


def test_another_run_keeps_identity_certificates_and_users_and_stays_secured(data: Path, claims: PortClaims) -> None:
    plan(data, claims, secure=True)
    names = (
        "credentials.json",
        *(f"certificates/{name}" for name in ("ca.pem", "ca.key", NODE_FILE, "server-mqtt.pem")),
    )
    before = {name: (data / name).read_bytes() for name in names}
    made, run = plan(data, claims, secure=False)
    assert {name: (data / name).read_bytes() for name in names} == before
    assert "this folder was secured" in made.remarks[0] and "name another folder" in made.remarks[0]
    assert made.settings.kafka.security_protocol == "SASL_SSL" and made.settings.mqtt.tls
    assert "kafka_internal" in run.ports
    assert "security:" not in str(plan(data, claims, secure=True)[0].remarks)


def test_a_plain_run_is_as_before_and_its_folder_can_be_secured_with_the_same_users(
    data: Path, claims: PortClaims
) -> None:
    made, run = plan(data, claims, secure=False)
    assert made.settings.kafka.security_protocol == "PLAINTEXT" and not made.settings.mqtt.tls
    assert run.configs == ["config.toml"] and "kafka_internal" not in run.ports
    assert {line[line.index("--config") + 1] for line in commands(made).values()} == {str(data / "config.toml")}
    assert not (data / "certificates").exists() and not is_secured(data, data / CREDENTIALS)
    assert [spec.after for spec in made.specs if spec.name == "stream"] == [()]
    plain = load_logins(data / CREDENTIALS, MqttSettings(), has_session=False)
    assert plain.kafka == {}

    secured, _ = plan(data, claims, secure=True)
    again = load_logins(data / CREDENTIALS, MqttSettings(), has_session=True, secure=True)
    assert (again.passwords, again.client_id) == (plain.passwords, plain.client_id)
    assert set(again.kafka) == set(USERS) == set(kafka_roles(secured.settings))
    assert [spec.after for spec in secured.specs if spec.name == "stream"] == [("topics",)], "it needs its rights"


@pytest.mark.parametrize("lost", ["credentials.json", f"certificates/{NODE_FILE}", "certificates/ca.pem"])
def test_a_lost_file_of_a_secured_folder_is_made_again_and_opens_nothing(
    data: Path, claims: PortClaims, lost: str
) -> None:
    plan(data, claims, secure=True)
    (data / lost).unlink()
    made, _ = plan(data, claims, secure=False)
    assert made.settings.kafka.security_protocol == "SASL_SSL"
    folder = data / "certificates"
    assert not [one.problems for one in report_certificates(folder, now=datetime.now(UTC)) if one.problems]
    shake_hands(folder / "server-mqtt.pem", folder / "ca.pem", "127.0.0.1")


def test_the_certificates_are_private_and_name_this_machine(tmp_path: Path) -> None:
    make_run_certificates(tmp_path)
    folder = tmp_path / "certificates"
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes == {
        "ca.pem": 0o644, "ca.key": 0o600, NODE_CERTIFICATE: 0o600, "server-mqtt.pem": 0o600, "client-admin.pem": 0o600,
    }  # fmt: skip
    assert NODE_CERTIFICATE == NODE_FILE
    tls = broker_tls(tmp_path)
    for name in ("127.0.0.1", "localhost"):
        shake_hands(Path(tls.certificate), Path(tls.authority), name)
    bundle = folder / "ca.pem"
    seen = shake_hands(folder / NODE_FILE, bundle, "127.0.0.1", client=folder / "client-admin.pem", clients=bundle)
    assert seen["subject"] == ((("commonName", "admin"),),), "the super user of the authorizer"


def test_each_user_has_the_least_roles() -> None:
    roles = kafka_roles(Settings())
    on_readings = {
        user: {acl.operation for acl in needed_acls(found) if acl.name == READINGS} for user, found in roles.items()
    }
    assert "READ" not in on_readings["gateway"] and "WRITE" not in on_readings["stream"]
    assert "ALTER_CONFIGS" not in on_readings["monitor"] | on_readings["gateway"] | on_readings["stream"]
    positive = load_settings(environ={}, overrides={"receipts.positive": True})
    assert kafka_roles(positive)["gateway"] == (Role.GATEWAY, Role.READER)
    assert (
        kafka_roles(load_settings(environ={}, overrides={"receipts.positive": True, "receipts.enabled": False}))
        == roles
    )


def test_a_secured_run_never_begins_half_open(data: Path, claims: PortClaims, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"up --secure and embedded\.mqtt_allow_plaintext exclude each other"):
        plan(data, claims, secure=True, mqtt_allow_plaintext=True)
    with pytest.raises(UnavailableError, match="needs mosquitto with its plugin"):
        plan(data, claims, secure=True, broker="iotcore")
    monkeypatch.setattr("deploy.local.secured_run.find_plugin", lambda _executable: None)
    with pytest.raises(UnavailableError, match="needs mosquitto with its plugin"):
        plan(data, claims, secure=True)
    assert list(data.iterdir()) == [], "nothing was written"
    with pytest.raises(ConfigError, match="The broker iotcore has no TLS"):
        broker.make_broker("iotcore", data, 1, port_v5=2, users={"a": "b"}, tls=broker.BrokerTls("c", "k", "a"))


def test_certificates_of_somebody_else_stay(data: Path) -> None:
    (data / "certificates").mkdir()
    (data / "certificates" / "ca.pem").write_text("theirs")
    with pytest.raises(ConfigError, match="has certificates that no `up --secure` made"):
        check_secured(Settings(), data, was_secured=False)
    assert not is_secured(data, data / CREDENTIALS)


def test_a_listener_for_other_machines_keeps_its_port_and_certificate(
    data: Path, claims: PortClaims, tmp_path: Path
) -> None:
    make_run_certificates(tmp_path)
    pem = str(tmp_path / "certificates" / "server-mqtt.pem")
    made, run = plan(data, claims, secure=True, mqtt_cert_file=pem, mqtt_key_file=pem)
    assert run.ports["mqtt_tls"] - 8883 >= 30_000 and run.ports["mqtt"] != run.ports["mqtt_tls"]
    (server,) = (spec for spec in made.specs if spec.name == "broker")
    server.command()
    lines = (data / "mqtt" / "mosquitto.conf").read_text("utf-8").splitlines()
    assert lines[1] == f"certfile {data}/certificates/server-mqtt.pem"
    assert lines[lines.index(f"listener {run.ports['mqtt_tls']} 127.0.0.1") + 1] == f"certfile {pem}"


def test_settings_of_a_person_about_kafkas_login_do_not_reach_a_part(data: Path, claims: PortClaims) -> None:
    person: dict[str, Any] = {
        "kafka.security_protocol": "SASL_SSL", "kafka.sasl_mechanism": "OAUTHBEARER", "kafka.sasl_username": "me",
        "kafka.sasl_password": "mine", "kafka.oauth_token_url": "https://login.example.org/t", "kafka.oauth_scope": "k",
    }  # fmt: skip
    settings = load_settings(environ={}, overrides=person)
    run = RunFile("run", 1, 0.0)
    made = make_plan(settings, data, run, claims, port_offset=30_000, fleet=False, prometheus=False, secure=True)
    logins = RunLogins({}, "id", kafka={"stream": "s"})
    for one in (made.settings, part_settings(made.settings, data, run.ports, logins)["stream"]):
        client_conf(one.kafka, client_id="test")
        assert "mine" not in to_toml(one) and one.kafka.oauth_token_url is None


def test_a_run_in_the_background_is_secured_too() -> None:
    options = UpOptions(data=Path("/data"), config=None, port_offset=0, fleet=True, secure=True, as_json=False)
    assert "--secure" in _own_command(options)
    assert "--secure" not in _own_command(replace(options, secure=False))

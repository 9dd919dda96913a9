"""Users, rights and listeners of an embedded run's broker: files and settings, without a server."""

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.local import broker
from deploy.local.broker_rights import acl_entries, device_rights, find_plugin, rights_of_run, security_file
from deploy.local.canary_probe import DEVICE
from deploy.local.device_logins import check_login
from deploy.local.run_broker import make_run_broker, notes_of_broker
from deploy.local.run_logins import DEVICES_USER, load_logins, read_logins
from deploy.settings import load_settings
from gateway.gateway_settings import MqttSettings
from gateway.replies.receipts import receipt_topic
from ingest.contract.errors import ConfigError, UnavailableError
from tests.support.authority import Authority

ALL = "0.0.0.0"  # noqa: S104 - a setting; nothing listens in these tests
PORTS = {"mqtt": 1883, "mqtt_v5": 1884, "mqtt_tls": 8883}


def test_users_are_made_once_and_the_client_id_is_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    first = load_logins(file, MqttSettings(), has_session=False)
    again = load_logins(file, MqttSettings(), has_session=True)
    assert first == again
    assert next(iter(first.passwords)) == "gateway"
    assert len(set(first.passwords.values())) == len(first.passwords) == 5
    assert len(first.client_id) > 40 and not first.inherits_session
    assert file.stat().st_mode & 0o077 == 0
    assert read_logins(file)["admin"] == first.passwords["admin"]
    other = load_logins(tmp_path / "other.json", MqttSettings(), has_session=False)
    assert other.client_id != first.client_id


def test_an_older_run_keeps_its_devices_password_and_its_queued_messages(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    for has_session in (True, False):
        file.write_text('{"username": "tidegate", "password": "known"}')
        logins = load_logins(file, MqttSettings(), has_session=has_session)
        assert logins.passwords[DEVICES_USER] == "known"
        # Another id would leave the messages that wait in the old session.
        assert (logins.client_id == "tidegate-gateway") is has_session is logins.inherits_session
        assert load_logins(file, MqttSettings(), has_session=True) == logins


def test_a_client_id_of_the_person_stays(tmp_path: Path) -> None:
    file, mqtt = tmp_path / "credentials.json", MqttSettings(client_id="mine")
    logins = load_logins(file, mqtt, has_session=False)
    assert (logins.client_id, logins.inherits_session) == ("mine", False)
    file.write_text('{"username": "tidegate", "password": "known"}')
    logins = load_logins(file, mqtt, has_session=True)
    assert (logins.client_id, logins.inherits_session) == ("mine", True)


def test_rights_follow_the_settings() -> None:
    subscriptions = ["$share/g/site/#", "$aws/things/#", "plant/{line}/x"]
    settings = load_settings(
        environ={}, overrides={"mqtt.subscriptions": subscriptions, "receipts.response_topics": ["answers/#"]}
    )
    rights = rights_of_run(settings)
    assert {"site/#", "$aws/things/#", "plant/+/x"} <= set(rights["gateway"].read)
    assert {"tidegate/receipts/#", "answers/#", "spBv1.0/+/NCMD/+"} <= set(rights["gateway"].publish)
    assert rights[DEVICES_USER].publish == ("#", "$aws/things/#")
    assert rights[DEVICES_USER].never_publish == ("tidegate/receipts/#",)
    assert rights[DEVICES_USER].read == ("tidegate/receipts/#", "answers/#")
    assert rights["canary"].publish == (f"tidegate/v1/{DEVICE}/readings",)
    assert rights["canary"].read == (receipt_topic(DEVICE),)


def test_the_file_keeps_the_logins_of_devices_and_nothing_else_that_it_had() -> None:
    users, rights = {"gateway": "one"}, rights_of_run(load_settings(environ={}))
    device = {"username": "attic", "roles": [{"rolename": "device:attic"}], "password": "h"}
    stranger = {"username": "root", "roles": [{"rolename": "gateway"}], "password": "h"}
    role = {"rolename": "device:attic", "acls": acl_entries(device_rights("attic"))}
    earlier = json.dumps({"clients": [device, stranger], "roles": [role, {"rolename": "all", "acls": []}]})
    made = json.loads(security_file(users, rights, earlier))
    assert [one["username"] for one in made["clients"]] == ["gateway", "attic"]
    assert [one["rolename"] for one in made["roles"]] == ["gateway", "device:attic"]
    assert not any(
        made["defaultACLAccess"][kind] for kind in ("publishClientSend", "publishClientReceive", "subscribe")
    )
    for damaged in ("", "{}", "[]", earlier[:-9], "null"):
        assert [one["username"] for one in json.loads(security_file(users, rights, damaged))["clients"]] == ["gateway"]
    assert '"one"' not in security_file(users, rights, ""), "a password is kept as a hash only"


@pytest.mark.parametrize("device", ["a/b", "+", "#", "a+", "", "a\nb", "gateway", "tidegate", DEVICE])
def test_a_device_id_with_a_wildcard_or_of_tidegate_gets_no_login(device: str) -> None:
    with pytest.raises(ConfigError):
        check_login(device, ())


@pytest.mark.parametrize("topic", ["a/#/b", "$SYS/#", "$CONTROL/#", "", "site/{device}"])
def test_a_topic_of_a_login_is_a_filter_outside_of_dollar_topics(topic: str) -> None:
    check_login("attic", ["shellies/attic/#"])
    with pytest.raises(ConfigError, match="--topic"):
        check_login("attic", [topic])


@pytest.mark.parametrize(
    ("embedded", "words"),
    [
        ({"mqtt_listen": ALL}, "lets other machines reach the broker without TLS: set mqtt_cert_file"),
        ({"mqtt_listen": "192.0.2.7"}, "mqtt_allow_plaintext = true to send passwords and readings unencrypted"),
        ({"mqtt_cert_file": "c.pem"}, "mqtt_cert_file is set and mqtt_key_file is not"),
        ({"mqtt_key_file": "k.pem"}, "mqtt_key_file is set and mqtt_cert_file is not"),
        (
            {"mqtt_cert_file": "c.pem", "mqtt_key_file": "k.pem", "mqtt_allow_plaintext": True},
            "mqtt_cert_file and mqtt_allow_plaintext exclude each other",
        ),
        ({"mqtt_listen": "::", "mqtt_allow_plaintext": True, "broker": "iotcore"}, "broker is iotcore, which serves"),
        ({"mqtt_client_ca_file": "c.pem"}, "mqtt_client_ca_file needs TLS"),
        ({"mqtt_crl_file": "c.pem"}, "mqtt_crl_file has an effect only where devices show certificates"),
    ],
)
def test_other_machines_need_tls_or_a_setting_that_says_no(embedded: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={}, overrides={f"embedded.{name}": value for name, value in embedded.items()})
    assert words in str(caught.value)


def run_broker(tmp_path: Path, **embedded: object) -> tuple[broker.EmbeddedBroker, list[str]]:
    settings = load_settings(environ={}, overrides={f"embedded.{name}": value for name, value in embedded.items()})
    logins = load_logins(tmp_path / "credentials.json", settings.mqtt, has_session=False)
    ports = PORTS if "mqtt_cert_file" in embedded else {name: PORTS[name] for name in ("mqtt", "mqtt_v5")}
    made = make_run_broker(settings, tmp_path / "mqtt", ports, logins)
    made.prepare()
    return made, [note["text"] for note in notes_of_broker(made, logins, settings.embedded)]


def configuration(tmp_path: Path) -> list[str]:
    return (tmp_path / "mqtt" / "mosquitto.conf").read_text("utf-8").splitlines()


@pytest.fixture
def with_plugin() -> None:
    executable = broker.find_mosquitto()
    if executable is None or find_plugin(executable) is None:
        pytest.skip("mosquitto with its plugin is not on this machine")


@pytest.mark.usefixtures("with_plugin")
def test_other_machines_reach_a_listener_with_tls_and_this_one_stays_on_loopback(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "authority").issue("broker")
    files = {"mqtt_cert_file": str(pair.certificate), "mqtt_key_file": str(pair.key)}
    made, notes = run_broker(tmp_path, mqtt_listen=ALL, **files)
    lines = configuration(tmp_path)
    assert [line for line in lines if line.startswith("listener")] == [
        "listener 1883 127.0.0.1",
        f"listener 8883 {ALL}",
    ]
    assert lines.index(f"certfile {pair.certificate}") > lines.index(f"listener 8883 {ALL}")
    assert "allow_anonymous false" in lines
    assert made.has_access_list and notes == []
    with pytest.raises(ConfigError, match=r"embedded\.mqtt_cert_file, embedded\.mqtt_key_file: cannot use"):
        run_broker(tmp_path, **{**files, "mqtt_key_file": str(tmp_path / "none.pem")})


@pytest.mark.usefixtures("with_plugin")
@pytest.mark.parametrize(
    ("listen", "listeners"),
    [(ALL, [f"1883 {ALL}"]), ("192.0.2.7", ["1883 127.0.0.1", "1883 192.0.2.7"])],
)
def test_plaintext_for_other_machines_is_a_warning(listen: str, listeners: list[str], tmp_path: Path) -> None:
    _, notes = run_broker(tmp_path, mqtt_listen=listen, mqtt_allow_plaintext=True)
    assert [line for line in configuration(tmp_path) if "listener" in line] == [f"listener {one}" for one in listeners]
    assert len(notes) == 1 and "passwords and readings cross the network unencrypted" in notes[0]


def test_a_broker_without_an_access_list_says_so_and_serves_no_other_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, notes = run_broker(tmp_path, broker="iotcore")
    assert any("iotcore has no access list: each user may publish and read everything" in note for note in notes)
    monkeypatch.setattr(broker, "find_plugin", lambda executable: None)
    if broker.find_mosquitto() is not None:
        made, notes = run_broker(tmp_path, broker="mosquitto")
        assert not made.has_access_list
        assert "no plugin mosquitto_dynamic_security" in notes[0]
        assert any(line.startswith("password_file") for line in configuration(tmp_path))
        with pytest.raises(UnavailableError, match="no access list"):
            run_broker(tmp_path, mqtt_listen=ALL, mqtt_allow_plaintext=True)
    monkeypatch.setattr(broker, "find_mosquitto", lambda: None)
    with pytest.raises(UnavailableError, match="need mosquitto"):
        run_broker(tmp_path, mqtt_listen=ALL, mqtt_allow_plaintext=True)

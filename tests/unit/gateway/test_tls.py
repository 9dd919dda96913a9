"""Client certificates of [mqtt]: contradictory settings, and files that cannot be used."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from deploy.settings import load_settings
from gateway.gateway_settings import MqttSettings
from gateway.mqtt.session_text import session_name, shown_client_id
from gateway.mqtt.tls import client_context, tls_fault
from ingest.contract.errors import ConfigError
from tests.support.authority import Authority

PAIR = {"cert_file": "c.pem", "key_file": "k.pem"}


@pytest.mark.parametrize(
    ("mqtt", "words"),
    [
        ({"tls": True, "cert_file": "c.pem"}, "mqtt: cert_file is set and key_file is not: set both"),
        ({"tls": True, "key_file": "k.pem"}, "mqtt: key_file is set and cert_file is not: set both"),
        ({"tls": True, "key_password": "s3cret"}, "mqtt: key_password is set and key_file is not"),
        (PAIR, "mqtt: cert_file is set and tls is not: set tls = true, or remove cert_file"),
        ({"ca_file": "ca.pem"}, "mqtt: ca_file is set and tls is not"),
        ({"crl_file": "crl.pem"}, "mqtt: crl_file is set and tls is not"),
        ({"canary": PAIR}, "mqtt: canary.cert_file is set and tls is not"),
        ({"tls": True, "canary": {"cert_file": "c.pem"}}, "mqtt.canary: cert_file is set and key_file is not"),
    ],
)
def test_contradictory_tls_is_one_sentence(mqtt: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(overrides={f"mqtt.{name}": value for name, value in mqtt.items()}, environ={})
    assert words in str(caught.value)
    assert str(caught.value).count(" is set and ") == 1
    assert "s3cret" not in str(caught.value)
    assert caught.value.exit_code == 78


def test_a_login_replaces_the_whole_user() -> None:
    mqtt = MqttSettings.model_validate(
        {"tls": True, "username": "gateway", "password": "p", **PAIR, "canary": {"username": "canary", "password": "q"}}
    )
    canary = mqtt.with_login("canary")
    assert (canary.username, canary.cert_file, canary.host, canary.tls) == ("canary", None, mqtt.host, True)
    assert canary.password is not None and canary.password.get_secret_value() == "q"
    assert mqtt.with_login("devices") is mqtt


def test_a_login_comes_from_the_environment_too() -> None:
    environ = {"TIDEGATE_MQTT__CANARY__USERNAME": "canary", "TIDEGATE_MQTT__CANARY__PASSWORD": "q"}
    assert load_settings(environ=environ).mqtt.with_login("canary").username == "canary"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def context_of(certificate: Path, key: Path, **more: str) -> ssl.SSLContext:
    files = {"cert_file": str(certificate), "key_file": str(key)}
    return client_context(MqttSettings.model_validate({"tls": True, **files, **more}))


def test_an_encrypted_key_opens_with_its_password_only_and_asks_nobody(authority: Authority) -> None:
    pair = authority.issue("locked", password="opens it")
    assert context_of(*pair, key_password="opens it").verify_mode == ssl.CERT_REQUIRED
    with pytest.raises(ConfigError, match=r"mqtt\.key_password does not open the encrypted key .*locked\.key") as wrong:
        context_of(*pair, key_password="opens nothing")
    assert "opens nothing" not in f"{wrong.value}{wrong.value.__cause__}"
    with pytest.raises(ConfigError, match=r"mqtt\.key_password is not set, and it is needed"):
        context_of(*pair)


def test_files_that_are_not_a_certificate_with_its_key_are_named(authority: Authority, tmp_path: Path) -> None:
    first, second = authority.issue("first"), authority.issue("second")
    no = tmp_path / "no.pem"
    no.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"mqtt\.key_file: .*second\.key is not the private key of .*first\.pem"):
        context_of(first.certificate, second.key)
    with pytest.raises(ConfigError, match=r"mqtt\.cert_file: cannot read .*none\.pem \(No such file"):
        context_of(tmp_path / "none.pem", first.key)
    with pytest.raises(ConfigError, match=r"mqtt\.key_file: cannot read .* \(Is a directory"):
        context_of(first.certificate, tmp_path)
    with pytest.raises(ConfigError, match=r"mqtt\.cert_file, mqtt\.key_file: cannot use .*no\.pem"):
        context_of(no, first.key)


def test_versions_before_tls_1_2_are_off() -> None:
    assert client_context(MqttSettings(tls=True)).minimum_version == ssl.TLSVersion.TLSv1_2


def test_only_tls_errors_are_explained_as_tls() -> None:
    assert tls_fault(ConnectionRefusedError("refused"), presents_certificate=False) == ""
    failed = ssl.SSLError(1, "[SSL: SSLV3_ALERT_HANDSHAKE_FAILURE] sslv3 alert handshake failure")
    assert "asks for a client certificate" in tls_fault(failed, presents_certificate=False)
    assert tls_fault(failed, presents_certificate=True) == ""


def test_the_random_part_of_a_client_id_is_not_shown() -> None:
    secret = "aB3-_" * 6 + "xy"
    shown = shown_client_id(f"tidegate-gateway-{secret}-stored")
    assert secret not in shown
    assert shown.startswith("tidegate-gateway-") and shown.endswith("-stored")
    assert shown_client_id("tidegate-gateway-east") == "tidegate-gateway-east"
    settings = MqttSettings(client_id=f"tidegate-gateway-{secret}")
    assert secret not in session_name(settings)
    assert session_name(settings) != session_name(MqttSettings(client_id=f"tidegate-gateway-{secret[::-1]}"))

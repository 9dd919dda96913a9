"""The MQTT session against a scripted broker: how connections begin, fail and end."""

from pathlib import Path
from typing import Any

import pytest

from deploy.settings_secrets import FileSecret
from gateway.devtools.publisher import Publisher
from gateway.gateway_settings import MqttSettings
from gateway.mqtt.backoff import QUICK_LOSSES
from ingest.contract.errors import ConfigError, FatalError
from tests.support.scripted_broker import CONNECT, DISCONNECT, SUBSCRIBE
from tests.support.session import SessionRig


def test_connects_with_a_session_that_stays(scripted_broker: Any, mqtt_rig: SessionRig) -> None:
    link = scripted_broker.accept()
    connect = link.packet(CONNECT).body
    level, flags = connect[6], connect[7]
    assert flags & 2 == 0, "clean start would throw the queue away"
    if scripted_broker.protocol == "5":
        assert level == 5
        assert b"\x11" + (7 * 24 * 3600).to_bytes(4, "big") in connect, (
            "without it the session ends with the connection"
        )
        assert b"\x21" + (100).to_bytes(2, "big") in connect, "Receive Maximum is the window"
        assert b"\x27" not in connect[10:25], "no Maximum Packet Size: a larger packet would be dropped unseen"
    else:
        assert level == 4
    link.connack()
    subscribe = link.packet(SUBSCRIBE)
    options = subscribe.body[-1]
    assert options & 3 == 1, "QoS 1, never 2"
    if scripted_broker.protocol == "5":
        assert options & 4, "No Local"
        assert options & 8 == 0, "the broker's retain flag, so that it marks replays"
        assert options & 0x30 == 0x10, "retained messages only for a new subscription"
    link.suback(subscribe.mid)
    mqtt_rig.until(lambda: mqtt_rig.session.connected, "connected")


def test_wrong_credentials_are_a_sentence_and_a_pause_not_an_end(scripted_broker: Any) -> None:
    rig = SessionRig(scripted_broker, username="tide", password="wrong")
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack(reason=0x86 if scripted_broker.protocol == "5" else 4)
    rig.until(lambda: rig.heard.losses)
    assert "refuses user tide" in rig.heard.losses[0]
    assert "mqtt.password" in rig.session.detail
    assert "wrong" not in rig.session.detail
    assert rig.heard.epochs == []
    scripted_broker.accept().handshake()
    rig.until(lambda: rig.session.connected)


def test_each_connection_logs_in_with_the_password_that_its_file_has_then(scripted_broker: Any, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text("first-secret")
    rig = SessionRig(scripted_broker, username="gw", password=FileSecret(str(file), "mqtt.password"))
    link = scripted_broker.accept()
    assert b"first-secret" in link.packet(CONNECT).body
    link.connack()
    link.suback(link.packet(SUBSCRIBE).mid)
    rig.until(lambda: rig.session.connected)
    for password in ("second-secret", "a third secret"):
        file.write_text(password)
        assert link.quiet() == [], "an open connection stays"
        link.close()
        link = scripted_broker.accept()
        assert password.encode() in link.packet(CONNECT).body
        link.connack(session_present=True)
        rig.until(lambda: rig.session.connected)


def test_the_canary_and_the_tools_log_in_with_the_password_that_its_file_has_then(
    scripted_broker: Any, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text("first-secret")
    login = {"username": "canary", "password": FileSecret(str(file), "mqtt.password")}
    settings = MqttSettings.model_validate(
        {"port": scripted_broker.port, "protocol": scripted_broker.protocol, **login}
    )
    publisher = Publisher(settings, client_id="canary")
    publisher._client.reconnect_delay_set(1, 1)
    publisher._client.begin()
    try:
        link = scripted_broker.accept()
        assert b"first-secret" in link.packet(CONNECT).body
        link.connack()
        file.write_text("second-secret")
        link.close()
        assert b"second-secret" in scripted_broker.accept().packet(CONNECT).body
    finally:
        publisher.close()


def test_a_taken_over_session_ends_the_process_instead_of_a_fight(scripted_broker: Any, mqtt_rig: SessionRig) -> None:
    if scripted_broker.protocol != "5":
        pytest.skip("MQTT 3.1.1 has no packet for it")
    link = scripted_broker.accept()
    link.handshake()
    mqtt_rig.until(lambda: mqtt_rig.session.connected)
    link.send(b"\xe0\x02\x8e\x00")
    with pytest.raises(FatalError, match="another MQTT client uses client id 'gate'") as raised:
        mqtt_rig.until(lambda: False)
    assert raised.value.exit_code == 78, "a restart would begin the fight again"


def test_a_link_that_breaks_again_and_again_is_told_and_never_ends_the_process(
    scripted_broker: Any, mqtt_rig: SessionRig
) -> None:
    for _ in range(QUICK_LOSSES + 2):
        link = scripted_broker.accept()
        link.handshake()
        mqtt_rig.until(lambda: mqtt_rig.session.connected)
        link.close()
        mqtt_rig.until(lambda: not mqtt_rig.session.connected)
    assert "the link is bad, or another client uses client id 'gate'" in mqtt_rig.session.detail
    assert mqtt_rig.session.contended
    scripted_broker.accept().handshake()
    mqtt_rig.until(lambda: mqtt_rig.session.connected)
    assert "another client uses client id 'gate'" in mqtt_rig.session.state, "shown while connected, too"
    mqtt_rig.ahead += 3600
    assert not mqtt_rig.session.contended
    assert mqtt_rig.session.state == mqtt_rig.session.detail


def test_a_broker_that_says_nothing_is_left_after_the_handshake_time(
    scripted_broker: Any, mqtt_rig: SessionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.mqtt.session.HANDSHAKE_SECONDS", 0.2)
    scripted_broker.accept()
    mqtt_rig.until(lambda: mqtt_rig.heard.losses)
    assert "did not answer" in mqtt_rig.heard.losses[0]


def test_a_broker_that_is_not_there_is_a_sentence(scripted_broker: Any) -> None:
    rig = SessionRig(scripted_broker)
    scripted_broker.close()
    rig.until(lambda: rig.heard.losses)
    assert f"cannot reach the MQTT broker at 127.0.0.1:{scripted_broker.port}" in rig.session.detail


def test_close_says_disconnect(scripted_broker: Any, mqtt_rig: SessionRig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    mqtt_rig.until(lambda: mqtt_rig.session.connected)
    mqtt_rig.session.close()
    scripted_broker.pump = lambda: None
    link._pump = lambda: None
    assert link.packet(DISCONNECT).kind == DISCONNECT


def test_a_missing_ca_file_is_a_wrong_setting_not_a_broker_out_of_reach(scripted_broker: Any, tmp_path: Path) -> None:
    for name in ("none.pem", "no.pem"):
        (tmp_path / "no.pem").write_text("no certificate")
        with pytest.raises(ConfigError, match=r"mqtt\.ca_file") as caught:
            SessionRig(scripted_broker, tls=True, ca_file=str(tmp_path / name))
        assert caught.value.exit_code == 78

"""The MQTT session against a scripted broker: packets that are odd and allowed, and the client that reads them."""

from typing import Any

import pytest

from gateway.mqtt.chunked_client import unsupported_reason
from tests.support.scripted_broker import PUBACK
from tests.support.session import SessionRig, mids


def test_a_topic_that_is_no_utf_8_comes_through_as_bytes(scripted_broker: Any, mqtt_rig: SessionRig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"a/\xff\xfe", b"x", 3)
    mqtt_rig.until(lambda: mqtt_rig.heard.messages)
    assert mqtt_rig.heard.messages[0].topic == b"a/\xff\xfe"
    assert mqtt_rig.heard.faults == []


def test_user_properties_name_the_message_and_its_trace(scripted_broker: Any, mqtt_rig: SessionRig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"t", b"x", 1, user_properties=(("message-id", "m-1"), ("traceparent", "tp"), ("other", "o")))
    mqtt_rig.until(lambda: mqtt_rig.heard.messages)
    [message] = mqtt_rig.heard.messages
    wanted = ("m-1", "tp") if scripted_broker.protocol == "5" else (None, None)
    assert (message.message_id, message.trace) == wanted


def test_a_character_that_mqtt_allows_and_paho_refuses_costs_no_connection(
    scripted_broker: Any, mqtt_rig: SessionRig
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    odd = (("note\ufeff", "\ufeffx"), ("message-id", "m\ufeff1"))
    link.publish(b"t", b"first", 1, user_properties=odd)
    link.publish(b"t", b"second", 2)
    mqtt_rig.until(lambda: len(mqtt_rig.heard.messages) == 2)
    assert mqtt_rig.session.acknowledge(mqtt_rig.heard.epochs[0], mids(1, 2)) == 2
    assert mqtt_rig.heard.losses == mqtt_rig.heard.faults == []
    if scripted_broker.protocol == "5":
        assert mqtt_rig.heard.messages[0].message_id == "m\ufeff1"


def test_thousands_of_properties_are_one_message(scripted_broker: Any, mqtt_rig: SessionRig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"t", b"many", 1, user_properties=(("message-id", "m-1"), *[("", "")] * 16_000))
    mqtt_rig.until(lambda: mqtt_rig.heard.messages)
    [message] = mqtt_rig.heard.messages
    assert message.payload == b"many"
    assert message.message_id == ("m-1" if scripted_broker.protocol == "5" else None)
    assert mqtt_rig.heard.faults == []


def test_a_message_at_qos_2_that_nobody_asked_for_ends_the_connection_aloud(
    scripted_broker: Any, mqtt_rig: SessionRig
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    mqtt_rig.until(lambda: mqtt_rig.session.connected)
    link.send(b"\x34\x07\x00\x01t\x00\x01\x00x")
    link.wait_closed()
    assert "QoS 2" in mqtt_rig.heard.losses[0]
    assert mqtt_rig.heard.messages == []


def test_another_paho_is_used_as_it_is_with_a_warning(
    scripted_broker: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.mqtt.chunked_client.paho_version", "2.3.0")
    rig = SessionRig(scripted_broker)
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"t", b"x", 1, user_properties=(("message-id", "m-1"),))
    link.publish(b"a/\xff", b"y", 2)
    rig.until(lambda: len(rig.heard.messages) == 2)
    assert "paho-mqtt 2.3.0" in caplog.text
    first, second = rig.heard.messages
    assert (first.topic, first.payload, first.mid, first.qos) == (b"t", b"x", 1, 1)
    assert first.message_id == ("m-1" if scripted_broker.protocol == "5" else None)
    assert second.topic == b"a/\xff"
    rig.session.drop("end of test")


def test_a_paho_that_lacks_a_member_is_used_as_it_is(
    scripted_broker: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert unsupported_reason() is None, "the pinned paho is the one that this was proved with"
    monkeypatch.setattr("gateway.mqtt.chunked_client._METHODS", ("_packet_queue", "_gone_in_some_release"))
    rig = SessionRig(scripted_broker)
    assert "lacks _gone_in_some_release" in caplog.text
    link = scripted_broker.accept()
    link.handshake()
    for mid in (1, 2):
        link.publish(b"t", b"x", mid)
    rig.until(lambda: len(rig.heard.messages) == 2)
    assert link.quiet() == []
    assert rig.session.acknowledge(rig.heard.epochs[0], mids(1, 2)) == 2
    assert [link.packet(PUBACK).mid for _ in range(2)] == [1, 2]
    rig.session.drop("end of test")

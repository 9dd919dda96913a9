"""Check of the broker: limits of CONNACK from a scripted broker and from mosquitto, subscriptions, and that nothing is left."""

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway.gateway_settings import MqttSettings
from gateway.mqtt.broker_check import BrokerAnswer, ask_broker
from tests.support.scripted_broker import (
    CONNACK,
    CONNECT,
    DISCONNECT,
    SUBSCRIBE,
    Link,
    Packet,
    ScriptedBroker,
    frame,
)

EXPIRY, SERVER_LIMITS = (
    0x11,
    {"receive_maximum": 0x21, "max_packet": 0x27, "max_qos": 0x24, "wildcards": 0x28, "shared": 0x2A},
)


def properties(**limits: int) -> bytes:
    forms = {"receive_maximum": ">BH", "max_packet": ">BI", "max_qos": ">BB", "wildcards": ">BB", "shared": ">BB"}
    found = b"".join(
        struct.pack(forms[name], SERVER_LIMITS[name], value) for name, value in limits.items() if name in forms
    )
    if "expiry" in limits:
        found += struct.pack(">BI", EXPIRY, limits["expiry"])
    return bytes([len(found)]) + found


class Visits:
    """A broker that answers each connection of one check, and what it heard."""

    def __init__(self, broker: ScriptedBroker, limits: bytes, *granted: int) -> None:
        self._broker, self._limits, self._granted = broker, limits, granted or (1,)
        self.connects: list[Packet] = []
        self.subscribes: list[Packet] = []
        self.ends: list[Packet] = []

    def serve(self) -> None:
        for _visit in range(3):
            self._visit(self._broker.accept(seconds=20.0))

    def _visit(self, link: Link) -> None:
        self.connects.append(link.packet(CONNECT))
        link.send(frame(CONNACK << 4, b"\0\0" + self._limits))
        while (packet := link.packet()).kind != DISCONNECT:
            assert packet.kind == SUBSCRIBE
            self.subscribes.append(packet)
            link.suback(packet.mid, *(self._granted if len(self.subscribes) == 1 else [0] * 50))
        self.ends.append(packet)


@contextmanager
def visited(limits: bytes, *granted: int) -> Iterator[tuple[Visits, MqttSettings]]:
    broker = ScriptedBroker()
    visits = Visits(broker, limits, *granted)
    thread = threading.Thread(target=visits.serve)
    thread.start()
    yield visits, MqttSettings(port=broker.port, client_id="the-gateway", subscriptions=("a/{device}", "$share/g/b"))
    thread.join(60)
    broker.close()


def test_every_limit_of_connack_is_read() -> None:
    limits = properties(receive_maximum=20, max_packet=65_536, max_qos=1, wildcards=0, shared=0, expiry=3600)
    with visited(limits, 0x87) as (visits, settings):
        answer = ask_broker(settings)
    assert (answer.receive_maximum, answer.max_packet_bytes, answer.session_seconds) == (20, 65_536, 3600)
    assert (answer.max_qos, answer.takes_wildcards, answer.takes_shared) == (1, False, False)
    assert answer.denied == ("a/+",)
    assert not any(b"the-gateway" in packet.body for packet in visits.connects), "the gateway's session stays its own"


def test_the_session_is_asked_for_once_without_subscriptions_and_all_end_at_once() -> None:
    """A check that is killed must not leave a session that collects messages."""
    with visited(properties()) as (visits, settings):
        answer = ask_broker(settings)
    assert (answer.session_seconds, answer.at_most_once, answer.denied) == (None, (), ())
    asked = [struct.pack(">BI", EXPIRY, seconds) for seconds in (7 * 86_400, 0, 0)]
    assert [wanted in packet.body for wanted, packet in zip(asked, visits.connects, strict=True)] == [True] * 3
    assert len(visits.subscribes) == 2
    assert b"$share" not in b"".join(packet.body for packet in visits.subscribes), "a member takes messages away"
    assert [struct.pack(">BI", EXPIRY, 0) in packet.body for packet in visits.ends] == [True] * 3


def test_a_filter_at_qos_0_is_named() -> None:
    with visited(properties(), 0) as (_visits, settings):
        assert ask_broker(settings).at_most_once == ("a/+",)


def test_a_broker_that_never_answers_is_a_sentence() -> None:
    broker = ScriptedBroker()
    assert "does not answer CONNECT" in ask_broker(MqttSettings(port=broker.port), timeout_seconds=0.3).refused
    broker.close()


def mqtt_settings(server: Any, **more: Any) -> MqttSettings:
    given = {
        "host": server.host,
        "port": server.port_v5,
        "username": server.username,
        "password": server.password,
        **more,
    }
    return MqttSettings.model_validate(given)


def sessions(answer: BrokerAnswer) -> float:
    """Sessions that the broker knows, with and without a connection."""
    return sum(answer.figures.get(f"broker_clients_{state}", 0) for state in ("connected", "disconnected"))


def test_mosquittos_limits_are_read_and_no_session_is_left(mqtt_broker: Callable[..., Any], wait_until: Any) -> None:
    server = mqtt_broker("mosquitto", window=50, max_packet_bytes=100_000)
    answer = ask_broker(mqtt_settings(server, subscriptions=("a/#", "$share/g/b")))
    assert answer.refused == ""
    assert answer.max_packet_bytes == 100_000
    assert answer.version.startswith("mosquitto version")
    assert (answer.denied, answer.at_most_once) == ((), ())
    assert answer.figures["broker_publish_messages_dropped"] == 0
    wait_until(lambda: sessions(ask_broker(mqtt_settings(server))) <= 1, what="the sessions of the check to be gone")


@pytest.mark.parametrize(
    ("more", "words"), [({"password": "wrong"}, "refuses user tester"), ({"tls": True}, "no MQTT connection")]
)
def test_a_wrong_password_and_a_port_without_tls_are_a_sentence(
    mqtt_broker: Callable[..., Any], more: dict[str, Any], words: str
) -> None:
    server = mqtt_broker("mosquitto")
    answer = ask_broker(mqtt_settings(server, **more))
    assert words in answer.refused
    assert "wrong" not in answer.refused


def test_mqtt_311_logs_in_and_shows_nothing(mqtt_broker: Callable[..., Any]) -> None:
    server = mqtt_broker("mosquitto")
    answer = ask_broker(mqtt_settings(server, port=server.port, protocol="3.1.1"))
    assert (answer.refused, answer.receive_maximum, answer.max_packet_bytes) == ("", None, None)

"""The embedded brokers as a device and the gateway meet them."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

KINDS = ["mosquitto", "iotcore"]
VERSIONS = {"3.1.1": mqtt.MQTTv311, "5": mqtt.MQTTv5}


class Client:
    """A paho client whose events a test can await."""

    def __init__(self, server: Any, version: str, client_id: str, *, password: str | None = None) -> None:
        self.v5 = version == "5"
        # None where the broker takes the session's life from the CONNECT properties.
        clean = None if self.v5 else False
        self.paho = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=client_id, protocol=VERSIONS[version], clean_session=clean
        )
        self.paho.username_pw_set(server.username, password or server.password)
        self.connected, self.subscribed, self.lost = threading.Event(), threading.Event(), threading.Event()
        self.refused, self.accepted, self.session_present = False, False, False
        self._wanted: tuple[str, int] | None = None
        self.payloads: list[bytes] = []
        self.paho.on_connect = self._on_connect
        self.paho.on_subscribe = lambda *_: self.subscribed.set()
        self.paho.on_message = lambda _client, _data, message: self.payloads.append(message.payload)
        self.paho.on_disconnect = self._on_disconnect
        self._address = (server.host, server.port_v5 if self.v5 else server.port)

    def _on_connect(self, _client: Any, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        self.refused, self.session_present = reason.is_failure, flags.session_present
        self.accepted = self.accepted or not reason.is_failure
        if self._wanted is not None:
            # As any device does: a broker that drops a connection forgets a SUBSCRIBE that was under way.
            self.paho.subscribe(*self._wanted)
        self.connected.set()

    def _on_disconnect(self, *_: Any) -> None:
        self.connected.clear()
        self.lost.set()

    def start(self) -> "Client":
        properties = None
        if self.v5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 7 * 24 * 3600
        extra = {"properties": properties, "clean_start": False} if self.v5 else {}
        self.paho.connect(*self._address, keepalive=30, **extra)
        self.paho.loop_start()
        return self

    def subscribe(self, topic: str, qos: int) -> None:
        self._wanted = topic, qos
        self.paho.subscribe(topic, qos)

    def stop(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def make(*args: Any, **kwargs: Any) -> Client:
        made.append(Client(*args, **kwargs))
        return made[-1].start()

    yield make
    for one in made:
        one.stop()


def publish(sender: Client, topic: str, count: int, *, qos: int = 1) -> None:
    for number in range(count):
        sender.paho.publish(topic, str(number), qos=qos).wait_for_publish(30)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_user_gets_in_and_a_wrong_password_does_not(
    kind: str, version: str, mqtt_broker: Any, client: Any, wait_until: Any, unique_name: str
) -> None:
    server = mqtt_broker(kind)
    good = client(server, version, unique_name)
    wait_until(good.connected.is_set, what="the connection")
    assert not good.refused
    bad = client(server, version, unique_name + "-bad", password="wrong")
    # iotcore closes the socket without a word; mosquitto says why.
    wait_until(lambda: bad.refused or bad.lost.is_set(), what="the refusal")
    assert not bad.accepted


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_quality_of_service_arrives(
    kind: str, version: str, qos: int, mqtt_broker: Any, client: Any, wait_until: Any, unique_name: str
) -> None:
    server = mqtt_broker(kind)
    receiver = client(server, version, unique_name)
    wait_until(receiver.connected.is_set)
    receiver.subscribe("site/#", qos)
    wait_until(receiver.subscribed.is_set)
    sender = client(server, version, unique_name + "-sender")
    publish(sender, "site/a", 20, qos=qos)
    wait_until(lambda: len(receiver.payloads) == 20, what="20 messages")
    assert receiver.payloads == [str(number).encode() for number in range(20)]


def leave_a_session(server: Any, version: str, client: Any, wait_until: Any, name: str) -> None:
    away = client(server, version, name)
    wait_until(away.connected.is_set)
    away.subscribe("site/#", 1)
    wait_until(away.subscribed.is_set)
    away.stop()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_session_keeps_what_came_while_its_client_was_away(
    kind: str, version: str, mqtt_broker: Any, client: Any, wait_until: Any, unique_name: str
) -> None:
    server = mqtt_broker(kind)
    leave_a_session(server, version, client, wait_until, unique_name)
    publish(client(server, version, unique_name + "-sender"), "site/a", 500)
    back = client(server, version, unique_name)
    wait_until(lambda: len(back.payloads) == 500, what="500 messages")
    assert back.session_present
    assert back.payloads == [str(number).encode() for number in range(500)]


@pytest.mark.durable_broker
@pytest.mark.parametrize("version", VERSIONS)
def test_mosquitto_keeps_its_queue_over_a_kill(
    version: str,
    mqtt_broker: Any,
    client: Any,
    wait_until: Any,
    unique_name: str,
    await_save: Callable[[Any], None],
) -> None:
    server = mqtt_broker("mosquitto")
    assert server.durable
    leave_a_session(server, version, client, wait_until, unique_name)
    sender = client(server, version, unique_name + "-sender")
    publish(sender, "site/a", 500)
    sender.stop()
    # A save that ends after the last acknowledgement holds everything: the broker answers nobody while it saves.
    await_save(server)
    server.restart()
    back = client(server, version, unique_name)
    wait_until(lambda: len(back.payloads) == 500, what="500 messages")
    assert back.session_present


def test_iotcore_loses_its_queue_when_it_is_killed_and_says_so(
    mqtt_broker: Any, client: Any, wait_until: Any, unique_name: str
) -> None:
    server = mqtt_broker("iotcore")
    leave_a_session(server, "3.1.1", client, wait_until, unique_name)
    sender = client(server, "3.1.1", unique_name + "-sender")
    publish(sender, "site/a", 10)
    sender.stop()
    server.restart()
    back = client(server, "3.1.1", unique_name)
    wait_until(back.connected.is_set)
    assert not back.session_present
    assert not server.durable
    assert "the waiting messages are lost" in server.part.warnings[0]


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_the_broker_are_for_this_user_only(kind: str, mqtt_broker: Any) -> None:
    server = mqtt_broker(kind)
    files = ["mosquitto.conf", "passwords"] if kind == "mosquitto" else ["rumqttd.toml"]
    assert {(server.part.folder / name).stat().st_mode & 0o077 for name in files} == {0}


def test_a_packet_over_the_limit_costs_its_sender_the_connection(
    mqtt_broker: Any, client: Any, wait_until: Any, unique_name: str
) -> None:
    server = mqtt_broker("mosquitto", max_packet_bytes=20_000)
    sender = client(server, "3.1.1", unique_name)
    wait_until(sender.connected.is_set)
    sender.paho.publish("site/a", b"x" * 30_000, qos=0)
    wait_until(lambda: not sender.connected.is_set(), what="the disconnection")

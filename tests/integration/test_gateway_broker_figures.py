"""The monitor's look at real MQTT brokers: true counts, drops that happened, and a broker that hangs, ends, refuses."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from pydantic import SecretStr

from deploy.local.ports import choose_port
from gateway.devtools.publisher import Publisher
from gateway.gateway_settings import MqttSettings
from gateway.mqtt.broker_probe import BrokerProbe
from monitoring.metrics.monitor import BROKER

Samples = dict[str, list[tuple[tuple[str, ...], float]]]
MakeFigures = Callable[..., BrokerProbe]

DOWN: Samples = {"tidegate_broker_reachable": [((), 0.0)]}
LOOK_LIMIT_SECONDS = 5.5
"""A look promises about 3 s; a busy machine gets a little more."""


def settings_of(server: Any, protocol: str = "5", **more: Any) -> MqttSettings:
    return MqttSettings(
        host=server.host, port=server.port_v5 if protocol == "5" else server.port, protocol=protocol,
        username=server.username, password=SecretStr(server.password), **more,
    )  # fmt: skip


@pytest.fixture
def make_figures(unique_name: str) -> Iterator[MakeFigures]:
    made: list[BrokerProbe] = []

    def make(settings: MqttSettings) -> BrokerProbe:
        made.append(BrokerProbe(settings, f"{unique_name}-{len(made)}"))
        return made[-1]

    yield make
    for figures in made:
        figures.close()


def value(samples: Samples, name: str) -> float | None:
    series = samples.get(name)
    return series[0][1] if series else None


def publish(server: Any, topic: str, count: int, client_id: str) -> None:
    publisher = Publisher(settings_of(server), client_id=client_id)
    publisher.connect()
    for number in range(count):
        publisher.publish(topic, b"%d" % number)
    assert publisher.drain()
    publisher.close()


def timed_look(figures: BrokerProbe) -> Samples:
    begun = time.monotonic()
    samples = figures.look()
    assert time.monotonic() - begun < LOOK_LIMIT_SECONDS
    return samples


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a look tells is right however busy the machine is; how long it takes is for tests of their own."""
    monkeypatch.setattr("gateway.mqtt.broker_probe.LOOK_SECONDS", 60.0)


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_a_thousand_published_messages_are_counted(
    mqtt_broker: Any, make_figures: MakeFigures, unique_name: str, protocol: str, wait_until: Any
) -> None:
    server = mqtt_broker("mosquitto")
    figures = make_figures(settings_of(server, protocol))
    first = figures.look()
    assert value(first, "tidegate_broker_reachable") == value(first, "tidegate_broker_sys_available") == 1.0
    assert first.keys() == {family.name for family in BROKER}, "every figure, at the first look"
    name = "broker_publish_messages_received"
    before = value(first, name)
    publish(server, f"plain/{unique_name}", 1000, f"{unique_name}-p")
    wait_until(lambda: (value(figures.look(), name) or 0) >= (before or 0) + 1000, what="1,000 more messages received")
    # Nothing of what the looks themselves do is a message: the count stays what others sent.
    wait_until(lambda: (value(figures.look(), "broker_uptime") or 0) > (value(first, "broker_uptime") or 0) + 4)
    assert value(figures.look(), name) == (before or 0) + 1000


@pytest.mark.usefixtures("_patient")
def test_messages_that_the_broker_drops_are_seen(
    mqtt_broker: Any, make_figures: MakeFigures, unique_name: str, wait_until: Any
) -> None:
    server = mqtt_broker("mosquitto", max_queued_messages=10)
    away = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{unique_name}-away", clean_session=False)
    away.username_pw_set(server.username, server.password)
    subscribed: list[int] = []
    away.on_subscribe = lambda *_: subscribed.append(1)
    away.connect(server.host, server.port)
    away.subscribe(f"plain/{unique_name}", 1)
    wait_until(lambda: away.loop(0.1) == 0 and subscribed, what="the subscription")
    away.disconnect()
    figures = make_figures(settings_of(server))
    assert value(figures.look(), "broker_publish_messages_dropped") == 0.0
    publish(server, f"plain/{unique_name}", 100, f"{unique_name}-p")
    wait_until(
        lambda: (value(figures.look(), "broker_publish_messages_dropped") or 0) >= 80, what="the dropped messages"
    )
    assert value(figures.look(), "broker_clients_disconnected") == 1.0


@pytest.mark.parametrize("kind", ["mosquitto", "iotcore"])
def test_a_broker_that_hangs_is_seen_and_heals(
    mqtt_broker: Any, make_figures: MakeFigures, kind: str, wait_until: Any
) -> None:
    server = mqtt_broker(kind)
    figures = make_figures(settings_of(server))
    for _ in range(3):
        wait_until(lambda: value(figures.look(), "tidegate_broker_reachable") == 1.0, what="an answer in time")
    server.hold()
    try:
        for _ in range(3):
            assert timed_look(figures) == DOWN, "no figure stands still as if it were true"
    finally:
        server.resume_process()
    wait_until(lambda: value(figures.look(), "tidegate_broker_reachable") == 1.0, what="the broker again")


def test_a_broker_that_restarts_is_found_again(mqtt_broker: Any, make_figures: MakeFigures, wait_until: Any) -> None:
    server = mqtt_broker("mosquitto")
    figures = make_figures(settings_of(server))
    assert value(figures.look(), "broker_uptime") is not None
    server.kill()
    assert timed_look(figures) == DOWN
    server.restart()
    wait_until(lambda: value(figures.look(), "broker_uptime") is not None, what="the broker's figures again")


@pytest.mark.usefixtures("_patient")
def test_a_connection_that_the_broker_ended_is_no_outage(
    mqtt_broker: Any, make_figures: MakeFigures, unique_name: str
) -> None:
    server = mqtt_broker("mosquitto")
    figures = make_figures(settings_of(server))
    figures.look()
    other = BrokerProbe(settings_of(server), f"{unique_name}-0")
    assert value(other.look(), "tidegate_broker_reachable") == 1.0, "it takes the session of the same name"
    assert value(figures.look(), "tidegate_broker_reachable") == 1.0
    other.close()


def test_a_broker_without_figures_is_well_and_has_none(mqtt_broker: Any, make_figures: MakeFigures) -> None:
    """It even throws out who subscribes to `$SYS`, so that is not asked for at each look."""
    figures = make_figures(settings_of(mqtt_broker("iotcore")))
    for _ in range(5):
        assert timed_look(figures) == {
            "tidegate_broker_reachable": [((), 1.0)],
            "tidegate_broker_sys_available": [((), 0.0)],
        }
    assert figures._client is not None
    assert figures._client.is_connected(), "the connection lasts"


def test_a_refused_password_is_down_said_once_and_not_tried_at_each_look(
    mqtt_broker: Any, make_figures: MakeFigures, caplog: pytest.LogCaptureFixture
) -> None:
    server = mqtt_broker("mosquitto")
    wrong = settings_of(server).model_copy(update={"password": SecretStr("hidden words")})
    figures = make_figures(wrong)
    for _ in range(4):
        assert timed_look(figures) == DOWN
    said = [record.getMessage() for record in caplog.records if "MQTT broker" in record.getMessage()]
    assert len(said) == 1
    assert "refuses the monitor's connection" in said[0]
    assert "hidden" not in caplog.text


def test_nobody_there_and_a_server_that_says_nothing(make_figures: MakeFigures) -> None:
    assert timed_look(make_figures(MqttSettings(port=choose_port(0)[0]))) == DOWN
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert timed_look(make_figures(MqttSettings(port=silent.getsockname()[1]))) == DOWN
        assert timed_look(make_figures(MqttSettings(port=silent.getsockname()[1], tls=True))) == DOWN


def test_garbage_from_the_broker_costs_one_look(scripted_broker: Any, make_figures: MakeFigures) -> None:
    broker = scripted_broker
    figures = make_figures(MqttSettings(port=broker.port, protocol=broker.protocol))

    def look() -> Future[Samples]:
        return pool.submit(figures.look)

    with ThreadPoolExecutor(1) as pool:
        answer = look()
        link = broker.accept()
        link.handshake()
        link.publish(b"$SYS/broker/uptime", b"17 seconds", None)
        link.publish(b"$SYS/broker/bytes/sent", b"1e999", None)
        link.publish(b"$SYS/broker/bytes/received", b"nan", None)
        link.publish(b"\xff\xfe", b"5", None)
        link.answer_ping()
        assert value(answer.result(10), "broker_uptime") == 17.0
        assert value(answer.result(10), "tidegate_broker_sys_available") == 1.0
        assert not answer.result(10).keys() & {"broker_bytes_sent", "broker_bytes_received"}
        answer = look()
        link.quiet(0.3)
        link.send(b"\x20\xff\xff\xff\xff\xff\xff")
        answer.result(10)
        answer = look()
        link = broker.accept()
        link.handshake()
        link.answer_ping()
        assert value(answer.result(10), "tidegate_broker_reachable") == 1.0

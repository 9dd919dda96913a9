"""What a device developer gets: snippets that run as printed, and refusals told live, through a real broker."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from prometheus_client import CollectorRegistry

from deploy.device_watch import show_line, watch_device
from deploy.settings import Settings
from deploy.snippets import LANGUAGES, PublishTarget, render_snippet
from deploy.stored_notifier import StoredReceiptNotifier
from gateway.devtools.publisher import Publisher
from gateway.gateway_settings import GatewaySettings, MqttSettings, ReceiptSettings
from gateway.replies.receipts import make_receipts
from gateway.service import GatewayService
from ingest.contract.errors import ConfigError, UnavailableError
from ingest.contract.reading import Reading, ReadingRecord, decode_record, encode_record
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import LAND_GROUP, READINGS
from ingest.groups.offset_mirror import OffsetMirror
from ingest.kafka_settings import KafkaSettings
from ingest.memory import MemoryLog
from ingest.producer import open_writer
from ingest.topics.offsets import end_offsets
from ingest.topics.setup import ensure_topics
from monitoring.metrics.gateway import GatewayMetrics

pytestmark = pytest.mark.promise("P5")

ROOT = Path(__file__).parents[2]


class Rig:
    """A broker and a gateway on it that writes to a log in memory."""

    def __init__(self, server: Any, name: str, folder: Path) -> None:
        self.server, self.name = server, name
        self.mqtt = MqttSettings(
            host=server.host, port=server.port_v5, username=server.username, password=server.password, client_id=name,
            session_file=str(folder / "session.json"),
        )  # fmt: skip
        self.log, self._stop = MemoryLog(), threading.Event()
        limits, metrics = (
            GatewaySettings(),
            GatewayMetrics(CollectorRegistry(), reasons=Reason, ignored_reasons=IgnoredReason),
        )
        self.metrics = metrics
        receipts = make_receipts(ReceiptSettings(), (), limits, metrics)
        self.service = GatewayService(self.mqtt, limits, (), lambda *_: self.log.writer(), metrics, receipts=receipts)
        self._thread = threading.Thread(target=self.service.run, args=(self._stop,))
        self._thread.start()

    @property
    def target(self) -> PublishTarget:
        return PublishTarget(self.server.host, self.server.port, self.server.username, None, where="it is here")

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "MQTT_PASSWORD": self.server.password, **more}

    def values(self, device: str) -> list[Any]:
        records = [decode_record(record.value or b"") for record in self.log.records(READINGS)]
        return [
            r.value
            for record in records
            if record.device == device
            for r in record.readings
            if r.metric == "temperature"
        ]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(20)


@pytest.fixture
def rig(mqtt_broker: Callable[..., Any], unique_name: str, tmp_path: Path, wait_until: Any) -> Iterator[Rig]:
    made = Rig(mqtt_broker(), unique_name, tmp_path)
    try:
        wait_until(lambda: made.service.healthy()[0], what="the gateway at the broker")
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("with_password", [False, True])
def test_the_python_snippet_runs_as_printed(rig: Rig, with_password: bool, wait_until: Any) -> None:
    target = rig.target._replace(password=rig.server.password if with_password else None)
    text = render_snippet("python", 'py "1" Küche', target)
    assert (rig.server.password in text) == with_password
    assert ("it is here" in text) != with_password
    environment = {} if with_password else rig.environment()
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **environment, "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "connected: Success" in done.stdout
    wait_until(lambda: rig.values('py "1" Küche') == [21.0, 22.0, 23.0], what="three readings")


def test_the_mosquitto_snippet_runs_as_printed(rig: Rig, wait_until: Any) -> None:
    if subprocess.run(["sh", "-c", "command -v mosquitto_pub"], capture_output=True, check=False).returncode:
        pytest.skip("mosquitto_pub is not on this machine")
    text = render_snippet("mosquitto", "it's me", rig.target)
    done = subprocess.run(
        ["sh", "-e", "-c", text], capture_output=True, text=True, timeout=30, check=False, env=rig.environment()
    )
    assert (done.returncode, done.stderr) == (0, "")
    wait_until(lambda: rig.values("it's me") == [21.5], what="the reading")


def test_every_snippet_names_this_broker_and_both_topics_and_no_password() -> None:
    target = PublishTarget("broker.example", 8883, "user", None, tls=True, ca_file="/etc/ca.pem", where="look there")
    for language in LANGUAGES:
        text = render_snippet(language, "attic", target)
        for part in (
            "broker.example",
            "8883",
            "user",
            "tidegate/v1/attic/readings",
            "tidegate/receipts/attic",
            "look there",
        ):
            assert part in text, (language, part)
        assert "CERTIFICATE" not in text or language == "arduino"
        signed = target._replace(ca_text="-----BEGIN CERTIFICATE-----\nabc\n", cert_file="/c.pem", key_file="/k.pem")
        text = render_snippet(language, "attic", signed)
        assert "-----BEGIN CERTIFICATE-----\nabc\n" in text
        assert "/etc/ca.pem" not in text
        assert ("setPrivateKey" if language == "arduino" else "/k.pem") in text
    assert "this machine only" not in render_snippet("arduino", "attic", target)
    assert "this machine only" in render_snippet("arduino", "attic", target._replace(host="127.0.0.1"))
    with pytest.raises(ConfigError, match="one segment"):
        render_snippet("python", "a/b", target)


def test_a_watcher_sees_each_refusal_with_what_to_do(rig: Rig) -> None:
    broken = b'{"values": {"temp": {"unit": "V"}, "a": 1}}'
    stopped = threading.Event()
    for each in _watched(rig, "attic", stopped, lambda: _publish(rig, broken)):
        assert (each["kind"], each["reason"], each["path"]) == ("refused", "missing_field", "$.values.temp.value")
        line = show_line(each, as_json=False)
        assert "missing_field at $.values.temp.value: got an object with the key unit; wanted a number" in line
        assert "next     Add the field" in line
        assert json.loads(show_line(each, as_json=True))["partial"] is True
        stopped.set()


def _watched(rig: Rig, device: str, stop: threading.Event, act: Callable[[], None]) -> Iterator[dict[str, Any]]:
    """Watch, and act once the watcher listens: again until something is seen, for only it knows when it does."""
    acting = threading.Thread(target=lambda: [act() for _ in range(100) if not stop.wait(0.2)])
    acting.start()
    try:
        yield from watch_device(rig.mqtt, device, root=None, stop=stop, seconds=30)
        assert stop.is_set(), "nothing was seen"
    finally:
        stop.set()
        acting.join()


def _publish(rig: Rig, payload: bytes) -> None:
    publisher = Publisher(rig.mqtt, client_id=f"{rig.name}-device")
    publisher.connect()
    publisher.publish("tidegate/v1/attic/readings", payload)
    publisher.drain()
    publisher.close()


def test_an_mqtt_5_request_is_answered_where_it_asks_with_its_correlation_data(rig: Rig) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{rig.name}-v5", protocol=paho.MQTTv5)
    client.username_pw_set(rig.server.username, rig.server.password)
    subscribed = threading.Event()
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = lambda _client, _data, message: answers.put(message)
    client.connect(rig.server.host, rig.server.port_v5)
    client.loop_start()
    try:
        client.subscribe("tidegate/receipts/attic/answers", qos=1)
        assert subscribed.wait(10)
        properties = Properties(PacketTypes.PUBLISH)
        properties.ResponseTopic, properties.CorrelationData = "tidegate/receipts/attic/answers", b"\x00\x2a"
        properties.UserProperty = [("message-id", "m-1")]
        client.publish("tidegate/v1/attic/readings", b"no json", qos=1, properties=properties)
        answer = answers.get(timeout=20)
    finally:
        client.disconnect()
        client.loop_stop()
    told = json.loads(answer.payload)
    assert (told["reason"], told["message_id"], told["topic"]) == ("bad_json", "mp:m-1", "tidegate/v1/attic/readings")
    assert answer.properties.CorrelationData == b"\x00\x2a"


def test_a_wrong_password_is_said_at_once(rig: Rig) -> None:
    wrong = rig.mqtt.model_copy(update={"password": None, "username": "nobody"})
    with pytest.raises(UnavailableError, match="does not accept a subscription to tidegate/receipts/attic"):
        list(watch_device(wrong, "attic", root=None, stop=threading.Event()))


def test_what_spark_has_passed_is_told_where_devices_are_to_hear_of_it(
    rig: Rig, kafka_server: Any, unique_name: str, wait_until: Any
) -> None:
    """The landing is stood in for by its consumer group's offsets, which are all that is watched."""
    kafka = KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers, partitions=2)
    ensure_topics(kafka)
    settings = Settings(
        kafka=kafka,
        mqtt=rig.mqtt,
        gateway=GatewaySettings(gateway_id=unique_name),
        receipts=ReceiptSettings(positive=True),
    )
    teller = StoredReceiptNotifier(settings, rig.metrics, threading.Event())
    mirror = OffsetMirror(kafka, LAND_GROUP)
    before = end_offsets(kafka, READINGS)
    mirror.mirror({READINGS: before})
    assert mirror.drain(20)
    teller.look()
    writer = open_writer(kafka)
    for seq in range(1, 4):
        record = ReadingRecord(
            1,
            unique_name,
            5,
            seq,
            1_795_830_000_000_000,
            "t",
            "attic",
            [Reading("temp", 1.0)],
            message_id=f"bs:1:{seq}",
        )
        writer.produce(READINGS, b"attic", encode_record(record), lambda _: None)
    assert writer.flush(120) == 0
    writer.close()
    stopped = threading.Event()

    def land() -> None:
        teller._told = before  # until the watcher listens, the same stretch is told again
        mirror.mirror({READINGS: end_offsets(kafka, READINGS)})
        assert mirror.drain(20)
        teller.look()

    for each in _watched(rig, "attic", stopped, land):
        assert (each["kind"], each["stored"], each["first"], each["last"]) == ("confirmed", 3, "bs:1:1", "bs:1:3")
        assert "stored   3 messages, up to [bs:1:3], partition" in show_line(each, as_json=False)
        stopped.set()
    mirror.close()
    told = teller._told
    teller.look()
    assert teller._told == told
    assert teller._publisher is not None
    teller._publisher.close()

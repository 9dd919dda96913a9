"""The gateway as its own process between a real broker and a real Kafka: killed, stopped, cut off; nothing is lost."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter
from ingest.contract.errors import RetryableError
from ingest.contract.outcome import OutcomeRecord, decode_outcome
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.read.offset_range import read_range
from ingest.topics.offsets import begin_offsets, end_offsets
from ingest.topics.setup import ensure_topics

pytestmark = pytest.mark.promise("P3")

ROOT = Path(__file__).parents[2]
RUNNER = """
import json, logging, signal, sys, threading
from prometheus_client import CollectorRegistry
from gateway.build import run
from gateway.gateway_settings import GatewaySettings, MqttSettings, RouteSettings
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.kafka_settings import KafkaSettings
from monitoring.metrics.gateway import GatewayMetrics

logging.basicConfig(level=logging.INFO)
given = json.loads(sys.argv[1])
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
run(
    mqtt=MqttSettings.model_validate(given["mqtt"]),
    gateway=GatewaySettings.model_validate(given["gateway"]),
    routes=(RouteSettings(filter="site/#"),),
    kafka=KafkaSettings.model_validate(given["kafka"]),
    metrics=GatewayMetrics(CollectorRegistry(), reasons=Reason, ignored_reasons=IgnoredReason),
    stop=stop,
)
"""


class Rig:
    """One gateway's settings, its process, a publisher, and readers of what reached Kafka from this gateway alone."""

    def __init__(self, broker: Any, kafka: Any, name: str, folder: Path, protocol: str, **gateway: Any) -> None:
        self.name, self.folder = name, folder
        self.kafka = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers, partitions=2)
        ensure_topics(self.kafka)
        self._begin = {topic: end_offsets(self.kafka, topic) for topic in (READINGS, DEAD_LETTERS, OUTCOMES)}
        login = {"host": broker.host, "username": broker.username, "password": broker.password}
        self.settings = {
            "mqtt": {
                **login,
                "port": broker.port_v5 if protocol == "5" else broker.port,
                "protocol": protocol,
                "client_id": name,
                "subscriptions": ["tidegate/v1/+/readings", "site/#", "nowhere/#"],
                "keepalive_seconds": 5,
                "reconnect_max_seconds": 0.5,
                "session_file": str(folder / "session.json"),
            },
            "gateway": {"gateway_id": name, **gateway},
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "partitions": 2},
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.publisher = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{name}-publisher", clean_session=False)
        self.publisher.username_pw_set(broker.username, broker.password)
        self.publisher.max_inflight_messages_set(200)
        self.publisher.connect(broker.host, broker.port)
        self.publisher.loop_start()

    def start(self) -> None:
        with (self.folder / "gateway.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUNNER, json.dumps(self.settings)],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(30)

    def close(self) -> None:
        self.publisher.disconnect()
        self.publisher.loop_stop()
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def log(self) -> str:
        return (self.folder / "gateway.log").read_text("utf-8")

    def publish(self, topic: str, payload: bytes) -> None:
        self.publisher.publish(topic, payload, qos=1)

    def publish_native(self, device: str, seqs: range) -> None:
        for seq in seqs:
            payload = json.dumps({"boot": 1, "seq": seq, "values": {"temp": seq / 10}}).encode()
            self.publish(f"tidegate/v1/{self.name}-{device}/readings", payload)

    def _values(self, topic: str) -> list[bytes]:
        start = self._begin[topic] or begin_offsets(self.kafka, topic)
        batches = read_range(self.kafka, topic, start, end_offsets(self.kafka, topic))
        return [record.value for batch in batches for record in batch if record.value is not None]

    def readings(self) -> list[ReadingRecord]:
        return [record for value in self._values(READINGS) if (record := decode_record(value)).gateway == self.name]

    def dead_letters(self) -> list[DeadLetterRecord]:
        return [r for value in self._values(DEAD_LETTERS) if (r := decode_dead_letter(value)).gateway == self.name]

    def outcomes(self) -> list[OutcomeRecord]:
        return [r for value in self._values(OUTCOMES) if (r := decode_outcome(value)).gateway == self.name]

    def counted(self) -> int:
        """-1 while Kafka does not answer, as after it was stopped."""
        try:
            outcomes = self.outcomes()
        except RetryableError:
            return -1
        return sum(count.received for outcome in outcomes for count in outcome.counts)

    def stored(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = defaultdict(set)
        for record in self.readings():
            assert record.seq is not None
            found[record.device.removeprefix(f"{self.name}-")].add(record.seq)
        return found

    def assert_in_order(self) -> None:
        """Within each connection the numbers of a device ascend, in the topic as at the device."""
        last: dict[tuple[str, int], int] = {}
        for record in self.readings():
            key = record.device, record.epoch
            assert record.seq is not None
            assert record.seq > last.get(key, -1), (key, record.seq)
            last[key] = record.seq


MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(tmp_path: Path, unique_name: str) -> Iterator[MakeRig]:
    made: list[Rig] = []

    def make(broker: Any, kafka: Any, protocol: str, **gateway: Any) -> Rig:
        made.append(Rig(broker, kafka, unique_name, tmp_path, protocol, **gateway))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


def until_subscribed(rig: Rig, wait_until: Any) -> None:
    wait_until((rig.folder / "session.json").exists, what="the first subscription")


@pytest.mark.parametrize(
    ("kind", "protocol"), [("mosquitto", "5"), ("mosquitto", "3.1.1"), ("iotcore", "5"), ("iotcore", "3.1.1")]
)
def test_every_message_has_one_outcome(
    mqtt_broker: Any, kafka_server: Any, make_rig: MakeRig, wait_until: Any, kind: str, protocol: str
) -> None:
    rig = make_rig(mqtt_broker(kind), kafka_server, protocol)
    rig.start()
    until_subscribed(rig, wait_until)
    for device in ("a", "b", "c"):
        rig.publish_native(device, range(100))
    for _ in range(20):
        rig.publish(f"tidegate/v1/{rig.name}-bad/readings", b"no json")
        rig.publish(f"nowhere/{rig.name}", b"\xff\xfe")
        rig.publish(f"site/{rig.name}/temperature", b"")
    wait_until(lambda: rig.counted() == 360, seconds=60, what="360 messages counted")
    assert rig.terminate() == 0, rig.log()
    assert rig.stored() == {device: set(range(100)) for device in "abc"}
    assert len(rig.readings()) == 300
    rig.assert_in_order()
    reasons = [letter.reason for letter in rig.dead_letters()]
    assert (reasons.count("bad_json"), reasons.count("no_route"), len(reasons)) == (20, 20, 40)
    assert sum(count.gap + count.reordered for outcome in rig.outcomes() for count in outcome.counts) == 0


@pytest.mark.durable_broker
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_kill_9_between_any_two_steps_loses_nothing(
    mqtt_broker: Any, kafka_server: Any, make_rig: MakeRig, wait_until: Any, protocol: str
) -> None:
    rig = make_rig(mqtt_broker("mosquitto"), kafka_server, protocol)
    rig.start()
    until_subscribed(rig, wait_until)
    for round_number in range(3):
        first = round_number * 2000
        for device in ("a", "b"):
            rig.publish_native(device, range(first, first + 2000))
        wait_until(lambda first=first: len(rig.stored().get("a", ())) > first, seconds=60, what="some stored")
        rig.kill()
        rig.start()
    everything = {device: set(range(6000)) for device in "ab"}
    wait_until(lambda: rig.stored() == everything, seconds=90, what="all stored")
    rig.assert_in_order()
    for record in rig.readings():
        assert record.message_id == f"bs:1:{record.seq}", "a second copy is recognisable"
    assert len({record.epoch for record in rig.readings()}) > 1, "no kill came amid the messages: publish more"
    wait_until(lambda: rig.log().count("gateway running") == 4, what="the last one is up")
    assert rig.terminate() == 0


@pytest.mark.durable_broker
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_a_kafka_that_hangs_costs_time_only(
    mqtt_broker: Any, new_kafka: Any, make_rig: MakeRig, wait_until: Any, protocol: str
) -> None:
    kafka = new_kafka()
    rig = make_rig(mqtt_broker("mosquitto", window=50), kafka, protocol, window_messages=50)
    rig.start()
    until_subscribed(rig, wait_until)
    rig.publish_native("a", range(100))
    wait_until(lambda: rig.counted() == 100, seconds=60)
    kafka.hold()
    try:
        rig.publish_native("a", range(100, 600))
        # Longer than the keepalive allows: a gateway that does not answer would be cut off.
        wait_until(lambda: "waiting for Kafka to acknowledge" in rig.log(), what="the wait being told")
        assert rig.process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            rig.process.wait(10)
    finally:
        kafka.resume_process()
    wait_until(lambda: rig.counted() == 600, seconds=90, what="all counted")
    assert rig.terminate() == 0
    assert [record.seq for record in rig.readings()] == list(range(600)), "in order, each once"
    assert "MQTT session:" not in rig.log(), "the connection was kept throughout"


@pytest.mark.durable_broker
def test_a_broker_killed_and_restarted_keeps_what_it_accepted(
    mqtt_broker: Any, kafka_server: Any, make_rig: MakeRig, wait_until: Any, await_save: Callable[[Any], None]
) -> None:
    broker = mqtt_broker("mosquitto")
    rig = make_rig(broker, kafka_server, "5")
    rig.start()
    until_subscribed(rig, wait_until)
    rig.publish_native("a", range(50))
    wait_until(lambda: rig.counted() == 50, seconds=60)
    # Without the gateway's session the broker would drop what comes before the gateway is back.
    await_save(broker)
    broker.restart()
    wait_until(rig.publisher.is_connected, what="the publisher is back")
    rig.publish_native("a", range(50, 100))
    wait_until(lambda: rig.stored() == {"a": set(range(100))}, seconds=60, what="all stored")
    rig.assert_in_order()
    assert rig.terminate() == 0


def test_a_kafka_that_comes_late_is_waited_for(
    mqtt_broker: Any, new_kafka: Any, make_rig: MakeRig, wait_until: Any
) -> None:
    kafka = new_kafka()
    rig = make_rig(mqtt_broker(), kafka, "5")
    kafka.kill()
    rig.start()
    wait_until(lambda: f"Kafka at {kafka.bootstrap_servers} does not answer yet" in rig.log())
    assert not (rig.folder / "session.json").exists(), "no MQTT session before there is somewhere to write"
    kafka.restart()
    until_subscribed(rig, wait_until)
    rig.publish_native("a", range(10))
    wait_until(lambda: rig.counted() == 10, seconds=60)
    assert rig.terminate() == 0

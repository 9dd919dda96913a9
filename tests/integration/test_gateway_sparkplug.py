"""A Sparkplug edge node on a real broker, a real Kafka and gateway processes that are killed."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.read.offset_range import read_range
from ingest.topics.offsets import end_offsets

FLOAT, UINT64 = 9, 8


class EdgeNode:
    """Publishes as Sparkplug says (births and data at QoS 0) and hears the commands that are meant for it."""

    def __init__(self, rig: Any, encode: Callable[..., bytes]) -> None:
        self._group, self._encode = f"Plant {rig.name}", encode
        self._seq = 0
        self.device = f"{self._group}/edge 1/press"
        self.commands: list[bytes] = []
        self._ready = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"edge-{rig.name}")
        self._client.username_pw_set(**rig.stage._login)
        self._client.on_message = lambda _client, _data, message: self.commands.append(message.payload)
        self._client.on_subscribe = lambda *_: self._ready.set()
        self._client.connect(rig.broker.part.host, rig.broker.part.port)
        self._client.subscribe(f"spBv1.0/{self._group}/NCMD/edge 1", 1)
        self._client.loop_start()
        assert self._ready.wait(10)

    def born(self, alias: int) -> None:
        self._seq = 0
        self._send("NBIRTH/edge 1", [{"name": "bdSeq", "datatype": UINT64, "long": 0}], qos=0)
        metric = {"name": "Temperature", "alias": alias, "datatype": FLOAT, "float": 20.5}
        self._send("DBIRTH/edge 1/press", [metric | {"properties": {"engUnit": "degC"}}], qos=0)

    def data(self, alias: int, value: float, *, qos: int = 0) -> None:
        self._send("DDATA/edge 1/press", [{"alias": alias, "float": value}], qos=qos)

    def _send(self, topic: str, metrics: list[dict[str, Any]], *, qos: int) -> None:
        payload = self._encode(metrics, time_ms=time.time_ns() // 1_000_000, seq=self._seq)
        self._seq = (self._seq + 1) % 256
        kind, rest = topic.split("/", 1)
        self._client.publish(f"spBv1.0/{self._group}/{kind}/{rest}", payload, qos).wait_for_publish(10)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Log:
    """What came into Kafka of one device since this was made."""

    def __init__(self, settings: KafkaSettings, device: str) -> None:
        self._settings, self._device = settings, device
        self._start = {topic: end_offsets(settings, topic) for topic in (READINGS, DEAD_LETTERS)}

    def _records(self, topic: str) -> list[bytes]:
        until = end_offsets(self._settings, topic)
        batches = read_range(self._settings, topic, self._start[topic], until)
        return [one.value for batch in batches for one in batch if one.value and one.key == self._device.encode()]

    def readings(self) -> list[ReadingRecord]:
        return [decode_record(value) for value in self._records(READINGS)]

    def values(self) -> list[tuple[str, float | None, str | None]]:
        return [(one.metric, one.value, one.unit) for record in self.readings() for one in record.readings]

    def reasons(self) -> list[str]:
        return [decode_dead_letter(value).reason for value in self._records(DEAD_LETTERS)]


@pytest.fixture
def edge(fault_rig: Callable[..., Any], sparkplug: Callable[..., bytes]) -> Iterator[tuple[Any, EdgeNode, Log]]:
    rig = fault_rig()
    node = EdgeNode(rig, sparkplug)
    yield rig, node, Log(rig.kafka_settings, node.device)
    node.close()


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_aliases_survive_a_kill_and_a_rebirth_is_asked_of_the_node(
    edge: tuple[Any, EdgeNode, Log], protocol: str, start_all: Callable[..., None], wait_until: Callable[..., Any]
) -> None:
    rig, node, log = edge
    gateway = rig.add(protocol, mqtt={"subscriptions": ["spBv1.0/#"]})
    start_all(rig)

    node.data(10, 1.0)
    wait_until(lambda: log.reasons() == ["alias_unknown"], what="the dead letter of data before any birth")
    wait_until(lambda: len(node.commands) == 1, what="the first rebirth request")
    assert b"Node Control/Rebirth" in node.commands[0]
    node.born(10)
    node.data(10, 21.5)
    born = [("Temperature", 20.5, "degC"), ("Temperature", 21.5, "degC")]
    wait_until(lambda: log.values() == born, what="birth and data")

    gateway.kill()
    node.data(10, 22.5, qos=1)
    start_all(rig)
    node.data(10, 23.5)
    known = [*born, ("Temperature", 22.5, "degC"), ("Temperature", 23.5, "degC")]
    wait_until(lambda: log.values() == known, what="data by the aliases of before the kill")
    wait_until(lambda: len(node.commands) == 2, what="one rebirth request of the new gateway")
    node.born(11)
    node.data(11, 24.5)
    wait_until(lambda: log.values()[4:] == [born[0], ("Temperature", 24.5, "degC")], what="data by the new aliases")
    assert [record.flags for record in log.readings()] == [None, None, *([["birth_unconfirmed"]] * 2), None, None]
    assert len({record.message_id for record in log.readings()}) == 6
    assert len(node.commands) == 2
    assert log.reasons() == ["alias_unknown"]
    assert "Traceback" not in gateway.log()


def test_a_birth_that_changes_aliases_while_nothing_is_acknowledged(
    edge: tuple[Any, EdgeNode, Log],
    kafka_server: Any,
    start_all: Callable[..., None],
    wait_until: Callable[..., Any],
) -> None:
    """Data, birth and data at QoS 1 wait for a Kafka that hangs; the gateway is killed then, and gets them again."""
    rig, node, log = edge
    gateway = rig.add("5", mqtt={"subscriptions": ["spBv1.0/#"]})
    start_all(rig)
    node.born(10)
    wait_until(lambda: log.values() == [("Temperature", 20.5, "degC")], what="the birth")
    rig.kafka.hold()
    try:
        node.data(10, 1.0, qos=1)
        node.born(11)
        node.data(11, 2.0, qos=1)
        wait_until(lambda: gateway.metric("tidegate_gateway_messages_received_total") >= 6, what="all at the gateway")
        gateway.kill()
    finally:
        rig.kafka.resume_process()
    start_all(rig)
    # The births came at QoS 0 and are lost with the gateway; what it may know of them is in the log, or is not.
    wait_until(lambda: len(node.commands) >= 1, what="the rebirth request")
    node.born(11)
    node.data(11, 3.0, qos=1)
    wait_until(lambda: ("Temperature", 3.0, "degC") in log.values(), what="data by the new aliases")
    assert ("Temperature", 1.0, "degC") in log.values()
    assert set(log.values()) <= {("Temperature", value, "degC") for value in (20.5, 1.0, 2.0, 3.0)}
    assert set(log.reasons()) <= {"alias_unknown"}

"""Messages that MQTT allows and people forget, from a real process against a scripted broker and Kafka (B69-B79)."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from deploy.chaos.run import KafkaReader
from deploy.chaos.testbed import GatewayProcess
from deploy.local.ports import choose_port
from deploy.settings import Settings
from ingest.topics.setup import ensure_topics

PUBLISH, PUBACK = 3, 4


@pytest.fixture
def gateway(scripted_broker: Any, kafka_server: Any, unique_name: str, tmp_path: Path) -> Any:
    """A gateway process whose broker is the test, and `gateway.reader` on what it wrote."""
    settings = Settings.model_validate(
        {
            "mqtt": {"port": scripted_broker.port, "protocol": scripted_broker.protocol, "client_id": unique_name},
            "gateway": {"gateway_id": unique_name},
            "kafka": {"bootstrap_servers": kafka_server.bootstrap_servers, "partitions": 2},
            "monitoring": {"gateway_port": choose_port(0)[0]},
        }
    )
    ensure_topics(settings.kafka)
    made: Any = GatewayProcess(tmp_path / "gateway", settings)
    made.reader = KafkaReader(settings.kafka, unique_name)
    made.start()
    yield made
    made.kill()


def body(seq: int, **more: Any) -> bytes:
    return json.dumps({"boot": 1, "seq": seq, "values": {"temp": 21.5}, **more}).encode()


def text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def publish_5(topic: bytes, mid: int, properties: bytes, payload: bytes) -> bytes:
    packet = text(topic) + struct.pack(">H", mid) + bytes([len(properties)]) + properties + payload
    assert len(packet) < 128
    return bytes([0x32, len(packet)]) + packet


def test_every_odd_message_has_its_outcome_and_its_puback(scripted_broker: Any, gateway: Any, wait_until: Any) -> None:
    link = scripted_broker.accept(seconds=30)
    link.handshake()
    topic = f"tidegate/v1/{gateway.name}/readings".encode()

    def puback() -> int:
        while (packet := link.packet(seconds=30)).kind == PUBLISH:
            assert b"tidegate/receipts/" in packet.body
        assert packet.kind == PUBACK
        return int(packet.mid)

    # Flags of the transport prove nothing: the first delivery may say DUP, the second may not, both may be replays.
    link.publish(topic, body(1), 1, dup=True)
    link.publish(topic, body(2), 2, retain=True)
    # Overlapping filters bring one message twice, with identifiers of their own.
    link.publish(topic, body(3), 3)
    link.publish(topic, body(3), 4)
    # A device that mixes its qualities of service.
    link.publish(topic, body(4), None)
    link.publish(topic, body(5), 5)
    assert [puback() for _ in range(5)] == [1, 2, 3, 4, 5]

    # Around a mebibyte, where clients of Kafka have timed out; and far beyond what any route takes.
    sizes = [999_886, 1_000_033, 1_048_575, 1_048_576, 8 * 1_048_576]
    for mid, size in enumerate(sizes, start=10):
        link.publish(topic, b"x" * size, mid)
    link.publish(topic, body(6), 20)
    assert [puback() for _ in range(6)] == [10, 11, 12, 13, 14, 20]

    if scripted_broker.protocol == "5":
        # Expiry, a content type that is wrong, the claim to be UTF-8 that is wrong, a response topic, an alias.
        link.send(publish_5(topic, 30, b"\x02" + struct.pack(">I", 5), body(7)))
        link.send(publish_5(topic, 31, b"\x03" + text(b"image/png"), body(8)))
        link.send(publish_5(topic, 32, b"\x01\x01", b'{"values":{"temp":"\xff"}}'))
        link.send(publish_5(topic, 33, b"\x08" + text(b"answer/here") + b"\x09" + text(b"7"), body(9)))
        link.send(publish_5(topic, 34, b"\x23" + struct.pack(">H", 1), body(10)))
        assert [puback() for _ in range(5)] == [30, 31, 32, 33, 34]
    last = 10 if scripted_broker.protocol == "5" else 6
    landed = wait_until(gateway.reader.look, what="Kafka")
    seqs = [reading.seq for _, reading in landed.readings]
    assert sorted(set(seqs)) == list(range(1, last + 1))
    assert len(seqs) == last + 1
    assert {r.message_id for _, r in landed.readings} == {f"bs:1:{seq}" for seq in range(1, last + 1)}
    assert [(r.seq, r.dup, r.retain, r.qos) for _, r in landed.readings if r.seq in {1, 2, 4}] == [
        (1, True, False, 1), (2, False, True, 1), (4, False, False, 0),
    ]  # fmt: skip
    letters = {letter.payload_bytes: letter for _, letter in landed.dead_letters}
    for size in sizes:
        assert letters[size].reason == "too_large"
        assert letters[size].payload_sha256
        assert len(letters[size].payload_base64) < 90_000, "cut to its first 64 KiB"
    assert len(letters) == len(sizes) + (scripted_broker.protocol == "5")
    assert gateway.metric("tidegate_gateway_connections_total") == 1
    assert "Traceback" not in gateway.log()


@pytest.mark.durable_broker
def test_a_last_will_and_a_burst_of_one_device_are_messages_like_any(
    fault_rig: Callable[..., Any], start_all: Callable[..., None], wait_until: Any
) -> None:
    rig = fault_rig()
    for protocol in ("5", "3.1.1"):
        rig.add(protocol)
    start_all(rig)
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{rig.name}-hot")
    client.username_pw_set("tester", "a secret: with spaces")
    client.max_inflight_messages_set(500)
    client.will_set(f"tidegate/v1/{rig.name}-will/readings", body(1), qos=1)
    client.connect(rig.broker.part.host, rig.broker.part.port)
    client.loop_start()
    infos = [client.publish(f"tidegate/v1/{rig.name}-hot/readings", body(seq), qos=1) for seq in range(3000)]
    rig.load.send(40)
    for info in infos:
        info.wait_for_publish(30)
    client.socket().close()
    client.loop_stop()
    for gateway in rig.gateways:
        wait_until(lambda one=gateway: rig.has_all(one), what="the others")
        wait_until(lambda one=gateway: len(rig.landed(one).readings) == 3041, what="all of the burst, and the will")
        pairs = sorted((r.offset, reading) for r, reading in rig.landed(gateway).readings if "-hot" in reading.device)
        assert [reading.seq for _, reading in pairs] == list(range(3000))

"""From decided messages to Kafka and back, where Kafka refuses what decoders want to be remembered."""

import json
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.decoders.state import DecoderState
from gateway.delivery.ack_chain import AckChain
from gateway.delivery.block import Block
from gateway.delivery.deliverer import Deliverer
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.metric_accumulator import MetricAccumulator
from gateway.mqtt.session_events import Received
from gateway.routes import compile_routes
from ingest.contract.reading import decode_record
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, OUTCOMES, READINGS
from ingest.memory import MemoryLog
from monitoring.metrics.gateway import GatewayMetrics

T = 1_750_000_000_000


@pytest.fixture
def world(registry: CollectorRegistry) -> Any:
    return World(registry)


class World:
    """A pump over a log in memory that takes no large records."""

    def __init__(self, registry: CollectorRegistry) -> None:
        routes = (RouteSettings(filter="homie/#", decoder="homie"), RouteSettings(filter="#", decoder="sparkplug"))
        self.state = DecoderState()
        self.gate = MessageProcessor(compile_routes(routes), GatewaySettings(), state=self.state)
        self.log = MemoryLog()
        self.writer = self.log.writer()
        self.acknowledged: list[int] = []
        metrics = GatewayMetrics(registry, reasons=Reason, ignored_reasons=IgnoredReason)
        self.pump = Deliverer(AckChain("gw"), self.gate, MetricAccumulator(metrics), self._acknowledge, "gw")
        self.pump.begin(1)

    def _acknowledge(self, epoch: int, mids: list[bytes]) -> int:
        self.acknowledged += [int.from_bytes(mid, "big") for mid in mids]
        return len(mids)

    def send(self, mid: int, topic: str, payload: bytes) -> None:
        message = Message(mid, 1, (T + 1000) * 1000, topic.encode(), payload)
        block = Block(1, mid, message.received_us, time.monotonic())
        block.add(Received(message.topic, payload, mid, 1), self.gate.decide(message))
        self.pump.add(block)
        for _ in range(10):
            self.pump.run_once(self.writer, 0.0)


def test_what_kafka_will_not_remember_blocks_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.log.max_record_bytes = 1000
    properties = {f"temperature-{n}": {"unit": "°C", "datatype": "float"} for n in range(100)}
    description = json.dumps({"homie": "5.0", "nodes": {"n": {"properties": properties}}}).encode()
    world.send(1, "homie/5/dev/$description", description)
    world.send(2, "homie/5/dev/n/temperature-7", b"21.5")
    assert world.acknowledged == [1, 2]
    assert world.pump.give_up_because is None
    assert world.pump.abort_because is None
    assert world.log.records(GATEWAY_STATE) == []
    assert "homie/homie/5/dev" in caplog.text
    [record] = world.log.records(READINGS)
    assert record.value is not None
    assert decode_record(record.value).readings[0].unit == "°C", "this gateway remembers it"


def test_a_message_of_which_kafka_takes_no_record_has_no_outcome_and_no_puback(world: World) -> None:
    world.log.fail_next("record", count=2)
    world.send(1, "homie/5/dev/$description", b"no json")
    assert world.pump.give_up_because is not None
    assert world.log.records(DEAD_LETTERS) == world.log.records(OUTCOMES) == []
    assert world.acknowledged == []


def test_behind_what_kafka_did_not_take_nothing_more_is_produced(world: World) -> None:
    world.log.fail_next("retriable")
    world.send(1, "homie/5/dev/$description", b"no json")
    assert world.pump.abort_because is not None
    world.send(2, "homie/5/dev/$description", b"no json either")
    assert world.log.topics() == []
    assert world.acknowledged == []


def test_a_birth_whose_readings_are_too_large_for_kafka_is_remembered(world: World, sparkplug: Any) -> None:
    world.log.max_record_bytes = 2500
    birth = [{"name": f"m{n}", "alias": n, "datatype": 10, "double": n / 7} for n in range(60)]
    world.send(1, "spBv1.0/G/NBIRTH/n", sparkplug(birth, time_ms=T, seq=0))
    assert len(world.log.records(DEAD_LETTERS)) == 1
    world.gate.roll_back()
    world.send(2, "spBv1.0/G/NDATA/n", sparkplug([{"alias": 3, "double": 2.5}], time_ms=T + 1, seq=1))
    assert world.acknowledged == [1, 2]
    [record] = world.log.records(READINGS)
    assert record.value is not None
    assert decode_record(record.value).readings[0].metric == "m3"

"""What the run loop says about itself, and how it stops."""

import json
import threading
import time
from typing import Any

import pytest

CONNECT, PUBACK, SUBSCRIBE, PINGREQ, DISCONNECT = 1, 4, 8, 12, 14
TOPIC = b"tidegate/v1/dev-1/readings"


def native(seq: int, value: float = 21.5) -> bytes:
    return json.dumps({"boot": 1, "seq": seq, "values": {"temp": value}}).encode()


def test_the_first_message_after_a_long_silence_is_no_wait_for_kafka(scripted_broker: Any, gateway_rig: Any) -> None:
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.until(lambda: gateway_rig.service.healthy()[0])
    gateway_rig.service._deliverer.progress_at = time.monotonic() - 1000
    gateway_rig.log.hold()
    link.publish(TOPIC, b"", 1)
    gateway_rig.until(lambda: gateway_rig.service._chain.in_flight == 1)
    assert gateway_rig.service.healthy()[0], "it has no record of its own, only an outcome"
    gateway_rig.log.release()
    assert link.packet(PUBACK).mid == 1


def test_kafka_comes_before_the_broker_and_the_wait_is_told(scripted_broker: Any, gateway_rig: Any) -> None:
    gateway_rig.refuse_open = 2
    gateway_rig.pump()
    assert gateway_rig.service.status()["state"] == "waiting"
    assert gateway_rig.service.healthy() == (False, "waiting for Kafka at nowhere")
    assert gateway_rig.opened == 0
    scripted_broker.accept().handshake()
    gateway_rig.until(lambda: gateway_rig.service.healthy()[0])
    assert gateway_rig.service.status()["state"] == "running"


def test_a_kafka_that_does_not_answer_is_told_while_keepalive_goes_on(
    scripted_broker: Any, gateway_rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.log.hold()
    link.publish(TOPIC, native(1), 1)
    gateway_rig.until(lambda: "waiting for Kafka to acknowledge 1 messages" in gateway_rig.service.status()["detail"])
    gateway_rig.log.release()
    assert link.packet(PUBACK).mid == 1
    gateway_rig.until(lambda: gateway_rig.service.healthy()[0])


def test_a_loop_that_does_not_turn_is_stalled(gateway_rig: Any) -> None:
    assert gateway_rig.service.alive(), "it waits for its broker, and a restart would not help"
    gateway_rig.service._health._beat_at -= 1000
    assert gateway_rig.service.status()["state"] == "stalled"
    assert not gateway_rig.service.healthy()[0]
    assert not gateway_rig.service.alive()


def test_a_stop_acknowledges_what_kafka_has_and_keeps_the_session(
    scripted_broker: Any, gateway_rig: Any, wait_until: Any
) -> None:
    scripted_broker.pump = lambda: None
    thread = threading.Thread(target=gateway_rig.service.run, args=(gateway_rig.stop,))
    thread.start()
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.log.hold()
    for mid in (1, 2, 3):
        link.publish(TOPIC, native(mid), mid)
    wait_until(lambda: gateway_rig.service._chain.in_flight == 3)
    gateway_rig.stop.set()
    wait_until(lambda: gateway_rig.service.status()["state"] == "draining")
    link.publish(TOPIC, native(4), 4)
    gateway_rig.log.release()
    assert [link.packet(PUBACK).mid for _ in range(3)] == [1, 2, 3]
    assert link.packet().kind == DISCONNECT, "no PUBACK for what came after the stop"
    assert link.quiet() == []
    thread.join(60)
    assert not thread.is_alive()
    assert gateway_rig.service.status()["state"] == "stopped"


def test_a_stop_while_kafka_hangs_leaves_the_rest_to_the_broker(
    scripted_broker: Any, gateway_rig: Any, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.service.DRAIN_SECONDS", 0.3)
    scripted_broker.pump = lambda: None
    thread = threading.Thread(target=gateway_rig.service.run, args=(gateway_rig.stop,))
    thread.start()
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.log.hold()
    link.publish(TOPIC, native(1), 1)
    wait_until(lambda: gateway_rig.service._chain.in_flight == 1)
    gateway_rig.stop.set()
    assert link.packet().kind == DISCONNECT
    thread.join(60)
    assert not thread.is_alive()

"""The run loop when a connection goes while much of it is in flight: the next one must not suffer from that."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

CONNECT, PUBACK = 1, 4
PINGRESP = b"\xd0\x00"
TOPIC = b"tidegate/v1/dev-1/readings"
MESSAGES = 60


def large(seq: int) -> bytes:
    return json.dumps({"boot": 1, "seq": seq, "values": {f"m{n}": n / 7 for n in range(60)}}).encode()


def fill_window(broker: Any, rig: Any) -> Any:
    """A connection whose messages use up the bytes of the window while Kafka reports nothing."""
    link = broker.accept()
    link.handshake()
    rig.until(lambda: rig.service._session.connected)
    rig.log.hold()
    for mid in range(1, MESSAGES + 1):
        link.publish(TOPIC, large(mid), mid)
    rig.until(rig.service._has_used_window)
    return link


def assert_redelivery_is_acknowledged(broker: Any, rig: Any) -> None:
    link = broker.accept()
    link.handshake(session_present=True)
    rig.until(lambda: rig.service._session.live, "CONNACK is read")
    for mid in range(1, MESSAGES + 1):
        link.publish(TOPIC, large(mid), mid, dup=True)
    assert [link.packet(PUBACK).mid for _ in range(MESSAGES)] == list(range(1, MESSAGES + 1))
    assert rig.service._chain.in_flight_bytes == 0


def test_a_full_window_that_kafka_fails_does_not_keep_the_next_connection_from_being_read(
    scripted_broker: Any, new_gateway: Callable[..., Any]
) -> None:
    rig = new_gateway(window_bytes=100_000)
    link = fill_window(scripted_broker, rig)
    rig.service._deliverer.abort_because = "scripted"
    link.wait_closed()
    rig.log.release()
    assert_redelivery_is_acknowledged(scripted_broker, rig)


def test_a_full_window_whose_broker_goes_does_not_keep_the_next_connection_from_being_read(
    scripted_broker: Any, new_gateway: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = new_gateway(window_bytes=100_000)
    fill_window(scripted_broker, rig).close()
    ahead = [0.0]
    monkeypatch.setattr("paho.mqtt.client.time_func", lambda: time.monotonic() + ahead[0])

    def is_lost() -> bool:
        ahead[0] += 21.0
        return not rig.service._session.live

    rig.until(is_lost, "a PINGREQ finds the connection gone")
    ahead[0] = 0.0
    rig.log.release()
    assert_redelivery_is_acknowledged(scripted_broker, rig)


def test_a_loop_without_a_broker_waits_in_each_pass(
    scripted_broker: Any, new_gateway: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = new_gateway(window_messages=10)
    link = scripted_broker.accept()
    link.handshake()
    rig.until(lambda: rig.service._session.connected)
    rig.log.hold()
    for mid in range(1, 9):
        link.publish(TOPIC, large(mid), mid)
    rig.until(lambda: rig.service._chain.in_flight == 8)
    rig.service._session._reconnect._longest_seconds = 1e6
    rig.service._session._reconnect._attempts = 16
    link.close()
    rig.until(lambda: rig.service._session.closed)
    rig.log.release()
    rig.until(lambda: not rig.service._log.in_flight)
    waited: list[float] = []
    monkeypatch.setattr("gateway.service.IDLE_SECONDS", 0.2)
    monkeypatch.setattr("gateway.mqtt.session.time.sleep", waited.append)
    for _ in range(20):
        rig.pump()
    assert waited == [0.2] * 20


def test_what_comes_behind_a_failure_in_the_same_chunk_waits_for_the_next_connection(
    scripted_broker: Any, gateway_rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.until(lambda: gateway_rig.service._session.connected)
    calls: list[int] = []

    def broken(messages: list[Any]) -> None:
        calls.append(len(messages))
        raise RuntimeError("scripted")

    # A packet of another kind between them, all in one piece: they are handed over apart.
    pieces: list[bytes] = []
    with monkeypatch.context() as patch:
        patch.setattr(link, "send", pieces.append)
        link.publish(TOPIC, large(1), 1)
        pieces.append(PINGRESP)
        link.publish(TOPIC, large(2), 2)
    with monkeypatch.context() as patch:
        patch.setattr(gateway_rig.service, "received", broken)
        link.send(b"".join(pieces))
        link.wait_closed()
    assert calls == [1], "the second would be in Kafka before the first"
    assert gateway_rig.metric("tidegate_gateway_errors_total", stage="receive") == 1
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    for mid in (1, 2):
        link.publish(TOPIC, large(mid), mid, dup=True)
    assert [link.packet(PUBACK).mid for _ in (1, 2)] == [1, 2]
    assert gateway_rig.seqs() == [1, 2]


def test_a_message_before_connack_belongs_to_no_epoch_and_costs_the_connection(
    scripted_broker: Any, gateway_rig: Any
) -> None:
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.publish(TOPIC, large(1), 1)
    link.connack(session_present=True)
    link.wait_closed()
    assert "before CONNACK" in gateway_rig.service._session.detail
    assert gateway_rig.metric("tidegate_gateway_messages_received_total", qos="1") == 0
    link = scripted_broker.accept()
    link.handshake()
    link.publish(TOPIC, large(1), 1, dup=True)
    assert link.packet(PUBACK).mid == 1
    assert gateway_rig.seqs() == [1]

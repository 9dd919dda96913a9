"""The run loop between a scripted broker and a log in memory: when is what acknowledged, and what is held."""

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.mqtt.broker_window import BrokerWindow
from gateway.mqtt.session import MqttSession
from gateway.service import LEAST_GATHER_SECONDS
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.reading import decode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.memory import MemoryWriter

CONNECT, PUBACK, SUBSCRIBE, PINGREQ, DISCONNECT = 1, 4, 8, 12, 14
TOPIC = b"tidegate/v1/dev-1/readings"


def native(seq: int, value: float = 21.5) -> bytes:
    return json.dumps({"boot": 1, "seq": seq, "values": {"temp": value}}).encode()


def test_no_puback_before_kafka_has_the_records_and_the_outcome(scripted_broker: Any, gateway_rig: Any) -> None:
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.log.hold()
    link.publish(TOPIC, native(1), 1)
    assert link.quiet() == []
    gateway_rig.log.release(1)
    gateway_rig.log.hold()
    gateway_rig.until(lambda: gateway_rig.service._chain._in_flight is not None, "the outcome is on its way")
    assert link.quiet() == [], "not before the outcome is in Kafka"
    gateway_rig.log.release()
    assert link.packet(PUBACK).mid == 1
    [outcome] = gateway_rig.outcomes()
    assert (outcome.first, outcome.upto, outcome.counts[0].accepted, outcome.counts[0].device) == (1, 1, 1, "dev-1")


def test_pubacks_follow_receive_order_though_reports_do_not(scripted_broker: Any, gateway_rig: Any) -> None:
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.log.hold()
    devices = [f"dev-{n}" for n in range(8)]
    for mid, device in enumerate(devices, start=1):
        link.publish(f"tidegate/v1/{device}/readings".encode(), native(mid), mid)
    gateway_rig.until(lambda: gateway_rig.service._chain.in_flight == 8)
    gateway_rig.log.release(partition=1)
    link.quiet()
    gateway_rig.log.release()
    assert [link.packet(PUBACK).mid for _ in range(8)] == list(range(1, 9))


def test_every_kind_of_message_ends_in_a_puback(scripted_broker: Any, gateway_rig: Any) -> None:
    link = scripted_broker.accept()
    link.handshake()
    messages = [
        (TOPIC, native(1)),
        (TOPIC, b"no json"),
        (b"nowhere", b"x"),
        (b"bad/\xff", b"x"),
        (TOPIC, b""),
        (b"tidegate/receipts/dev-1", b"{}"),
        (TOPIC, b'{"boot":1,"seq":5,"values":{"a":1,"b":null}}'),
        (b"site/a/b", b"21.5"),
    ]
    for mid, (topic, payload) in enumerate(messages, start=1):
        link.publish(topic, payload, mid)
    assert [link.packet(PUBACK).mid for _ in messages] == list(range(1, len(messages) + 1))
    assert sorted(gateway_rig.reasons()) == ["bad_encoding", "bad_json", "no_route", "wrong_type"]
    counts = [count for outcome in gateway_rig.outcomes() for count in outcome.counts]
    assert sum(count.received for count in counts) == len(messages)
    for count in counts:
        assert count.received == count.accepted + sum(count.dead_lettered.values()) + sum(count.ignored.values())
    assert sum(count.gap for count in counts) == 3, "2, 3 and 4 never came"
    gateway_rig.until(lambda: gateway_rig.metric("tidegate_gateway_inflight_messages") == 0)
    assert gateway_rig.metric("tidegate_gateway_messages_received_total", qos="1") == 8
    assert gateway_rig.metric("tidegate_gateway_messages_accepted_total") == 3
    assert gateway_rig.metric("tidegate_gateway_messages_partial_total") == 1
    assert gateway_rig.metric("tidegate_gateway_messages_rejected_total", reason="no_route") == 1
    assert gateway_rig.metric("tidegate_gateway_parts_rejected_total", reason="wrong_type") == 1
    assert gateway_rig.metric("tidegate_gateway_messages_ignored_total", reason="own_topic") == 1
    assert gateway_rig.metric("tidegate_gateway_messages_acknowledged_total") == 8


def test_what_was_not_acknowledged_before_the_end_comes_again(
    scripted_broker: Any, gateway_rig: Any, new_gateway: Callable[..., Any]
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.log.hold(stored=True)
    link.publish(TOPIC, native(1), 1)
    gateway_rig.until(lambda: gateway_rig.log.records(READINGS))
    link.close()
    gateway_rig.service._session.drop("as by kill -9: nothing is said, nothing is flushed")
    again = new_gateway(CollectorRegistry())
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    link.publish(TOPIC, native(1), 1, dup=True)
    link.suback(link.packet(SUBSCRIBE).mid)
    assert link.packet(PUBACK).mid == 1
    [first], [second] = gateway_rig.log.records(READINGS), again.log.records(READINGS)
    assert first.value is not None
    assert second.value is not None
    one, other = decode_record(first.value), decode_record(second.value)
    assert one.message_id == other.message_id == "bs:1:1"
    assert (one.epoch, one.number) != (other.epoch, other.number)


def test_qos_0_is_dropped_and_counted_beyond_twice_the_window(
    scripted_broker: Any, new_gateway: Callable[..., Any]
) -> None:
    rig = new_gateway(window_messages=5)
    link = scripted_broker.accept()
    link.handshake()
    rig.log.hold()
    for seq in range(20):
        link.publish(TOPIC, native(seq), None)
    link.publish(TOPIC, native(100), 1)
    rig.until(lambda: rig.metric("tidegate_gateway_messages_received_total", qos="1") == 1)
    assert rig.metric("tidegate_gateway_messages_received_total", qos="0") == 20
    assert rig.metric("tidegate_gateway_messages_dropped_total") == 10
    rig.log.release()
    assert link.packet(PUBACK).mid == 1
    assert rig.seqs() == [*range(10), 100]


def test_qos_0_is_dropped_and_counted_beyond_the_bytes_of_the_window(
    scripted_broker: Any, new_gateway: Callable[..., Any]
) -> None:
    rig = new_gateway(window_bytes=10_000)
    link = scripted_broker.accept()
    link.handshake()
    rig.log.hold()
    payload = json.dumps({"values": {"text": "x" * 3000}}).encode()
    for _ in range(10):
        link.publish(TOPIC, payload, None)
    link.publish(TOPIC, payload, 1)
    rig.until(lambda: rig.metric("tidegate_gateway_messages_received_total", qos="1") == 1)
    assert rig.metric("tidegate_gateway_messages_dropped_total") == 8
    rig.log.release()
    assert link.packet(PUBACK).mid == 1
    assert rig.service._chain.in_flight_bytes == 0


def test_nothing_more_is_read_beyond_the_bytes_of_the_window_and_the_keepalive_goes_on(
    scripted_broker: Any, new_gateway: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = new_gateway(window_bytes=100_000)
    link = scripted_broker.accept()
    link.handshake()
    rig.until(lambda: rig.service._session.connected)
    rig.log.hold()
    values = {f"m{n}": n / 7 for n in range(60)}
    for mid in range(1, 401):
        link.publish(TOPIC, json.dumps({"boot": 1, "seq": mid, "values": values}).encode(), mid)
    rig.until(rig.service._has_used_window)
    held = rig.service._chain.in_flight
    now, ahead, pings = time.monotonic(), 0.0, 0
    monkeypatch.setattr("paho.mqtt.client.time_func", lambda: now + ahead)
    for _ in range(8):
        ahead += 21.0
        for _ in range(3):
            rig.pump()
        link._fill()
        while (packet := link._take()) is not None:
            pings += packet.kind == PINGREQ
    assert pings >= 7, "each keepalive time has its PINGREQ"
    assert rig.service._session.connected, "an answer that is not read is no reason to leave"
    assert rig.service._chain.in_flight == held < 400
    ahead = 0.0
    rig.log.release()
    assert [link.packet(PUBACK).mid for _ in range(400)] == list(range(1, 401))
    assert rig.seqs() == list(range(1, 401))


def test_a_packet_with_an_odd_property_has_one_outcome_however_often_it_comes(
    scripted_broker: Any, gateway_rig: Any
) -> None:
    for dup in (False, True):
        link = scripted_broker.accept()
        link.handshake(session_present=dup)
        gateway_rig.log.hold()
        link.publish(TOPIC, native(1), 1, dup=dup, user_properties=(("note", "\ufeff"),))
        if not dup:
            gateway_rig.until(lambda: gateway_rig.service._chain.in_flight == 1)
            link.close()
            gateway_rig.until(lambda: not gateway_rig.service._session.connected)
        gateway_rig.log.release()
    assert link.packet(PUBACK).mid == 1
    assert [(o.first, o.upto) for o in gateway_rig.outcomes()][-1] == (2, 2)
    assert gateway_rig.metric("tidegate_gateway_errors_total", stage="receive") == 0


def test_outcomes_of_long_ids_are_split_by_what_their_topic_takes(scripted_broker: Any, gateway_rig: Any) -> None:
    gateway_rig.log.max_record_bytes = 4000
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.log.hold()
    for mid in range(1, 21):
        link.publish(b"tidegate/v1/" + b"d" * 240 + b"%d/readings" % mid, native(mid), mid)
    gateway_rig.until(lambda: gateway_rig.service._chain.in_flight == 20)
    gateway_rig.log.release()
    assert [link.packet(PUBACK).mid for _ in range(20)] == list(range(1, 21))
    assert len(gateway_rig.outcomes()) > 5
    assert gateway_rig.opened == 1


def test_a_decoder_that_fails_is_a_dead_letter_and_a_counted_error(
    scripted_broker: Any, gateway_rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = b"[" + native(1) + b"]"

    def broken(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setitem(gateway_rig.service._processor._decoders, "native", broken)
    link = scripted_broker.accept()
    link.handshake()
    link.publish(TOPIC, payload, 1)
    assert link.packet(PUBACK).mid == 1
    assert gateway_rig.reasons() == ["internal_error"]
    [record] = gateway_rig.log.records(DEAD_LETTERS)
    assert record.value is not None
    assert base64.b64decode(decode_dead_letter(record.value).payload_base64) == payload
    assert gateway_rig.metric("tidegate_gateway_errors_total", stage="decode") == 1


@pytest.mark.parametrize("limit", [1, 20, 100])
def test_a_broker_that_stops_below_the_window_is_not_waited_for(
    limit: int, scripted_broker: Any, gateway_rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = scripted_broker.accept()
    link.handshake()

    sent = 0

    def publish() -> None:
        nonlocal sent
        sent += 1
        link.publish(TOPIC, native(sent), sent)

    def go_on(rounds: int) -> None:
        for _ in range(rounds * limit):
            link.packet(PUBACK)
            publish()

    for _ in range(limit):
        publish()
    go_on(8)
    slept: list[float] = []
    monkeypatch.setattr("gateway.service.time.sleep", slept.append)
    go_on(10)
    assert sum(seconds for seconds in slept if seconds >= LEAST_GATHER_SECONDS) < 0.1, "gathering again and again"


@pytest.mark.parametrize(
    ("rate", "seconds"), [(0.0, 0.01), (1000.0, 0.0125), (2000.0, 0.025), (4000.0, 0.0125), (1e6, 0.01)]
)
def test_messages_gather_longest_at_a_middle_rate(
    rate: float, seconds: float, scripted_broker: Any, gateway_rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    waited: list[float] = []
    poll = MemoryWriter.poll

    def polled(self: MemoryWriter, timeout_seconds: float) -> int:
        waited.append(timeout_seconds)
        return poll(self, timeout_seconds)

    monkeypatch.setattr(BrokerWindow, "rate", property(lambda _: rate, lambda *_: None), raising=False)
    monkeypatch.setattr(BrokerWindow, "_learn", lambda *_: None)  # a broker without a limit
    monkeypatch.setattr(MemoryWriter, "poll", polled)
    gateway_rig.log.hold()
    link.publish(TOPIC, native(1), 1)
    gateway_rig.until(lambda: len(waited) > 20, "the loop to wait for Kafka")
    gateway_rig.log.release()
    link.packet(PUBACK)
    assert max(waited) == pytest.approx(seconds)


def test_reports_of_kafka_end_in_a_puback_while_messages_gather(
    scripted_broker: Any, gateway_rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    steps: list[str] = []
    loop, acknowledge = MqttSession.loop, MqttSession.acknowledge

    def looped(self: MqttSession, timeout_seconds: float, *, read: bool = True) -> None:
        steps.append("read")
        loop(self, timeout_seconds, read=read)
        steps.extend(["message"] if self.read_bytes else [])

    def acknowledged(self: MqttSession, epoch: int, mids: list[bytes]) -> int:
        steps.append("PUBACK")
        return acknowledge(self, epoch, mids)

    monkeypatch.setattr("gateway.service.LEAST_GATHER_SECONDS", 1.0)
    monkeypatch.setattr(MqttSession, "loop", looped)
    monkeypatch.setattr(MqttSession, "acknowledge", acknowledged)
    link.publish(TOPIC, native(1), 1)
    link.packet(PUBACK)
    assert steps[steps.index("message") + 1] == "PUBACK", "no read of the broker in between"


def test_a_limit_of_the_broker_is_shown_while_it_holds_the_gateway_up(
    scripted_broker: Any, gateway_rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.mqtt.broker_window.LIMIT_SECONDS", 0.0)
    monkeypatch.setattr("gateway.mqtt.broker_window.LIMIT_SHARE", 0.0)
    monkeypatch.setattr("gateway.mqtt.broker_window.LIMIT_REFILLS", 0)
    monkeypatch.setattr("gateway.service.TICK_SECONDS", 0.0)
    link = scripted_broker.accept()
    link.handshake()
    for mid in range(1, 21):
        link.publish(TOPIC, native(mid), mid)
    for mid in range(21, 221):
        link.packet(PUBACK)
        link.publish(TOPIC, native(mid), mid)
    gateway_rig.log.hold()
    gateway_rig.until(lambda: gateway_rig.metric("tidegate_gateway_broker_inflight_limit") == 20)
    assert "at most 20 unacknowledged messages" in gateway_rig.service.status()["detail"]
    gateway_rig.log.release()

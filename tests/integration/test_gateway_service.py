"""The run loop between a scripted broker and a log in memory: when is what acknowledged, whatever fails."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.kafka_log import open_kafka
from gateway.service import GatewayService
from gateway.settings import GatewaySettings, MqttSettings, RouteSettings
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.errors import FatalError, RetryableError
from ingest.contract.outcome import OutcomeRecord, decode_outcome
from ingest.contract.reading import decode_record
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.log import LogWriter
from ingest.memory import MemoryLog
from ingest.settings import KafkaSettings
from monitoring.metrics import GatewayMetrics

CONNECT, PUBACK, SUBSCRIBE, PINGREQ, DISCONNECT = 1, 4, 8, 12, 14
TOPIC = b"tidegate/v1/dev-1/readings"


def native(seq: int, value: float = 21.5) -> bytes:
    return json.dumps({"boot": 1, "seq": seq, "values": {"temp": value}}).encode()


class Rig:
    """A gateway whose loop turns only while the test waits for something."""

    def __init__(self, broker: Any, registry: CollectorRegistry, **limits: Any) -> None:
        self.log = MemoryLog()
        self.registry = registry
        self.stop = threading.Event()
        self.opened = 0
        self.refuse_open = 0
        mqtt = MqttSettings.model_validate(
            {"port": broker.port, "protocol": broker.protocol, "reconnect_max_seconds": 0.05, "client_id": "gate"}
        )
        self.service = GatewayService(
            mqtt,
            GatewaySettings(**limits),
            (RouteSettings(filter="site/#"),),
            self._open,
            GatewayMetrics(registry, reasons=Reason, ignored_reasons=IgnoredReason),
        )
        broker.pump = self.pump

    def _open(self, stop: threading.Event, tell: Callable[[str], None]) -> LogWriter:
        if self.refuse_open:
            self.refuse_open -= 1
            raise RetryableError("waiting for Kafka at nowhere", retry_after_seconds=0.01)
        self.opened += 1
        return self.log.writer()

    def pump(self) -> None:
        self.service._pass(self.stop)

    def until(self, condition: Callable[[], Any], what: str = "the condition") -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come true"
            self.pump()

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    def outcomes(self) -> list[OutcomeRecord]:
        return [decode_outcome(record.value) for record in self.log.records(OUTCOMES) if record.value]

    def seqs(self) -> list[int | None]:
        return [decode_record(record.value).seq for record in self.log.records(READINGS) if record.value]

    def reasons(self) -> list[str]:
        return [decode_dead_letter(record.value).reason for record in self.log.records(DEAD_LETTERS) if record.value]


@pytest.fixture(autouse=True)
def _never_long_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.service.IDLE_SECONDS", 0.01)


@pytest.fixture
def rig(scripted_broker: Any, registry: CollectorRegistry) -> Iterator[Rig]:
    made = Rig(scripted_broker, registry)
    yield made
    made.service._session.drop("end of test")


def test_no_puback_before_kafka_has_the_records_and_the_outcome(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.log.hold()
    link.publish(TOPIC, native(1), 1)
    assert link.quiet() == []
    rig.log.release(1)
    rig.log.hold()
    rig.until(lambda: rig.service._chain._in_flight is not None, "the outcome is on its way")
    assert link.quiet() == [], "not before the outcome is in Kafka"
    rig.log.release()
    assert link.packet(PUBACK).mid == 1
    [outcome] = rig.outcomes()
    assert (outcome.first, outcome.upto, outcome.counts[0].accepted, outcome.counts[0].device) == (1, 1, 1, "dev-1")


def test_pubacks_follow_receive_order_though_reports_do_not(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.log.hold()
    devices = [f"dev-{n}" for n in range(8)]
    for mid, device in enumerate(devices, start=1):
        link.publish(f"tidegate/v1/{device}/readings".encode(), native(mid), mid)
    rig.until(lambda: rig.service._chain.in_flight == 8)
    rig.log.release(partition=1)
    link.quiet()
    rig.log.release()
    assert [link.packet(PUBACK).mid for _ in range(8)] == list(range(1, 9))


def test_every_kind_of_message_ends_in_a_puback(scripted_broker: Any, rig: Rig) -> None:
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
    assert sorted(rig.reasons()) == ["bad_encoding", "bad_json", "no_route", "wrong_type"]
    counts = [count for outcome in rig.outcomes() for count in outcome.counts]
    assert sum(count.received for count in counts) == len(messages)
    for count in counts:
        assert count.received == count.accepted + sum(count.dead_lettered.values()) + sum(count.ignored.values())
    assert sum(count.gap for count in counts) == 3, "2, 3 and 4 never came"
    rig.until(lambda: rig.metric("tidegate_gateway_inflight_messages") == 0)
    assert rig.metric("tidegate_gateway_messages_received_total", qos="1") == 8
    assert rig.metric("tidegate_gateway_messages_accepted_total") == 3
    assert rig.metric("tidegate_gateway_messages_partial_total") == 1
    assert rig.metric("tidegate_gateway_messages_rejected_total", reason="no_route") == 1
    assert rig.metric("tidegate_gateway_parts_rejected_total", reason="wrong_type") == 1
    assert rig.metric("tidegate_gateway_messages_ignored_total", reason="own_topic") == 1
    assert rig.metric("tidegate_gateway_messages_acknowledged_total") == 8


def test_no_new_connection_before_kafka_has_what_the_last_one_brought(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.log.hold()
    for mid in (1, 2):
        link.publish(TOPIC, native(mid), mid)
    rig.until(lambda: rig.service._chain.in_flight == 2)
    link.close()
    rig.until(lambda: not rig.service._session.connected)
    for _ in range(20):
        rig.service._session._reconnect._next_attempt_at = 0.0
        rig.pump()
    assert rig.service._session.closed, "each connection would add another window to Kafka's queue"
    wanted = "waiting for Kafka to take 2 records before connecting again"
    assert rig.service.healthy() == (False, wanted)
    rig.log.release()
    link = scripted_broker.accept()
    link.handshake(session_present=False)
    link.publish(TOPIC, native(3), 1)
    assert link.packet(PUBACK).mid == 1
    assert rig.seqs() == [1, 2, 3]
    assert rig.metric("tidegate_gateway_sessions_lost_total") == 1


def test_what_was_not_acknowledged_before_the_end_comes_again(
    scripted_broker: Any, rig: Rig, registry: CollectorRegistry
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.log.hold(stored=True)
    link.publish(TOPIC, native(1), 1)
    rig.until(lambda: rig.log.records(READINGS))
    link.close()
    rig.service._session.drop("as by kill -9: nothing is said, nothing is flushed")
    again = Rig(scripted_broker, CollectorRegistry())
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    link.publish(TOPIC, native(1), 1, dup=True)
    link.suback(link.packet(SUBSCRIBE).mid)
    assert link.packet(PUBACK).mid == 1
    [first], [second] = rig.log.records(READINGS), again.log.records(READINGS)
    assert first.value is not None
    assert second.value is not None
    one, other = decode_record(first.value), decode_record(second.value)
    assert one.message_id == other.message_id == "bs:1:1"
    assert (one.epoch, one.number) != (other.epoch, other.number)
    again.service._session.drop("end of test")


@pytest.mark.parametrize("kind", ["fatal", "retriable"])
def test_a_failed_producer_drops_the_connection_and_starts_anew(scripted_broker: Any, rig: Rig, kind: Any) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.log.fail_next(kind, "scripted")
    rig.refuse_open = 3
    for mid in (1, 2):
        link.publish(TOPIC, native(mid), mid)
    link.wait_closed()
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    for mid in (1, 2):
        link.publish(TOPIC, native(mid), mid, dup=True)
    assert [link.packet(PUBACK).mid for _ in range(2)] == [1, 2]
    assert rig.opened == 2
    assert rig.seqs()[-2:] == [1, 2], "in order, from the first that was not acknowledged"
    assert rig.metric("tidegate_gateway_errors_total", stage="produce") == 1


def test_a_record_too_large_for_kafka_is_one_dead_letter_and_its_neighbours_live(
    scripted_broker: Any, rig: Rig
) -> None:
    rig.log.max_record_bytes = 3000
    link = scripted_broker.accept()
    link.handshake()
    large = json.dumps({"boot": 1, "seq": 2, "values": {f"metric-{n}": n / 7 for n in range(90)}}).encode()
    for mid, payload in enumerate((native(1), large, native(3)), start=1):
        link.publish(TOPIC, payload, mid)
    assert [link.packet(PUBACK).mid for _ in range(3)] == [1, 2, 3]
    assert rig.seqs() == [1, 3]
    [record] = rig.log.records(DEAD_LETTERS)
    assert record.value is not None
    letter = decode_dead_letter(record.value)
    assert (letter.reason, letter.device, letter.payload_bytes) == ("kafka_too_large", "dev-1", len(large))
    counts = [count for outcome in rig.outcomes() for count in outcome.counts]
    assert sum(count.dead_lettered.get("kafka_too_large", 0) for count in counts) == 1
    assert sum(count.gap for count in counts) == 0


def test_a_dead_letter_that_kafka_will_not_take_at_any_size_ends_the_process(scripted_broker: Any, rig: Rig) -> None:
    rig.log.max_record_bytes = 50
    link = scripted_broker.accept()
    link.handshake()
    link.publish(TOPIC, b"no json", 1)
    with pytest.raises(FatalError, match=r"max\.message\.bytes"):
        rig.until(lambda: False)


def test_a_full_producer_queue_holds_messages_back_and_loses_none(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.log.full()
    for mid in range(1, 31):
        link.publish(TOPIC, native(mid), mid)
    rig.until(lambda: rig.service._chain.in_flight == 30)
    assert link.quiet() == []
    rig.log.full(False)
    assert [link.packet(PUBACK).mid for _ in range(30)] == list(range(1, 31))
    assert rig.seqs() == list(range(1, 31))


def test_a_producer_queue_smaller_than_one_message_drains_by_polling(scripted_broker: Any, rig: Rig) -> None:
    rig.log.capacity = 1
    link = scripted_broker.accept()
    link.handshake()
    for mid in range(1, 6):
        link.publish(TOPIC, b'{"boot":1,"seq":%d,"values":{"a":1,"b":null}}' % mid, mid)
    assert [link.packet(PUBACK).mid for _ in range(5)] == [1, 2, 3, 4, 5]
    assert rig.seqs() == [1, 2, 3, 4, 5]
    assert rig.reasons() == ["wrong_type"] * 5


def test_qos_0_is_dropped_and_counted_beyond_twice_the_window(
    scripted_broker: Any, registry: CollectorRegistry
) -> None:
    rig = Rig(scripted_broker, registry, window_messages=5)
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
    rig.service._session.drop("end of test")


def test_qos_0_is_dropped_and_counted_beyond_the_bytes_of_the_window(
    scripted_broker: Any, registry: CollectorRegistry
) -> None:
    rig = Rig(scripted_broker, registry, window_bytes=10_000)
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
    rig.service._session.drop("end of test")


def test_nothing_more_is_read_beyond_the_bytes_of_the_window_and_the_keepalive_goes_on(
    scripted_broker: Any, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(scripted_broker, registry, window_bytes=100_000)
    link = scripted_broker.accept()
    link.handshake()
    rig.until(lambda: rig.service._session.connected)
    rig.log.hold()
    values = {f"m{n}": n / 7 for n in range(60)}
    for mid in range(1, 401):
        link.publish(TOPIC, json.dumps({"boot": 1, "seq": mid, "values": values}).encode(), mid)
    rig.until(rig.service._holds_enough)
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
    rig.service._session.drop("end of test")


def test_a_packet_with_an_odd_property_has_one_outcome_however_often_it_comes(scripted_broker: Any, rig: Rig) -> None:
    for dup in (False, True):
        link = scripted_broker.accept()
        link.handshake(session_present=dup)
        rig.log.hold()
        link.publish(TOPIC, native(1), 1, dup=dup, user_properties=(("note", "\ufeff"),))
        if not dup:
            rig.until(lambda: rig.service._chain.in_flight == 1)
            link.close()
            rig.until(lambda: not rig.service._session.connected)
        rig.log.release()
    assert link.packet(PUBACK).mid == 1
    assert [(o.first, o.upto) for o in rig.outcomes()][-1] == (2, 2)
    assert rig.metric("tidegate_gateway_errors_total", stage="receive") == 0


def test_outcomes_of_long_ids_are_split_by_what_their_topic_takes(scripted_broker: Any, rig: Rig) -> None:
    rig.log.max_record_bytes = 4000
    link = scripted_broker.accept()
    link.handshake()
    rig.log.hold()
    for mid in range(1, 21):
        link.publish(b"tidegate/v1/" + b"d" * 240 + b"%d/readings" % mid, native(mid), mid)
    rig.until(lambda: rig.service._chain.in_flight == 20)
    rig.log.release()
    assert [link.packet(PUBACK).mid for _ in range(20)] == list(range(1, 21))
    assert len(rig.outcomes()) > 5
    assert rig.opened == 1


def test_a_kafka_that_opens_and_then_refuses_is_tried_less_and_less(
    scripted_broker: Any, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.service.random.uniform", lambda low, high: high)
    waits: list[float] = []
    monkeypatch.setattr(rig.stop, "wait", waits.append)
    for tries in range(1, 5):
        link = scripted_broker.accept()
        link.handshake(session_present=tries > 1)
        rig.log.fail_next("retriable", "TOPIC_AUTHORIZATION_FAILED: scripted; grant it")
        link.publish(TOPIC, native(1), 1, dup=tries > 1)
        link.wait_closed()
        state = rig.service.status()
        assert state["state"] == "waiting"
        assert "topic telemetry.readings (TOPIC_AUTHORIZATION_FAILED: scripted; grant it)" in state["detail"]
    assert waits == [0.5, 1.0, 2.0, 4.0]
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    link.publish(TOPIC, native(1), 1, dup=True)
    assert link.packet(PUBACK).mid == 1
    rig.log.fail_next("fatal")
    link.publish(TOPIC, native(2), 2)
    link.wait_closed()
    assert waits[-1] == 0.5, "an outcome in Kafka begins the count anew"


def test_a_topic_that_vanished_under_the_gateway_is_an_error_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    to_make = [READINGS, OUTCOMES]

    def ensure(_settings: KafkaSettings, *, on_made: Callable[[str], None]) -> list[str]:
        for name in to_make:
            on_made(name)
        return []

    monkeypatch.setattr("gateway.kafka_log.wait_for_kafka", lambda *_: True)
    monkeypatch.setattr("gateway.kafka_log.ensure_topics", ensure)
    monkeypatch.setattr("gateway.kafka_log.open_writer", lambda _: MemoryLog().writer())
    used: set[str] = set()
    for made in ([READINGS, OUTCOMES], [], [OUTCOMES]):
        assert caplog.text == ""
        to_make[:] = made
        open_kafka(KafkaSettings(), threading.Event(), str, used_topics=used)
    assert "topic telemetry.outcomes was deleted" in caplog.text
    assert "telemetry.readings" not in caplog.text


def test_the_first_message_after_a_long_silence_is_no_wait_for_kafka(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.until(lambda: rig.service.healthy()[0])
    rig.service._pump.progress_at = time.monotonic() - 1000
    rig.log.hold()
    link.publish(TOPIC, b"", 1)
    rig.until(lambda: rig.service._chain.in_flight == 1)
    assert rig.service.healthy()[0], "it has no record of its own, only an outcome"
    rig.log.release()
    assert link.packet(PUBACK).mid == 1


def test_kafka_comes_before_the_broker_and_the_wait_is_told(scripted_broker: Any, rig: Rig) -> None:
    rig.refuse_open = 2
    rig.pump()
    assert rig.service.status()["state"] == "waiting"
    assert rig.service.healthy() == (False, "waiting for Kafka at nowhere")
    assert rig.opened == 0
    scripted_broker.accept().handshake()
    rig.until(lambda: rig.service.healthy()[0])
    assert rig.service.status()["state"] == "running"


def test_a_kafka_that_does_not_answer_is_told_while_keepalive_goes_on(
    scripted_broker: Any, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.log.hold()
    link.publish(TOPIC, native(1), 1)
    rig.until(lambda: "waiting for Kafka to report 1 messages" in rig.service.status()["detail"])
    rig.log.release()
    assert link.packet(PUBACK).mid == 1
    rig.until(lambda: rig.service.healthy()[0])


def test_a_loop_that_does_not_turn_is_stalled(rig: Rig) -> None:
    rig.service._condition._beat_at -= 1000
    assert rig.service.status()["state"] == "stalled"
    assert not rig.service.healthy()[0]


def test_a_stop_acknowledges_what_kafka_has_and_keeps_the_session(
    scripted_broker: Any, rig: Rig, wait_until: Any
) -> None:
    scripted_broker.pump = lambda: None
    thread = threading.Thread(target=rig.service.run, args=(rig.stop,))
    thread.start()
    link = scripted_broker.accept()
    link.handshake()
    rig.log.hold()
    for mid in (1, 2, 3):
        link.publish(TOPIC, native(mid), mid)
    wait_until(lambda: rig.service._chain.in_flight == 3)
    rig.stop.set()
    wait_until(lambda: rig.service.status()["state"] == "draining")
    link.publish(TOPIC, native(4), 4)
    rig.log.release()
    assert [link.packet(PUBACK).mid for _ in range(3)] == [1, 2, 3]
    rest = [packet.kind for packet in link.quiet(1.0)]
    assert rest == [DISCONNECT], "no PUBACK for what came after the stop"
    thread.join(10)
    assert not thread.is_alive()
    assert rig.service.status()["state"] == "stopped"


def test_a_stop_while_kafka_hangs_leaves_the_rest_to_the_broker(
    scripted_broker: Any, rig: Rig, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.service.DRAIN_SECONDS", 0.3)
    scripted_broker.pump = lambda: None
    thread = threading.Thread(target=rig.service.run, args=(rig.stop,))
    thread.start()
    link = scripted_broker.accept()
    link.handshake()
    rig.log.hold()
    link.publish(TOPIC, native(1), 1)
    wait_until(lambda: rig.service._chain.in_flight == 1)
    rig.stop.set()
    assert link.packet().kind == DISCONNECT
    thread.join(10)
    assert not thread.is_alive()


def test_a_decoder_that_fails_is_a_dead_letter_and_a_counted_error(
    scripted_broker: Any, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = b"[" + native(1) + b"]"

    def broken(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setitem(rig.service._gate._decoders, "native", broken)
    link = scripted_broker.accept()
    link.handshake()
    link.publish(TOPIC, payload, 1)
    assert link.packet(PUBACK).mid == 1
    assert rig.reasons() == ["internal_error"]
    [record] = rig.log.records(DEAD_LETTERS)
    assert record.value is not None
    assert base64.b64decode(decode_dead_letter(record.value).payload_base64) == payload
    assert rig.metric("tidegate_gateway_errors_total", stage="decode") == 1

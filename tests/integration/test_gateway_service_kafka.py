"""The run loop when Kafka refuses, is full, fails or goes away."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gateway.build import open_kafka
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.errors import FatalError
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.memory import MemoryLog
from ingest.record_limits import LearnedLimits

CONNECT, PUBACK, SUBSCRIBE, PINGREQ, DISCONNECT = 1, 4, 8, 12, 14
TOPIC = b"tidegate/v1/dev-1/readings"


def native(seq: int, value: float = 21.5) -> bytes:
    return json.dumps({"boot": 1, "seq": seq, "values": {"temp": value}}).encode()


def test_no_new_connection_before_kafka_has_what_the_last_one_brought(scripted_broker: Any, gateway_rig: Any) -> None:
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.log.hold()
    for mid in (1, 2):
        link.publish(TOPIC, native(mid), mid)
    gateway_rig.until(lambda: gateway_rig.service._chain.in_flight == 2)
    link.close()
    gateway_rig.until(lambda: not gateway_rig.service._session.connected)
    for _ in range(20):
        gateway_rig.service._session._reconnect._next_attempt_at = 0.0
        gateway_rig.pump()
    assert gateway_rig.service._session.closed, "each connection would add another window to Kafka's queue"
    wanted = "waiting for Kafka to take 2 records before reconnecting"
    assert gateway_rig.service.healthy() == (False, wanted)
    gateway_rig.log.release()
    link = scripted_broker.accept()
    link.handshake(session_present=False)
    link.publish(TOPIC, native(3), 1)
    assert link.packet(PUBACK).mid == 1
    assert gateway_rig.seqs() == [1, 2, 3]
    assert gateway_rig.metric("tidegate_gateway_sessions_lost_total") == 1


@pytest.mark.parametrize("kind", ["fatal", "retriable"])
def test_a_failed_producer_drops_the_connection_and_starts_anew(
    scripted_broker: Any, gateway_rig: Any, kind: Any
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.log.fail_next(kind, "scripted")
    gateway_rig.refuse_open = 3
    for mid in (1, 2):
        link.publish(TOPIC, native(mid), mid)
    link.wait_closed()
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    for mid in (1, 2):
        link.publish(TOPIC, native(mid), mid, dup=True)
    assert [link.packet(PUBACK).mid for _ in range(2)] == [1, 2]
    assert gateway_rig.opened == 2
    assert gateway_rig.seqs()[-2:] == [1, 2], "in order, from the first that was not acknowledged"
    assert gateway_rig.metric("tidegate_gateway_errors_total", stage="produce") == 1


def test_a_record_too_large_for_kafka_is_one_dead_letter_and_its_neighbours_live(
    scripted_broker: Any, gateway_rig: Any
) -> None:
    gateway_rig.log.max_record_bytes = 3000
    link = scripted_broker.accept()
    link.handshake()
    large = json.dumps({"boot": 1, "seq": 2, "values": {f"metric-{n}": n / 7 for n in range(90)}}).encode()
    for mid, payload in enumerate((native(1), large, native(3)), start=1):
        link.publish(TOPIC, payload, mid)
    assert [link.packet(PUBACK).mid for _ in range(3)] == [1, 2, 3]
    assert gateway_rig.seqs() == [1, 3]
    [record] = gateway_rig.log.records(DEAD_LETTERS)
    assert record.value is not None
    letter = decode_dead_letter(record.value)
    assert (letter.reason, letter.device, letter.payload_bytes) == ("kafka_too_large", "dev-1", len(large))
    counts = [count for outcome in gateway_rig.outcomes() for count in outcome.counts]
    assert sum(count.dead_lettered.get("kafka_too_large", 0) for count in counts) == 1
    assert sum(count.gap for count in counts) == 0


def test_a_dead_letter_that_kafka_will_not_take_at_any_size_ends_the_process(
    scripted_broker: Any, gateway_rig: Any
) -> None:
    gateway_rig.log.max_record_bytes = 50
    link = scripted_broker.accept()
    link.handshake()
    link.publish(TOPIC, b"no json", 1)
    with pytest.raises(FatalError, match=r"max\.message\.bytes"):
        gateway_rig.until(lambda: False)


def test_a_message_of_which_kafka_took_no_record_is_not_acknowledged_in_a_stop_either(
    scripted_broker: Any, gateway_rig: Any
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.log.full()
    link.publish(TOPIC, native(1), 1)
    gateway_rig.until(lambda: gateway_rig.service._chain.in_flight == 1)
    gateway_rig.log.fail_next("record", count=3)
    gateway_rig.log.full(False)
    with pytest.raises(FatalError, match=r"max\.message\.bytes"):
        gateway_rig.service._drain()
    link._pump = lambda: gateway_rig.service._session.loop(0.0)
    assert link.quiet() == []
    assert gateway_rig.outcomes() == []


def test_a_report_that_cannot_be_worked_on_begins_anew_instead_of_standing_still(
    scripted_broker: Any, gateway_rig: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    with monkeypatch.context() as patch:

        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("scripted")

        patch.setattr(gateway_rig.service._processor, "reject", broken)
        gateway_rig.log.fail_next("record")
        link.publish(TOPIC, native(1), 1)
        link.wait_closed()
    assert "a delivery report of topic telemetry.readings failed (RuntimeError: scripted)" in caplog.text
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    link.publish(TOPIC, native(1), 1, dup=True)
    assert link.packet(PUBACK).mid == 1
    assert gateway_rig.opened == 2


def test_a_full_producer_queue_holds_messages_back_and_loses_none(scripted_broker: Any, gateway_rig: Any) -> None:
    link = scripted_broker.accept()
    link.handshake()
    gateway_rig.log.full()
    for mid in range(1, 31):
        link.publish(TOPIC, native(mid), mid)
    gateway_rig.until(lambda: gateway_rig.service._chain.in_flight == 30)
    assert link.quiet() == []
    gateway_rig.log.full(False)
    assert [link.packet(PUBACK).mid for _ in range(30)] == list(range(1, 31))
    assert gateway_rig.seqs() == list(range(1, 31))


def test_a_producer_queue_smaller_than_one_message_drains_by_polling(scripted_broker: Any, gateway_rig: Any) -> None:
    gateway_rig.log.capacity = 1
    link = scripted_broker.accept()
    link.handshake()
    for mid in range(1, 6):
        link.publish(TOPIC, b'{"boot":1,"seq":%d,"values":{"a":1,"b":null}}' % mid, mid)
    assert [link.packet(PUBACK).mid for _ in range(5)] == [1, 2, 3, 4, 5]
    assert gateway_rig.seqs() == [1, 2, 3, 4, 5]
    assert gateway_rig.reasons() == ["wrong_type"] * 5


def test_a_kafka_that_opens_and_then_refuses_is_tried_less_and_less(
    scripted_broker: Any, gateway_rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.service.random.uniform", lambda low, high: high)
    waits: list[float] = []
    monkeypatch.setattr(gateway_rig.stop, "wait", waits.append)
    for tries in range(1, 5):
        link = scripted_broker.accept()
        link.handshake(session_present=tries > 1)
        gateway_rig.log.fail_next("retriable", "TOPIC_AUTHORIZATION_FAILED: scripted; grant it")
        link.publish(TOPIC, native(1), 1, dup=tries > 1)
        link.wait_closed()
        state = gateway_rig.service.status()
        assert state["state"] == "waiting"
        assert "topic telemetry.readings (TOPIC_AUTHORIZATION_FAILED: scripted; grant it)" in state["detail"]
    assert waits == [0.5, 1.0, 2.0, 4.0]
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    link.publish(TOPIC, native(1), 1, dup=True)
    assert link.packet(PUBACK).mid == 1
    gateway_rig.log.fail_next("fatal")
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

    monkeypatch.setattr("gateway.build.wait_for_kafka", lambda *_: True)
    monkeypatch.setattr("gateway.build.ensure_topics", ensure)
    monkeypatch.setattr("gateway.build.open_writer", lambda *_, **__: MemoryLog().writer())
    used: set[str] = set()
    for made in ([READINGS, OUTCOMES], [], [OUTCOMES]):
        assert caplog.text == ""
        to_make[:] = made
        open_kafka(KafkaSettings(), threading.Event(), str, used_topics=used, learned=LearnedLimits())
    assert "Topic telemetry.outcomes was deleted" in caplog.text
    assert "telemetry.readings" not in caplog.text

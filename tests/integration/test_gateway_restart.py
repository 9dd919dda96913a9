"""A gateway that starts again without any file: the session that is gone, filters it must give back, gaps between."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gateway.gateway_settings import GatewaySettings, MqttSettings
from gateway.memory.restart_state import SessionRecord
from gateway.service import GatewayService
from ingest.contract.outcome import OutcomeRecord, decode_outcome
from ingest.contract.reading import decode_record
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import GATEWAY_STATE, OUTCOMES, READINGS
from ingest.memory import MemoryLog
from monitoring.metrics.gateway import GatewayMetrics

CONNECT, PUBACK, SUBSCRIBE, UNSUBSCRIBE = 1, 4, 8, 10
TOPIC = b"tidegate/v1/dev-1/readings"


def native(seq: int) -> bytes:
    return json.dumps({"boot": 1, "seq": seq, "values": {"temp": 20}}).encode()


def kept_filters(log: MemoryLog) -> list[Any]:
    """The filters in each record in which a gateway wrote what its session holds; other records name fields."""
    held = [record.value or b"" for record in log.records(GATEWAY_STATE) if (record.key or b"").endswith(b"/held")]
    return [msgspec.json.decode(value, type=SessionRecord).filters for value in held]


@pytest.fixture
def start(
    scripted_broker: Any, new_gateway: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """`start(log, *filters)` is a process on that log; it knows nothing but what stands there."""

    monkeypatch.setattr("gateway.memory.state_watch.LOOK_SECONDS", 0.1)
    made: list[Any] = []

    def make(log: MemoryLog, *filters: str) -> Any:
        rig = new_gateway(CollectorRegistry())
        rig.log, rig.registry = log, CollectorRegistry()

        def state() -> list[tuple[str, bytes]]:
            newest = {(record.key or b"").decode(): record.value for record in log.records(GATEWAY_STATE)}
            return [(key, value) for key, value in newest.items() if value]

        def outcomes(_since_ms: int) -> list[OutcomeRecord]:
            return [decode_outcome(record.value or b"") for record in log.records(OUTCOMES)]

        def newer(key: str, since: Mapping[int, int] | None) -> tuple[list[bytes], dict[int, int]]:
            records = log.records(GATEWAY_STATE)
            values = [] if since is None else [one.value for one in records[since[0] :] if one.key == key.encode()]
            return [value for value in values if value], {0: len(records)}

        mqtt = MqttSettings.model_validate(
            {"port": scripted_broker.port, "protocol": scripted_broker.protocol, "client_id": "gate",
             "reconnect_max_seconds": 0.05, "subscriptions": filters or ("#",)}
        )  # fmt: skip
        rig.service = GatewayService(
            mqtt, GatewaySettings(), (), rig._open, GatewayMetrics(rig.registry, reasons=Reason, ignored_reasons=IgnoredReason),
            read_state=state, read_outcomes=outcomes, read_newer=newer,
        )  # fmt: skip
        scripted_broker.pump = rig.pump
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.service._shared_id.stop()


def test_a_restart_sees_the_lost_session_and_the_gap(scripted_broker: Any, start: Callable[..., Any]) -> None:
    log = MemoryLog()
    first = start(log)
    link = scripted_broker.accept()
    link.handshake()
    link.publish(TOPIC, native(50), 1)
    link.packet(PUBACK)
    first.until(lambda: ("#",) in kept_filters(log), "the filters are kept")
    first.service._session.drop("as by kill -9")

    second = start(log)
    link = scripted_broker.accept()
    link.handshake(session_present=False)
    link.publish(TOPIC, native(100), 1)
    link.packet(PUBACK)
    assert second.metric("tidegate_gateway_sessions_lost_total") == 1
    assert [count.gap for outcome in second.outcomes() for count in outcome.counts] == [0, 49]


def test_filters_that_are_no_longer_wanted_are_given_back(scripted_broker: Any, start: Callable[..., Any]) -> None:
    log = MemoryLog()
    first = start(log)
    scripted_broker.accept().handshake()
    first.until(lambda: ("#",) in kept_filters(log), "the filters are kept")
    first.service._session.drop("as by kill -9")

    start(log, "hall1/#")
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack(session_present=True)
    assert link.packet(UNSUBSCRIBE).body.endswith(b"\x00\x01#")
    assert b"hall1/#" in link.packet(SUBSCRIBE).body


def test_another_live_gateway_with_this_id_shows_in_status_and_metric(
    scripted_broker: Any, start: Callable[..., Any]
) -> None:
    log = MemoryLog()
    rig = start(log)
    scripted_broker.accept().handshake()
    rig.until(lambda: rig.service._shared_id._offsets is not None, "the first look")

    def other(**more: Any) -> None:
        held = json.dumps({"session": "gate@elsewhere:1883", "process": "edge-2/7/abc", **more}).encode()
        log.writer().produce(GATEWAY_STATE, rig.service._own.key.encode(), held, lambda _failure: None)

    other()
    rig.until(lambda: rig.metric("tidegate_gateway_id_shared") == 1, "the metric")
    rig.until(lambda: "edge-2/7/abc" in rig.service.status()["detail"], "the sentence")
    assert rig.service.status()["state"] == "running"
    other(stopped=True)
    rig.until(lambda: rig.metric("tidegate_gateway_id_shared") == 0, "the end of it")


def untimed(number: int) -> bytes:
    return json.dumps({"values": {"temp": number}}).encode()


def waits(log: MemoryLog) -> dict[float, tuple[bool, int | None]]:
    """By value: whether the reading may have waited, and since when."""
    records = [decode_record(record.value or b"") for record in log.records(READINGS)]
    return {
        reading.value or 0.0: ("may_have_waited" in (reading.flags or ()), record.waited_since_us)
        for record in records
        for reading in record.readings
    }


def test_what_waited_in_the_broker_says_so_and_since_when_over_a_restart_too(
    scripted_broker: Any, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the broker's answer to a ping comes behind fewer messages than it sends at once."""
    log, clock = MemoryLog(), [1_764_331_200_000_000]
    monkeypatch.setattr("gateway.service._now_us", lambda: clock[0])

    def deliver(link: Any, *numbers: int) -> None:
        for number in numbers:
            link.publish(TOPIC, untimed(number), number)
        for _ in numbers:
            link.packet(PUBACK)

    def taken_over(rig: Any, link: Any) -> bool:
        clock[0] += 1_000_000
        link.answer_pings()
        return rig.service._backlog.since_us is None

    rig = start(log)
    link = scripted_broker.accept()
    link.handshake()
    deliver(link, 1)
    connected_us = clock[0]
    rig.until(lambda: ("#",) in kept_filters(log), "what it knows is kept")
    # A connection that is lost for an hour.
    rig.service._session.drop("as by a cable")
    clock[0] += 3_600_000_000
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    deliver(link, 2, 3)
    rig.until(lambda: taken_over(rig, link), "the backlog is over")
    deliver(link, 4)
    assert waits(log) == {1.0: (False, None), 2.0: (True, connected_us), 3.0: (True, connected_us), 4.0: (False, None)}
    # A process that is killed, and another one.
    rig.service._session.drop("as by kill -9")
    clock[0] += 3_600_000_000
    rig = start(log)
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    deliver(link, 5)
    assert waits(log)[5.0] == (True, connected_us), "since it last said how far it had come"

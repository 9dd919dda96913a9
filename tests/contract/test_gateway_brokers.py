"""The gateway's behaviour suite against real brokers: the facts about MQTT that its promises rest on, on each broker.

`make test` runs it on mosquitto and iotcore, `make conformance` on all brokers of tests/support/brokers.py.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.devtools.publisher import Publisher
from gateway.gateway_settings import RouteSettings
from gateway.message_processor import MAY_HAVE_WAITED
from ingest.contract.errors import FatalError
from ingest.contract.reading import decode_record
from ingest.contract.topics import READINGS
from tests.support.brokers import BrokerCase, acknowledge, connect, end, native, numbers, settle, take
from tests.support.gateway import GatewayRig
from tests.support.session import SessionRig

pytestmark = pytest.mark.promise("P2")


def test_a_message_without_puback_comes_again_and_an_acknowledged_one_never(broker_case: BrokerCase) -> None:
    gate = broker_case.gate()
    broker_case.queue(gate, *range(10))
    gate.until(lambda: len(gate.heard.messages) == 10, "ten messages")
    acknowledge(gate, 0, 4)
    settle(gate)  # Artemis takes a PUBACK and the DISCONNECT behind it in any order.
    gate.session.close()
    connect(gate)
    gate.until(lambda: len(gate.heard.messages) >= 16, "the six others again")
    assert broker_case.ordered(numbers(gate)[:10]) == list(range(10))
    assert broker_case.ordered(numbers(gate, 10)) == broker_case.ordered(numbers(gate)[4:10])
    assert gate.session.session_present
    if broker_case.traits.marks_copies:
        assert all(message.dup for message in gate.heard.messages[10:])
    acknowledge(gate, 10)
    settle(gate)
    gate.session.close()
    connect(gate)
    broker_case.send(99)
    gate.until(lambda: len(gate.heard.messages) > 16, "a new message")
    assert numbers(gate, 16) == [99]


def test_a_message_comes_again_however_often_the_link_breaks(broker_case: BrokerCase) -> None:
    """More often than Artemis's max-delivery-attempts (10), after which it deletes a message of other protocols."""
    gate = broker_case.gate()
    broker_case.queue(gate, 1, 2, 3)
    for times in range(1, 13):
        gate.until(lambda times=times: len(gate.heard.messages) >= 3 * times, f"the messages for the {times}. time")
        gate.session.drop("the link breaks")
        connect(gate)
    gate.until(lambda: len(gate.heard.messages) >= 39, "the messages for the last time")
    assert [broker_case.ordered(numbers(gate)[at : at + 3]) for at in range(0, 39, 3)] == [[1, 2, 3]] * 13


def test_what_came_while_the_gateway_was_away_comes_in_order(broker_case: BrokerCase) -> None:
    gate = broker_case.gate(window=1000)
    broker_case.queue(gate, *range(1500))
    take(gate, 1500)
    assert broker_case.ordered(numbers(gate)) == list(range(1500))


def test_no_more_messages_come_than_the_session_takes(broker_case: BrokerCase) -> None:
    gate = broker_case.gate(window=10)
    broker_case.queue(gate, *range(130))
    most = broker_case.inflight(10)
    gate.until(lambda: len(gate.heard.messages) >= most, f"{most} messages")
    assert settle(gate) == most
    if not broker_case.traits.refills:
        take(gate, 130)
        return
    acknowledge(gate, 0, 5)
    gate.until(lambda: len(gate.heard.messages) >= most + 5, "five more")
    if broker_case.traits.keeps_inflight:
        assert settle(gate) == most + 5


def test_each_device_stays_in_order_when_the_link_breaks(broker_case: BrokerCase) -> None:
    gate = broker_case.gate()
    gate.session.close()
    for part in range(0, 150, 10):
        for device in "abc":
            broker_case.send(*range(part, part + 10), topic=device)
    connect(gate)
    for count in (100, 250):
        take(gate, count)
        gate.session.drop("the link breaks")
        connect(gate)
    while not _complete(gate):
        take(gate, len(gate.heard.messages) + 1)
    begins = gate.heard.begins
    for begin, upto in zip(begins, [*begins[1:], None], strict=True):
        for device in "abc":
            of_one = [int(m.payload) for m in gate.heard.messages[begin:upto] if m.topic.endswith(device.encode())]
            assert broker_case.ordered(of_one) == sorted(set(of_one)), "in order, and each once within a connection"


def _complete(gate: SessionRig) -> bool:
    return len({(message.topic, message.payload) for message in gate.heard.messages}) == 450


def test_a_retained_message_is_marked_as_a_replay_and_comes_once(broker_case: BrokerCase) -> None:
    broker_case.send(1, topic="state", retain=True)
    gate = broker_case.gate()
    take(gate, 1)
    assert gate.heard.messages[0].retain
    broker_case.send(2, topic="state", retain=True)
    take(gate, 2)
    assert not gate.heard.messages[1].retain, "it comes live"
    gate.session.close()
    connect(gate)
    broker_case.send(3)
    take(gate, 3)
    assert numbers(gate) == [1, 2, 3], "a session that was kept gets no replay"
    broker_case.send(b"", topic="state", retain=True)


def test_another_client_with_the_id_takes_the_session_and_its_messages_over(broker_case: BrokerCase) -> None:
    first = broker_case.gate()
    broker_case.queue(first, *range(5))
    first.until(lambda: len(first.heard.messages) == 5, "five messages")
    second = broker_case.gate()
    if broker_case.protocol == "5" and broker_case.traits.says_taken_over:
        with pytest.raises(FatalError, match="another MQTT client uses client id"):
            first.until(lambda: False, "the end of the first")
    else:
        first.until(lambda: first.heard.losses, "the loss of the first")
    second.until(lambda: len(second.heard.messages) == 5, "the messages at the second")
    assert broker_case.ordered(numbers(second)) == list(range(5))


def test_a_wrong_password_is_refused_in_a_sentence(broker_case: BrokerCase) -> None:
    gate = broker_case.session(password="wrong")
    gate.until(lambda: gate.heard.losses, "the refusal")
    assert gate.heard.epochs == []
    assert "wrong" not in gate.session.detail
    if broker_case.traits.says_refused:
        assert f"refuses user {broker_case.server.username}" in gate.heard.losses[0]


def test_a_clean_start_elsewhere_is_a_lost_session_and_the_gateway_subscribes_again(broker_case: BrokerCase) -> None:
    gate = broker_case.gate()
    gate.session.close()
    end(broker_case.client(gate.settings.client_id))
    connect(gate)
    assert gate.heard.lost_sessions == [False, True]
    broker_case.send(7)
    take(gate, 1)
    assert numbers(gate) == [7]


def test_a_shared_subscription_loses_no_message_when_a_member_leaves(broker_case: BrokerCase) -> None:
    shared = (f"$share/{broker_case.name}/{broker_case.name}/#",)
    gates = [broker_case.gate(suffix, subscriptions=shared) for suffix in ("one", "two")]
    taken: set[int] = set()
    seen = [0, 0]

    def take_by(*places: int, count: int) -> None:
        gates[0].until(lambda: _take_new(gates, seen, taken, places) >= count, f"{count} messages in all")

    broker_case.send(*range(60))
    take_by(0, 1, count=60)
    if not broker_case.traits.shares_safely:
        return
    broker_case.send(*range(60, 80))
    settle(gates[1])
    take_by(0, count=len(taken))
    seen[1] = settle(gates[1])
    gates[1].session.close()
    connect(gates[1])
    take_by(0, 1, count=80)
    assert taken == set(range(80))


def _take_new(gates: list[SessionRig], seen: list[int], taken: set[int], places: tuple[int, ...]) -> int:
    """Acknowledge what has come to these members since the last time; the number of different messages so far."""
    for place in places:
        gate, begin = gates[place], seen[place]
        gate.pump()
        seen[place] = len(gate.heard.messages)
        if seen[place] > begin:
            taken.update(numbers(gate, begin))
            acknowledge(gate, begin, seen[place])
    return len(taken)


def test_a_large_message_arrives_whole(broker_case: BrokerCase) -> None:
    gate = broker_case.gate()
    payload = bytes(range(256)) * 1200
    broker_case.send(payload)
    gate.until(lambda: gate.heard.messages, "the large message")
    assert gate.heard.messages[0].payload == payload


def test_a_publisher_keeps_to_the_receive_maximum_of_the_broker(broker_case: BrokerCase) -> None:
    publisher = Publisher(broker_case.settings, client_id=f"{broker_case.name}-publisher", window=100)
    publisher.connect()
    losses: list[object] = []
    publisher._client.on_disconnect = lambda *reason: losses.append(reason)
    for number in range(300):
        assert publisher.publish(f"{broker_case.name}/a", b"%d" % number)
    assert publisher.drain(timeout_seconds=60)
    assert losses == []
    publisher.close()


@pytest.fixture
def gateway(
    broker_case: BrokerCase, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GatewayRig]:
    """A whole gateway at the broker, with a log in memory."""
    monkeypatch.setattr("gateway.service.IDLE_SECONDS", 0.01)
    mqtt = {**broker_case.login, "client_id": f"{broker_case.name}-gateway", "subscriptions": [f"{broker_case.name}/+"]}
    route = RouteSettings(filter=f"{broker_case.name}/{{device}}", decoder="native", device="{device}")
    rig = GatewayRig(broker_case, registry, mqtt=mqtt, route=route, window_messages=50)
    rig.until(lambda: rig.service._session.connected, "the connection")
    yield rig
    rig.service._session.drop("end of test")


def test_every_message_has_one_outcome_when_kafka_and_the_link_fail(
    broker_case: BrokerCase, gateway: GatewayRig
) -> None:
    gateway.log.hold()
    gateway.service._session.close()
    for part in range(0, 100, 10):
        for device in "ab":
            broker_case.send(*map(native, range(part, part + 10)), topic=device)
    gateway.until(lambda: gateway.service._chain.in_flight >= 30, "a window that fills")
    gateway.service._session.drop("the link breaks")
    gateway.log.release()
    wanted = {(device, seq) for device in "ab" for seq in range(100)}
    gateway.until(lambda: {stored[:2] for stored in _stored(gateway)} >= wanted, "all messages")
    gateway.until(lambda: not gateway.service._chain.in_flight, "the PUBACKs")
    assert {stored[:2] for stored in _stored(gateway)} == wanted
    epochs = {epoch for _, _, epoch in _stored(gateway)}
    assert len(epochs) == 2
    for epoch in epochs:
        for device in "ab":
            of_one = [seq for found, seq, when in _stored(gateway) if (found, when) == (device, epoch)]
            assert broker_case.ordered(of_one) == sorted(set(of_one)), "in order, and each once within a connection"


def test_messages_that_waited_in_the_broker_are_marked_and_later_ones_are_not(
    broker_case: BrokerCase, gateway: GatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.service._session.close()
    monkeypatch.setattr("gateway.service._now_us", lambda: time.time_ns() // 1000 + 3_600_000_000)
    broker_case.send(*map(native, range(300)))
    gateway.until(lambda: len(_stored(gateway)) == 300, "what waited")
    gateway.until(lambda: gateway.service._backlog.since_us is None, "the end of the backlog")
    broker_case.send(native(300))
    gateway.until(lambda: len(_stored(gateway)) == 301, "a new message")
    records = [decode_record(record.value) for record in gateway.log.records(READINGS) if record.value]
    marked = {
        record.seq for record in records for reading in record.readings if MAY_HAVE_WAITED in (reading.flags or ())
    }
    assert marked == set(range(300))


def _stored(gateway: GatewayRig) -> list[tuple[str, int, int]]:
    records = [decode_record(record.value) for record in gateway.log.records(READINGS) if record.value]
    return [(record.device, record.seq or 0, record.epoch) for record in records]


@pytest.mark.conformance
def test_a_killed_broker_keeps_what_it_acknowledged_or_the_gateway_says_that_it_is_lost(
    broker_case: BrokerCase, await_save: Any
) -> None:
    gate = broker_case.gate()
    broker_case.queue(gate, *range(15))
    gate.until(lambda: len(gate.heard.messages) == 15, "15 messages")
    gate.session.close()
    if broker_case.kind == "mosquitto":
        await_save(broker_case.server)
    broker_case.restart()
    connect(gate)
    assert (True in gate.heard.lost_sessions) is not broker_case.traits.durable
    if broker_case.traits.durable:
        take(gate, 30)
        assert broker_case.ordered(numbers(gate, 15)) == list(range(15))

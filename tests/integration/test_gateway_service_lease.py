"""The run loop with a lease: a standby waits without a session, a holder renews, and a lost lease ends it."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.lease.gateway_lease import GatewayLease
from gateway.lease.lease_record import LeaseRecord, decode_lease, encode_lease, is_lease, lease_key
from ingest.contract.errors import ConfigError, FatalError
from ingest.contract.topics import GATEWAY_STATE, READINGS
from ingest.memory import MemoryFollower, MemoryLog

PUBACK, DISCONNECT = 4, 14
TOPIC = b"tidegate/v1/dev-1/readings"
LATER = 1 << 43
"""An epoch that this machine's clock does not reach."""


class Clock:
    seconds = 1000.0


def record(process: str, **more: Any) -> LeaseRecord:
    values = {
        "gateway": "gw-1", "process": process, "machine": "", "client_id": "gate", "broker": "b:1883", "filters": ("#",),
        "seconds": 20.0, "standby": True, **more,
    }  # fmt: skip
    return LeaseRecord(**values)


def say(log: MemoryLog, said: LeaseRecord) -> None:
    """What another process writes."""
    writer = log.writer()
    writer.produce(GATEWAY_STATE, lease_key(said.gateway).encode(), encode_lease(said), lambda _error: None)
    writer.flush(1)


def leases(log: MemoryLog) -> list[LeaseRecord]:
    found = [
        decode_lease(one.value or b"") for one in log.records(GATEWAY_STATE) if is_lease((one.key or b"").decode())
    ]
    return [one for one in found if one is not None]


@pytest.fixture
def rig(new_gateway: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A gateway that may be a standby, under a clock that a test moves."""
    monkeypatch.setattr("gateway.lease.gateway_lease.LOOK_SECONDS", 0.02)
    clock = Clock()

    def make_lease(log: MemoryLog) -> GatewayLease:
        follower = MemoryFollower(log, is_lease)
        return GatewayLease(record("here/1/a"), follower, clock=lambda: clock.seconds)

    made = new_gateway(make_lease=make_lease)
    made.clock = clock
    yield made
    made.stop.set()


def test_a_standby_is_healthy_without_a_session_and_continues_the_epochs_of_the_holder(
    scripted_broker: Any, rig: Any, wait_until: Any
) -> None:
    say(rig.log, record("there/1/b", term=3, beat=1, epoch=LATER))
    scripted_broker.pump = lambda: None
    thread = threading.Thread(target=rig.service.run, args=(rig.stop,))
    thread.start()
    # Of all that a standby shows this metric is set last.
    wait_until(lambda: rig.metric("tidegate_gateway_connected") == 1, what="a standby, which needs no session")
    assert rig.service.status()["state"] == "standby"
    assert rig.service.healthy() == (True, "standby: process there/1 holds the lease of gateway gw-1")
    assert not rig.service.is_active()
    assert rig.metric("tidegate_gateway_standby_waiting") == 1
    say(rig.log, record("there/1/b", term=3, beat=2, epoch=LATER, released=True))
    link = scripted_broker.accept()
    link.handshake()
    wait_until(lambda: rig.service.healthy()[0] and rig.service.is_active(), what="the work")
    assert rig.metric("tidegate_gateway_lease_held") == 1
    link.publish(TOPIC, json.dumps({"boot": 1, "seq": 1, "values": {"temp": 20}}).encode(), 1)
    assert link.packet(PUBACK).mid == 1
    assert [one.epoch for one in rig.outcomes()] == [LATER + 1]
    rig.stop.set()
    link.packet(DISCONNECT)
    link.close()
    thread.join(30)
    assert [(one.term, one.released) for one in leases(rig.log)][-1] == (4, True)
    assert leases(rig.log)[-1].epoch == LATER + 1


def test_a_holder_renews_between_messages_and_ends_when_kafka_does_not_confirm(scripted_broker: Any, rig: Any) -> None:
    scripted_broker.accept().handshake()
    rig.until(lambda: rig.service.healthy()[0])
    for _ in range(3):
        rig.clock.seconds += 5
        least = len(leases(rig.log)) + 1
        rig.until(lambda wanted=least: len(leases(rig.log)) >= wanted, "a renewal")
    rig.until(lambda: not rig.service._log.in_flight, "its report")
    rig.log.hold()
    rig.clock.seconds += 5
    rig.pump()
    rig.clock.seconds += 10
    with pytest.raises(FatalError, match="could not renew the lease") as raised:
        rig.until(lambda: False)
    assert not isinstance(raised.value, ConfigError), "a supervisor starts it again"
    assert rig.service._log.in_flight == 0, "nothing of it is sent any more"


def test_a_gateway_that_conflicts_writes_nothing_and_connects_nowhere(scripted_broker: Any, rig: Any) -> None:
    other = record("there/1/b", gateway="gw-2", client_id="gate", standby=False, term=1)
    with pytest.raises(ConfigError, match="both use 'gate'"):
        say(rig.log, other)
        stop = threading.Timer(0.3, lambda: say(rig.log, other))
        stop.start()
        rig.pump()
    assert rig.log.records(READINGS) == []
    assert {one.process for one in leases(rig.log)} == {"there/1/b"}
    assert scripted_broker.links == []


def test_a_holder_that_lacks_the_broker_releases_the_lease_and_ends(scripted_broker: Any, rig: Any) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.until(lambda: rig.service.healthy()[0])
    scripted_broker.close()
    link.close()
    rig.until(lambda: not rig.service._session.connected)
    rig.pump()
    rig.clock.seconds += 6
    with pytest.raises(FatalError, match=r"lacks the MQTT broker .* It has released its lease"):
        rig.until(lambda: False)
    assert leases(rig.log)[-1].released

"""What a broker does to its clients: dies, forgets, overflows, throws out, floods, replays (F7, F8, F14, F15, F50, F51)."""

import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from deploy.chaos.run import KafkaReader
from deploy.chaos.verdict import MessageKey, judge

pytestmark = pytest.mark.durable_broker

USER, PASSWORD = "tester", "a secret: with spaces"


def both(rig: Any) -> list[Any]:
    return [rig.add(protocol, mqtt={"reconnect_max_seconds": 0.5}) for protocol in ("5", "3.1.1")]


def test_a_broker_that_is_killed_and_one_that_forgets(
    fault_rig: Callable[..., Any],
    start_all: Callable[..., None],
    assert_whole: Callable[..., Any],
    wait_until: Any,
    await_save: Callable[[Any], None],
) -> None:
    """The packet identifiers of what is in flight are given to other messages: none of those is acknowledged unstored.

    The publisher sends again what it has no PUBACK for; what the broker had acknowledged is on its disk by then.
    """
    rig = fault_rig()
    gateways = both(rig)
    start_all(rig)
    rig.load.send(50)
    wait_until(lambda: all(rig.has_all(one) for one in gateways), what="all stored")
    await_save(rig.broker)
    rig.broker.kill()
    rig.broker.start()
    rig.load.send(50)
    assert_whole(rig, by_device=False)

    rig.kafka.hold()
    try:
        rig.load.send(50)
        for gateway in gateways:
            wait_until(lambda one=gateway: one.metric("tidegate_gateway_inflight_messages") == 50, what="50 in flight")
        rig.broker.kill()
        rig.broker.part.database.unlink()
        rig.broker.start()
    finally:
        rig.kafka.resume_process()
    for gateway in gateways:
        wait_until(lambda one=gateway: "lost this gateway's session" in one.log(), what="the loss being told")
        wait_until(gateway.healthy, what="the next session")
        assert gateway.metric("tidegate_gateway_sessions_lost_total") == 1
    rig.load.send(100)
    assert_whole(rig, by_device=False)


def test_two_gateways_with_one_client_id(
    fault_rig: Callable[..., Any], start_all: Callable[..., None], wait_until: Any
) -> None:
    """A broker that says so ends one of them (see test_gateway_client). Mosquitto 2.0 only closes, in MQTT 5, too.

    So both say what it looks like, and slow down: a bad link looks the same, and must not end anything.
    """
    rig = fault_rig()
    pairs = {}
    for protocol in ("5", "3.1.1"):
        mqtt = {"client_id": f"{rig.name}-{protocol}", "reconnect_max_seconds": 0.4}
        pairs[protocol] = [rig.add(protocol, suffix, mqtt=mqtt) for suffix in ("-x", "-y")]
    readers = [KafkaReader(rig.kafka_settings, *(one.name for one in pair)) for pair in pairs.values()]
    for pair in pairs.values():
        pair[0].start()
    wait_until(lambda: all(pair[0].healthy() for pair in pairs.values()), what="the first ones up")
    rig.load.start(50)
    for pair in pairs.values():
        pair[1].start()
    for protocol, pair in pairs.items():
        suspicion = f"or another client uses client id '{rig.name}-{protocol}'"
        wait_until(lambda ones=pair, words=suspicion: any(words in one.log() for one in ones), what=suspicion)
        assert all(one.ended is None for one in pair)
        pair[1].kill()
    assert rig.load.finish()
    for reader, pair in zip(readers, pairs.values(), strict=True):
        wait_until(lambda one=reader: not rig.load.missing(one.look().keys()), what="all of them")
        verdict = judge(rig.load.sent, rig.load.acknowledged, reader.look())
        assert (verdict.lost, verdict.duplicate) == (0, 0), verdict
        assert pair[0].ended is None


def test_what_a_broker_drops_shows_as_a_gap(
    fault_rig: Callable[..., Any], start_all: Callable[..., None], wait_until: Any
) -> None:
    rig = fault_rig(max_queued_messages=40)
    gateways = both(rig)
    start_all(rig)
    rig.load.send(20)
    for gateway in gateways:
        wait_until(lambda one=gateway: rig.has_all(one), what="all stored")
        gateway.terminate()
    rig.load.send(200)
    assert rig.load.finish(), "each has its PUBACK: the publisher does not learn of it"
    start_all(rig)
    rig.load.send(20)
    newest = set(list(rig.load.sent)[-20:])
    for gateway in gateways:
        wait_until(lambda one=gateway: newest <= rig.landed(one).keys(), what="the newest")
        missing = len(rig.load.missing(rig.landed(gateway).keys()))
        assert missing > 100
        # The count of a message comes after its reading.
        wait_until(lambda one=gateway: told_missing(rig.landed(one)) >= missing, what="the gap being told")  # noqa: B023
        assert missing == told_missing(rig.landed(gateway))


def told_missing(landed: Any) -> int:
    return sum(count.gap - count.reordered for outcome in landed.outcomes for count in outcome.counts)


def test_hundreds_of_devices_that_come_at_once(
    fault_rig: Callable[..., Any], start_all: Callable[..., None], assert_whole: Callable[..., Any], wait_until: Any
) -> None:
    rig = fault_rig()
    both(rig)
    start_all(rig)
    rig.load.start(100)
    for wave in (1, 2):
        keys = [MessageKey(f"{rig.name}-wave-{number:03d}", 1, wave) for number in range(300)]
        payloads = {key: b'{"boot":1,"seq":%d,"values":{"temp":21.5}}' % wave for key in keys}
        rig.load.sent.update(payloads)
        stampede(rig.broker.part, payloads)
        rig.load.acknowledged.update(keys)
    assert_whole(rig)
    for gateway in rig.gateways:
        assert gateway.metric("tidegate_gateway_connections_total") == 1


def stampede(broker: Any, payloads: dict[MessageKey, bytes]) -> None:
    """Everybody connects, says one thing, waits for its PUBACK and falls off without a word."""
    sockets = [socket.create_connection((broker.host, broker.port)) for _ in payloads]
    for sock, (key, payload) in zip(sockets, payloads.items(), strict=True):
        connect = (
            text("MQTT") + struct.pack(">BBH", 4, 0b1100_0010, 60) + text(key.device) + text(USER) + text(PASSWORD)
        )
        publish = text(f"tidegate/v1/{key.device}/readings") + b"\0\1" + payload
        sock.sendall(b"\x10%c" % len(connect) + connect + b"\x32%c" % len(publish) + publish)
    waiting, deadline = {sock: b"" for sock in sockets}, time.monotonic() + 60
    while waiting:
        assert time.monotonic() < deadline, f"{len(waiting)} of {len(sockets)} without PUBACK"
        for sock in select.select(list(waiting), [], [], 1.0)[0]:
            waiting[sock] += sock.recv(64)
            if len(waiting[sock]) >= 8:
                assert waiting.pop(sock)[4:6] == b"\x40\x02"
                sock.close()


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def test_retained_messages_come_again_flagged_and_under_one_identity(
    fault_rig: Callable[..., Any], start_all: Callable[..., None], wait_until: Any
) -> None:
    """A restart asks for none of them. A session that is new gets all, marked as replays, each time the same identity."""
    rig = fault_rig()
    plain = {"routes": [{"filter": "site/#", "decoder": "plain"}]}
    filters = ["tidegate/v1/+/readings", "site/#"]
    gateways = [rig.add(protocol, mqtt={"subscriptions": filters}, **plain) for protocol in ("5", "3.1.1")]
    start_all(rig)
    publish_retained(rig, 1000)
    for gateway in gateways:
        wait_until(lambda one=gateway: len(rig.landed(one).readings) == 1000, what="all once")
        assert gateway.terminate() == 0
    start_all(rig)
    rig.load.send(4)
    for gateway in gateways:
        wait_until(lambda one=gateway: len(rig.landed(one).readings) == 1004, what="the newest")
        assert not any(reading.retain for _, reading in rig.landed(gateway).readings)

    fresh = [rig.add(p, "-new", mqtt={"subscriptions": filters}, **plain) for p in ("5", "3.1.1")]
    for gateway in fresh:
        gateway.start()
    for gateway in fresh:
        wait_until(lambda one=gateway: len(rig.landed(one).readings) == 1000, what="all as replays")
        assert all(reading.retain for _, reading in rig.landed(gateway).readings)
    ids = Counter((r.device, r.message_id) for one in fresh for _, r in rig.landed(one).readings)
    assert len(ids) == 1000
    assert set(ids.values()) == {2}
    assert Counter(message_id[:3] for _, message_id in ids) == {"bs:": 500, "rt:": 500}
    native = {(r.device, r.message_id) for _, r in rig.landed(gateways[0]).readings if r.message_id}
    assert {name for name in ids if name[1].startswith("bs:")} <= native, "the live message had the same identity"


def publish_retained(rig: Any, count: int) -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{rig.name}-retain")
    client.username_pw_set(USER, PASSWORD)
    client.connect(rig.broker.part.host, rig.broker.part.port)
    client.loop_start()
    infos = []
    for number in range(count // 2):
        body = b'{"boot":1,"seq":%d,"values":{"temp":21.5}}' % number
        infos.append(client.publish(f"tidegate/v1/{rig.name}-r{number}/readings", body, qos=1, retain=True))
        infos.append(client.publish(f"site/{rig.name}-r{number}/temp", b"21.5", qos=1, retain=True))
    for info in infos:
        info.wait_for_publish(20)
    client.disconnect()
    client.loop_stop()


def test_the_gauge_of_the_session_falls_while_the_broker_hangs_and_rises_again(
    fault_rig: Callable[..., Any], start_all: Callable[..., None], assert_whole: Callable[..., Any], wait_until: Any
) -> None:
    """Within twice the keepalive, of 5 s here: what an alert on a lost session is told in a hang."""
    rig = fault_rig()
    for protocol in ("5", "3.1.1"):
        rig.add(protocol)
    start_all(rig)
    rig.load.send(20)
    assert_whole(rig)

    rig.broker.hold()
    try:
        for gateway in rig.gateways:
            wait_until(
                lambda one=gateway: one.metric("tidegate_gateway_connected") == 0, seconds=20, what="the gauge to fall"
            )
        # Each try meets a broker that takes the connection and says nothing: that is no session.
        for gateway in rig.gateways:
            wait_until(lambda one=gateway: one.log().count("MQTT session:") >= 2, what="a vain try")
            assert gateway.metric("tidegate_gateway_connected") == 0
    finally:
        rig.broker.resume_process()
    for gateway in rig.gateways:
        wait_until(lambda one=gateway: one.metric("tidegate_gateway_connected") == 1, what="the gauge to rise")
    rig.load.send(20)
    assert_whole(rig)

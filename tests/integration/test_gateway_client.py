"""The MQTT session against a broker scripted byte by byte, in MQTT 3.1.1 and 5 alike: what is acknowledged, whatever comes."""

from typing import Any

import pytest

from tests.support.scripted_broker import CONNECT, PUBACK, SUBSCRIBE
from tests.support.session import SessionRig, mids

pytestmark = pytest.mark.promise("P2")


def test_pubacks_go_out_in_the_order_given_and_only_for_their_epoch(scripted_broker: Any, mqtt_rig: SessionRig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    for mid in (5, 6, 7):
        link.publish(b"t", b"%d" % mid, mid)
    mqtt_rig.until(lambda: len(mqtt_rig.heard.messages) == 3)
    [epoch] = mqtt_rig.heard.epochs
    assert link.quiet() == [], "manual acknowledgement: nothing goes out by itself"
    assert mqtt_rig.session.acknowledge(epoch, mids(5, 6, 7)) == 3
    assert [link.packet(PUBACK).mid for _ in range(3)] == [5, 6, 7]
    assert mqtt_rig.session.acknowledge(epoch - 1, mids(5)) == 0
    assert link.quiet() == []


def test_a_late_report_never_acknowledges_the_message_that_reuses_its_identifier(
    scripted_broker: Any, mqtt_rig: SessionRig
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"t", b"first", 1)
    mqtt_rig.until(lambda: mqtt_rig.heard.messages)
    old = mqtt_rig.heard.epochs[0]
    link.close()
    mqtt_rig.until(lambda: mqtt_rig.heard.losses)
    assert mqtt_rig.session.acknowledge(old, mids(1)) == 0, "not while there is no connection"
    link = scripted_broker.accept()
    link.packet(CONNECT)
    assert mqtt_rig.session.acknowledge(old, mids(1)) == 0, "not before CONNACK: it would come ahead of the session"
    link.connack()
    link.suback(link.packet(SUBSCRIBE).mid)
    link.publish(b"t", b"another message", 1)
    mqtt_rig.until(lambda: len(mqtt_rig.heard.messages) == 2)
    assert mqtt_rig.session.acknowledge(old, mids(1)) == 0
    assert link.quiet() == []
    assert mqtt_rig.heard.epochs[1] > old


def test_messages_right_behind_connack_belong_to_the_new_epoch_and_can_be_acknowledged(
    scripted_broker: Any, mqtt_rig: SessionRig
) -> None:
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack(session_present=True)
    link.publish(b"t", b"queued", 1, dup=True)
    mqtt_rig.until(lambda: mqtt_rig.heard.messages)
    assert mqtt_rig.heard.messages[0].dup
    assert mqtt_rig.session.acknowledge(mqtt_rig.heard.epochs[0], mids(1)) == 1, (
        "even before the subscription is confirmed"
    )


def test_a_failing_callback_neither_kills_the_loop_nor_repeats_the_packet(
    scripted_broker: Any, mqtt_rig: SessionRig
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    mqtt_rig.until(lambda: mqtt_rig.session.connected)
    mqtt_rig.heard.fail_on = b"poison"
    link.publish(b"t", b"poison", 1)
    link.wait_closed()
    assert mqtt_rig.heard.faults == ["receive"]
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    link.publish(b"t", b"poison", 1, dup=True)
    link.publish(b"t", b"after", 2)
    mqtt_rig.until(lambda: len(mqtt_rig.heard.messages) == 2)
    assert [message.payload for message in mqtt_rig.heard.messages] == [b"poison", b"after"]


@pytest.mark.parametrize(
    "packet",
    [b"\x32\x01\x00", b"\x32\x03\x00\xff\x61", b"\x30\x00", b"\x90\x00", b"\xf0\x80\x80\x80\x80\x01", b"\x40\x01\x00"],
    ids=["short", "topic past the end", "empty publish", "empty suback", "endless length", "short puback"],
)
def test_a_malformed_packet_costs_the_connection_and_nothing_more(
    scripted_broker: Any, mqtt_rig: SessionRig, packet: bytes
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"t", b"before", 1)
    mqtt_rig.until(lambda: mqtt_rig.heard.messages)
    link.send(packet)
    link.wait_closed()
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    link.publish(b"t", b"before", 1, dup=True)
    mqtt_rig.until(lambda: len(mqtt_rig.heard.messages) == 2)
    assert mqtt_rig.session.acknowledge(mqtt_rig.heard.epochs[-1], mids(1)) == 1


def test_a_stream_without_end_leaves_time_for_reports_and_keepalive(scripted_broker: Any, mqtt_rig: SessionRig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    mqtt_rig.until(lambda: mqtt_rig.session.connected)
    for mid in range(1, 41):
        link.publish(b"t", b"x" * 5000, mid)
    most, seen = 0, 0
    while len(mqtt_rig.heard.messages) < 40:
        mqtt_rig.pump()
        most, seen = max(most, len(mqtt_rig.heard.messages) - seen), len(mqtt_rig.heard.messages)
        assert mqtt_rig.session.read_bytes <= 65536
    assert most <= 14, "a pass takes one chunk"

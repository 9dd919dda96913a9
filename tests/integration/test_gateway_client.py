"""The MQTT session against a broker scripted byte by byte, in MQTT 3.1.1 and 5 alike."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.chunk_client import why_not
from gateway.client import MqttSession
from gateway.reconnect import QUICK_LOSSES
from gateway.session_events import Incoming, Received, SessionEvents
from gateway.settings import MqttSettings
from ingest.contract.errors import ConfigError, FatalError

CONNECT, PUBACK, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT = 1, 4, 8, 10, 14


def received(message: Incoming) -> Received:
    """A plain message with the fields that it leaves out."""
    if isinstance(message, Received):
        return message
    return Received(message[0], message[1], int.from_bytes(message[2], "big"), 1)


def mids(*numbers: int) -> list[bytes]:
    return [number.to_bytes(2, "big") for number in numbers]


class Heard(SessionEvents):
    """Remembers what the session told, and may fail where a test wants it to."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.lost_sessions: list[bool] = []
        self.messages: list[Received] = []
        self.losses: list[str] = []
        self.faults: list[str] = []
        self.fail_on: bytes | None = None

    def connected(self, epoch: int, *, session_lost: bool) -> None:
        self.epochs.append(epoch)
        self.lost_sessions.append(session_lost)

    def disconnected(self, why: str) -> None:
        self.losses.append(why)

    def received(self, messages: list[Incoming]) -> None:
        for message in messages:
            if message[1] == self.fail_on:
                self.fail_on = None
                raise RuntimeError("scripted")
            self.messages.append(received(message))

    def failed(self, stage: str) -> None:
        self.faults.append(stage)


class Rig:
    def __init__(self, broker: Any, **settings: Any) -> None:
        self.heard = Heard()
        self.settings = MqttSettings.model_validate(
            {
                "port": broker.port,
                "protocol": broker.protocol,
                "subscriptions": ("#",),
                "reconnect_max_seconds": 0.05,
                "client_id": "gate",
                **settings,
            }
        )
        self.ahead = 0.0
        self.session = MqttSession(
            self.settings, window=100, events=self.heard, clock=lambda: time.monotonic() + self.ahead
        )
        broker.pump = self.pump

    def pump(self) -> None:
        self.session.loop(0.005)

    def until(self, condition: Callable[[], Any], what: str = "the condition") -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come true"
            self.pump()


@pytest.fixture
def rig(scripted_broker: Any) -> Iterator[Rig]:
    made = Rig(scripted_broker)
    yield made
    made.session.drop("end of test")


def test_connects_with_a_session_that_stays(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    connect = link.packet(CONNECT).body
    level, flags = connect[6], connect[7]
    assert flags & 2 == 0, "clean start would throw the queue away"
    if scripted_broker.protocol == "5":
        assert level == 5
        assert b"\x11" + (7 * 24 * 3600).to_bytes(4, "big") in connect, (
            "without it the session ends with the connection"
        )
        assert b"\x21" + (100).to_bytes(2, "big") in connect, "Receive Maximum is the window"
        assert b"\x27" not in connect[10:25], "no Maximum Packet Size: a larger packet would be dropped unseen"
    else:
        assert level == 4
    link.connack()
    subscribe = link.packet(SUBSCRIBE)
    options = subscribe.body[-1]
    assert options & 3 == 1, "QoS 1, never 2"
    if scripted_broker.protocol == "5":
        assert options & 4, "No Local"
        assert options & 8 == 0, "the broker's retain flag, so that it marks replays"
        assert options & 0x30 == 0x10, "retained messages only for a new subscription"
    link.suback(subscribe.mid)
    rig.until(lambda: rig.session.connected, "connected")


def test_subscribes_anew_only_where_the_session_is_gone_or_unknown(scripted_broker: Any, rig: Rig) -> None:
    first = scripted_broker.accept()
    first.handshake()
    rig.until(lambda: rig.session.connected)
    first.close()
    second = scripted_broker.accept()
    second.packet(CONNECT)
    second.connack(session_present=True)
    rig.until(lambda: rig.session.connected)
    assert second.quiet() == []
    second.close()
    third = scripted_broker.accept()
    third.handshake(session_present=False)
    rig.until(lambda: rig.session.connected)
    assert rig.heard.lost_sessions == [False, False, True]


def test_a_restart_remembers_the_filters_and_takes_back_those_that_went(scripted_broker: Any, tmp_path: Path) -> None:
    kept = str(tmp_path / "session.json")
    first = Rig(scripted_broker, session_file=kept, subscriptions=("a/#", "b/#"))
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack()
    link.suback(link.packet(SUBSCRIBE).mid, 1, 1)
    first.until(lambda: first.session.connected)
    first.session.close()

    again = Rig(scripted_broker, session_file=kept, subscriptions=("a/#", "b/#"))
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack(session_present=True)
    again.until(lambda: again.session.connected)
    assert link.quiet() == []
    again.session.close()

    changed = Rig(scripted_broker, session_file=kept, subscriptions=("a/#", "c/{x}/y"))
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack(session_present=True)
    assert b"b/#" in link.packet(UNSUBSCRIBE).body
    assert b"c/+/y" in link.packet(SUBSCRIBE).body
    changed.session.drop("end of test")


def test_pubacks_go_out_in_the_order_given_and_only_for_their_epoch(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    for mid in (5, 6, 7):
        link.publish(b"t", b"%d" % mid, mid)
    rig.until(lambda: len(rig.heard.messages) == 3)
    [epoch] = rig.heard.epochs
    assert link.quiet() == [], "manual acknowledgement: nothing goes out by itself"
    assert rig.session.acknowledge(epoch, mids(5, 6, 7)) == 3
    assert [link.packet(PUBACK).mid for _ in range(3)] == [5, 6, 7]
    assert rig.session.acknowledge(epoch - 1, mids(5)) == 0
    assert link.quiet() == []


def test_a_late_report_never_acknowledges_the_message_that_reuses_its_identifier(
    scripted_broker: Any, rig: Rig
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"t", b"first", 1)
    rig.until(lambda: rig.heard.messages)
    old = rig.heard.epochs[0]
    link.close()
    rig.until(lambda: rig.heard.losses)
    assert rig.session.acknowledge(old, mids(1)) == 0, "not while there is no connection"
    link = scripted_broker.accept()
    link.packet(CONNECT)
    assert rig.session.acknowledge(old, mids(1)) == 0, "not before CONNACK: it would come ahead of the session"
    link.connack()
    link.suback(link.packet(SUBSCRIBE).mid)
    link.publish(b"t", b"another message", 1)
    rig.until(lambda: len(rig.heard.messages) == 2)
    assert rig.session.acknowledge(old, mids(1)) == 0
    assert link.quiet() == []
    assert rig.heard.epochs[1] > old


def test_messages_right_behind_connack_belong_to_the_new_epoch_and_can_be_acknowledged(
    scripted_broker: Any, rig: Rig
) -> None:
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack(session_present=True)
    link.publish(b"t", b"queued", 1, dup=True)
    rig.until(lambda: rig.heard.messages)
    assert rig.heard.messages[0].dup
    assert rig.session.acknowledge(rig.heard.epochs[0], mids(1)) == 1, "even before the subscription is confirmed"


def test_a_failing_callback_neither_kills_the_loop_nor_repeats_the_packet(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.until(lambda: rig.session.connected)
    rig.heard.fail_on = b"poison"
    link.publish(b"t", b"poison", 1)
    link.wait_closed()
    assert rig.heard.faults == ["receive"]
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    link.publish(b"t", b"poison", 1, dup=True)
    link.publish(b"t", b"after", 2)
    rig.until(lambda: len(rig.heard.messages) == 2)
    assert [message.payload for message in rig.heard.messages] == [b"poison", b"after"]


@pytest.mark.parametrize(
    "packet",
    [b"\x32\x01\x00", b"\x32\x03\x00\xff\x61", b"\x30\x00", b"\x90\x00", b"\xf0\x80\x80\x80\x80\x01", b"\x40\x01\x00"],
    ids=["short", "topic past the end", "empty publish", "empty suback", "endless length", "short puback"],
)
def test_a_malformed_packet_costs_the_connection_and_nothing_more(
    scripted_broker: Any, rig: Rig, packet: bytes
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"t", b"before", 1)
    rig.until(lambda: rig.heard.messages)
    link.send(packet)
    link.wait_closed()
    link = scripted_broker.accept()
    link.handshake(session_present=True)
    link.publish(b"t", b"before", 1, dup=True)
    rig.until(lambda: len(rig.heard.messages) == 2)
    assert rig.session.acknowledge(rig.heard.epochs[-1], mids(1)) == 1


def test_a_topic_that_is_no_utf_8_comes_through_as_bytes(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"a/\xff\xfe", b"x", 3)
    rig.until(lambda: rig.heard.messages)
    assert rig.heard.messages[0].topic == b"a/\xff\xfe"
    assert rig.heard.faults == []


def test_user_properties_name_the_message_and_its_trace(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"t", b"x", 1, user_properties=(("message-id", "m-1"), ("traceparent", "tp"), ("other", "o")))
    rig.until(lambda: rig.heard.messages)
    [message] = rig.heard.messages
    wanted = ("m-1", "tp") if scripted_broker.protocol == "5" else (None, None)
    assert (message.message_id, message.trace) == wanted


def test_wrong_credentials_are_a_sentence_and_a_pause_not_an_end(scripted_broker: Any) -> None:
    rig = Rig(scripted_broker, username="tide", password="wrong")
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack(reason=0x86 if scripted_broker.protocol == "5" else 4)
    rig.until(lambda: rig.heard.losses)
    assert "refuses user tide" in rig.heard.losses[0]
    assert "mqtt.password" in rig.session.detail
    assert "wrong" not in rig.session.detail
    assert rig.heard.epochs == []
    scripted_broker.accept().handshake()
    rig.until(lambda: rig.session.connected)


def test_a_refused_subscription_is_told(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack()
    link.suback(link.packet(SUBSCRIBE).mid, 0x87 if scripted_broker.protocol == "5" else 0x80)
    rig.until(lambda: rig.heard.losses)
    assert "refuses the subscription to #" in rig.heard.losses[0]


def test_a_taken_over_session_ends_the_process_instead_of_a_fight(scripted_broker: Any, rig: Rig) -> None:
    if scripted_broker.protocol != "5":
        pytest.skip("MQTT 3.1.1 has no packet for it")
    link = scripted_broker.accept()
    link.handshake()
    rig.until(lambda: rig.session.connected)
    link.send(b"\xe0\x02\x8e\x00")
    with pytest.raises(FatalError, match="another MQTT client uses client id 'gate'"):
        rig.until(lambda: False)


def test_a_link_that_breaks_again_and_again_is_told_and_never_ends_the_process(scripted_broker: Any, rig: Rig) -> None:
    for _ in range(QUICK_LOSSES + 2):
        link = scripted_broker.accept()
        link.handshake()
        rig.until(lambda: rig.session.connected)
        link.close()
        rig.until(lambda: not rig.session.connected)
    assert "the link is bad, or another client uses client id 'gate'" in rig.session.detail
    scripted_broker.accept().handshake()
    rig.until(lambda: rig.session.connected)


def test_a_broker_that_says_nothing_is_left_after_the_handshake_time(
    scripted_broker: Any, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.client.HANDSHAKE_SECONDS", 0.2)
    scripted_broker.accept()
    rig.until(lambda: rig.heard.losses)
    assert "did not answer" in rig.heard.losses[0]


def test_a_broker_that_is_not_there_is_a_sentence(scripted_broker: Any) -> None:
    rig = Rig(scripted_broker)
    scripted_broker.close()
    rig.until(lambda: rig.heard.losses)
    assert f"cannot reach the MQTT broker at 127.0.0.1:{scripted_broker.port}" in rig.session.detail


def test_close_says_disconnect(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.until(lambda: rig.session.connected)
    rig.session.close()
    scripted_broker.pump = lambda: None
    link._pump = lambda: None
    assert link.packet(DISCONNECT).kind == DISCONNECT


def test_a_character_that_mqtt_allows_and_paho_refuses_costs_no_connection(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    odd = (("note\ufeff", "\ufeffx"), ("message-id", "m\ufeff1"))
    link.publish(b"t", b"first", 1, user_properties=odd)
    link.publish(b"t", b"second", 2)
    rig.until(lambda: len(rig.heard.messages) == 2)
    assert rig.session.acknowledge(rig.heard.epochs[0], mids(1, 2)) == 2
    assert rig.heard.losses == rig.heard.faults == []
    if scripted_broker.protocol == "5":
        assert rig.heard.messages[0].message_id == "m\ufeff1"


def test_thousands_of_properties_are_one_message(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"t", b"many", 1, user_properties=(("message-id", "m-1"), *[("", "")] * 16_000))
    rig.until(lambda: rig.heard.messages)
    [message] = rig.heard.messages
    assert message.payload == b"many"
    assert message.message_id == ("m-1" if scripted_broker.protocol == "5" else None)
    assert rig.heard.faults == []


def test_a_message_at_qos_2_that_nobody_asked_for_ends_the_connection_aloud(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.until(lambda: rig.session.connected)
    link.send(b"\x34\x07\x00\x01t\x00\x01\x00x")
    link.wait_closed()
    assert "QoS 2" in rig.heard.losses[0]
    assert rig.heard.messages == []


def test_another_paho_is_used_as_it_is_with_a_warning(
    scripted_broker: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.chunk_client.paho_version", "2.3.0")
    rig = Rig(scripted_broker)
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"t", b"x", 1, user_properties=(("message-id", "m-1"),))
    link.publish(b"a/\xff", b"y", 2)
    rig.until(lambda: len(rig.heard.messages) == 2)
    assert "paho-mqtt 2.3.0" in caplog.text
    first, second = rig.heard.messages
    assert (first.topic, first.payload, first.mid, first.qos) == (b"t", b"x", 1, 1)
    assert first.message_id == ("m-1" if scripted_broker.protocol == "5" else None)
    assert second.topic == b"a/\xff"
    rig.session.drop("end of test")


def test_a_paho_that_lacks_a_member_is_used_as_it_is(
    scripted_broker: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert why_not() is None, "the pinned paho is the one that this was proved with"
    monkeypatch.setattr("gateway.chunk_client._METHODS", ("_packet_queue", "_gone_in_some_release"))
    rig = Rig(scripted_broker)
    assert "lacks _gone_in_some_release" in caplog.text
    link = scripted_broker.accept()
    link.handshake()
    for mid in (1, 2):
        link.publish(b"t", b"x", mid)
    rig.until(lambda: len(rig.heard.messages) == 2)
    assert link.quiet() == []
    assert rig.session.acknowledge(rig.heard.epochs[0], mids(1, 2)) == 2
    assert [link.packet(PUBACK).mid for _ in range(2)] == [1, 2]
    rig.session.drop("end of test")


def test_a_stream_without_end_leaves_time_for_reports_and_keepalive(scripted_broker: Any, rig: Rig) -> None:
    link = scripted_broker.accept()
    link.handshake()
    rig.until(lambda: rig.session.connected)
    for mid in range(1, 41):
        link.publish(b"t", b"x" * 5000, mid)
    most, seen = 0, 0
    while len(rig.heard.messages) < 40:
        rig.pump()
        most, seen = max(most, len(rig.heard.messages) - seen), len(rig.heard.messages)
        assert rig.session.read_bytes <= 65536
    assert most <= 14, "a pass takes one chunk"


def test_a_session_lost_between_two_processes_is_told(scripted_broker: Any, tmp_path: Path) -> None:
    def connect_once() -> list[bool]:
        rig = Rig(scripted_broker, session_file=str(tmp_path / "session.json"))
        scripted_broker.accept().handshake(session_present=False)
        rig.until(lambda: rig.session.connected)
        rig.session.drop("as by kill -9")
        return rig.heard.lost_sessions

    assert connect_once() == [False]
    assert connect_once() == [True]


def test_a_subscription_granted_at_qos_0_is_told_on_every_connection(
    scripted_broker: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(scripted_broker, session_file=str(tmp_path / "session.json"))
    for present in (False, True):
        link = scripted_broker.accept()
        link.packet(CONNECT)
        link.connack(session_present=present)
        link.suback(link.packet(SUBSCRIBE).mid, 0)
        rig.until(lambda: rig.session.connected)
        assert "grants # at QoS 0 only" in rig.session.detail
        link.close()
        rig.until(lambda: not rig.session.connected)
    assert caplog.text.count("grants # at QoS 0 only") == 2
    rig.session.drop("end of test")


def test_a_missing_ca_file_is_a_wrong_setting_not_a_broker_out_of_reach(scripted_broker: Any, tmp_path: Path) -> None:
    for name in ("none.pem", "no.pem"):
        (tmp_path / "no.pem").write_text("no certificate")
        with pytest.raises(ConfigError, match=r"mqtt\.ca_file") as caught:
            Rig(scripted_broker, tls=True, ca_file=str(tmp_path / name))
        assert caught.value.exit_code == 78

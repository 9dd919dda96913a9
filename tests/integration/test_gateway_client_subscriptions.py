"""The MQTT session against a scripted broker: what is subscribed when, and what the broker says to it."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted_broker import CONNECT, SUBSCRIBE, UNSUBSCRIBE
from tests.support.session import SessionRig


def test_subscribes_anew_only_where_the_session_is_gone_or_unknown(scripted_broker: Any, mqtt_rig: SessionRig) -> None:
    first = scripted_broker.accept()
    first.handshake()
    mqtt_rig.until(lambda: mqtt_rig.session.connected)
    first.close()
    second = scripted_broker.accept()
    second.packet(CONNECT)
    second.connack(session_present=True)
    mqtt_rig.until(lambda: mqtt_rig.session.connected)
    assert second.quiet() == []
    second.close()
    third = scripted_broker.accept()
    third.handshake(session_present=False)
    mqtt_rig.until(lambda: mqtt_rig.session.connected)
    assert mqtt_rig.heard.lost_sessions == [False, False, True]


def test_a_restart_remembers_the_filters_and_takes_back_those_that_went(scripted_broker: Any, tmp_path: Path) -> None:
    kept = str(tmp_path / "session.json")
    first = SessionRig(scripted_broker, session_file=kept, subscriptions=("a/#", "b/#"))
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack()
    link.suback(link.packet(SUBSCRIBE).mid, 1, 1)
    first.until(lambda: first.session.connected)
    first.session.close()

    again = SessionRig(scripted_broker, session_file=kept, subscriptions=("a/#", "b/#"))
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack(session_present=True)
    again.until(lambda: again.session.connected)
    assert link.quiet() == []
    again.session.close()

    changed = SessionRig(scripted_broker, session_file=kept, subscriptions=("a/#", "c/{x}/y"))
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack(session_present=True)
    assert b"b/#" in link.packet(UNSUBSCRIBE).body
    assert b"c/+/y" in link.packet(SUBSCRIBE).body
    changed.session.drop("end of test")


def test_a_refused_subscription_is_told(scripted_broker: Any, mqtt_rig: SessionRig) -> None:
    link = scripted_broker.accept()
    link.packet(CONNECT)
    link.connack()
    link.suback(link.packet(SUBSCRIBE).mid, 0x87 if scripted_broker.protocol == "5" else 0x80)
    mqtt_rig.until(lambda: mqtt_rig.heard.losses)
    assert "refuses the subscription to #" in mqtt_rig.heard.losses[0]


def test_a_session_lost_between_two_processes_is_told(scripted_broker: Any, tmp_path: Path) -> None:
    def connect_once() -> list[bool]:
        rig = SessionRig(scripted_broker, session_file=str(tmp_path / "session.json"))
        scripted_broker.accept().handshake(session_present=False)
        rig.until(lambda: rig.session.connected)
        rig.session.drop("as by kill -9")
        return rig.heard.lost_sessions

    assert connect_once() == [False]
    assert connect_once() == [True]


def test_a_subscription_granted_at_qos_0_is_told_on_every_connection(
    scripted_broker: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = SessionRig(scripted_broker, session_file=str(tmp_path / "session.json"))
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

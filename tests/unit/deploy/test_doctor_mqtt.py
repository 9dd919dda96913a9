"""Findings of `doctor` about the broker, about filters and about names, from answers that are given."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploy.doctor.client_checks import check_clients, filters_of_others
from deploy.doctor.mqtt_checks import check_broker, check_filters
from deploy.local.preflight import PreflightCheck
from deploy.settings import Settings
from gateway.memory.known_gateways import is_gateway_record, known_gateways
from gateway.memory.restart_state import SessionRecord
from gateway.mqtt.broker_check import BrokerAnswer

NOW_MS = 1_800_000_000_000
SESSION = "tidegate-gateway@mqtt.example.org:8883"


def settings(**mqtt: Any) -> Settings:
    given = {"host": "mqtt.example.org", "port": 8883, "tls": True, "username": "gw", **mqtt}
    return Settings.model_validate({"mqtt": given, "stream": {"horizon_days": 8.0}})


def of(checks: Iterable[PreflightCheck], name: str) -> PreflightCheck:
    (found,) = (check for check in checks if check.name == name)
    return found


def states(checks: Iterable[PreflightCheck]) -> dict[str, str]:
    return {check.name: check.state for check in checks}


def with_fixes(checks: Iterable[PreflightCheck]) -> list[PreflightCheck]:
    """All findings; those that are not ok must have a next step."""
    found = list(checks)
    assert [check for check in found if check.state != "ok" and not check.fix] == []
    return found


def test_a_broker_whose_limits_fit_is_ok_in_every_line() -> None:
    answer = BrokerAnswer(receive_maximum=1000, max_packet_bytes=1_048_576, version="mosquitto version 2.0.11")
    found = with_fixes(check_broker(settings(), answer))
    assert set(states(found).values()) == {"ok"}
    assert "mosquitto version 2.0.11" in of(found, "mqtt login").text


def test_a_refused_login_is_the_only_finding_and_names_the_variable_of_the_password() -> None:
    (found,) = with_fixes(check_broker(settings(), BrokerAnswer(refused="the broker refuses user gw")))
    assert (found.name, found.state) == ("mqtt login", "fail")
    assert "TIDEGATE_MQTT__PASSWORD" in found.fix


def test_limits_below_the_gateways_are_warnings_with_their_setting() -> None:
    answer = BrokerAnswer(receive_maximum=20, max_packet_bytes=65_536, session_seconds=3600)
    found = with_fixes(check_broker(settings(), answer))
    assert states(found) == {
        "mqtt login": "ok", "mqtt limit": "warn", "mqtt size": "warn", "mqtt expiry": "warn", "horizon": "ok", "mqtt queue": "ok",
    }  # fmt: skip
    assert "20 unacknowledged messages" in of(found, "mqtt limit").text
    assert "gateway.max_payload_bytes" in of(found, "mqtt size").fix
    assert "for 60 min of absence" in of(found, "mqtt expiry").text
    assert of(check_broker(settings(), BrokerAnswer(session_seconds=0)), "mqtt expiry").state == "fail"


def test_a_broker_without_a_largest_packet_is_a_warning() -> None:
    found = of(check_broker(settings(), BrokerAnswer()), "mqtt size")
    assert (found.state, "256 MB" in found.text) == ("warn", True)


def test_mqtt_311_says_that_nothing_can_be_seen() -> None:
    found = with_fixes(check_broker(settings(protocol="3.1.1"), BrokerAnswer()))
    assert "mqtt size" not in states(found)
    limit = of(found, "mqtt limit")
    assert (limit.state, "cannot be seen" in limit.text, 'mqtt.protocol = "5"' in limit.fix) == ("warn", True, True)


def test_dropped_messages_and_a_short_horizon_are_warnings() -> None:
    answer = BrokerAnswer(figures={"broker_publish_messages_dropped": 12.0})
    found = with_fixes(check_broker(settings(session_expiry_seconds=14 * 86_400), answer))
    assert "dropped 12 messages" in of(found, "mqtt queue").text
    assert of(found, "horizon").fix == "Set stream.horizon_days = 15."


def test_a_password_without_tls_is_a_warning_except_on_this_machine() -> None:
    assert of(check_broker(settings(tls=False), BrokerAnswer()), "mqtt tls").state == "warn"
    assert "mqtt tls" not in states(check_broker(settings(tls=False, host="127.0.0.1"), BrokerAnswer()))
    assert "mqtt tls" not in states(check_broker(settings(tls=False, username=None), BrokerAnswer()))


def test_subscriptions_that_the_broker_does_not_grant_fail() -> None:
    answer = BrokerAnswer(denied=("a/#",), at_most_once=("b/#",), takes_wildcards=False, takes_shared=False)
    filters = ("a/#", "b/#", "$share/g/c")
    failed = [
        check for check in with_fixes(check_broker(settings(subscriptions=filters), answer)) if check.name == "filters"
    ]
    assert {check.state for check in failed} == {"fail"}
    for words in ("rejects the subscription to a/#", "b/# at QoS 0 only", "no wildcards", "$share/g/c"):
        assert [words in check.text for check in failed].count(True) == 1


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        (("site/#", "site/east/#"), "both take site/east"),
        (("a/+/c", "a/b/#"), "both take a/b/c"),
        (("$share/g/a/#",), "over several gateways"),
        (("a/#", "tidegate/receipts/#"), "takes receipts"),
    ],
)
def test_filters_that_overlap_are_warnings(filters: tuple[str, ...], words: str) -> None:
    found = with_fixes(check_filters(settings(subscriptions=filters), {}))
    assert {check.state for check in found} == {"warn"}
    assert any(words in check.text for check in found)


def test_filters_without_overlap_are_ok_and_response_topics_count() -> None:
    (found,) = check_filters(settings(subscriptions=("a/#", "b/{device}/x")), {})
    assert (found.state, "receipts" in found.text) == ("ok", False)
    (found,) = check_filters(settings(), {})
    assert (found.state, "receipts of other gateways" in found.text) == ("ok", True)
    chosen = Settings.model_validate(
        {"mqtt": {"subscriptions": ["a/#"]}, "receipts": {"response_topics": ["a/answers/+"]}}
    )
    (found,) = with_fixes(check_filters(chosen, {}))
    assert (found.state, "a/answers/" in found.text) == ("warn", True)


def test_a_filter_that_overlaps_one_of_another_running_gateway_fails() -> None:
    (found,) = with_fixes(check_filters(settings(subscriptions=("site/#",)), {"east": ("site/east/#",)}))
    assert (found.state, "running gateway east" in found.text) == ("fail", True)


def record(session: str, *, ago_s: int = 10, **more: Any) -> SessionRecord:
    return SessionRecord(session, more.pop("filters", ("#",)), NOW_MS - 1000 * ago_s, process="host/7/abc", **more)


@pytest.mark.parametrize(
    ("gateways", "state", "words"),
    [
        ({}, "ok", "not used by a running gateway"),
        ({"gw-1": record(SESSION)}, "ok", "this gateway, which runs as host/7/abc"),
        ({"other": record(SESSION)}, "fail", "gateway other uses the MQTT session"),
        ({"other": record(SESSION, ago_s=600)}, "ok", "not used"),
        ({"other": record(SESSION, stopped=True)}, "ok", "not used"),
        ({"gw-1": record("east@mqtt.example.org:8883")}, "fail", "another gateway with gateway.gateway_id gw-1"),
    ],
)
def test_a_clash_of_names_is_found_in_what_gateways_write(
    gateways: Mapping[str, SessionRecord], state: str, words: str
) -> None:
    (found,) = with_fixes(check_clients(settings(), gateways, now_ms=NOW_MS))
    assert (found.state, words in found.text) == (state, True)


def test_the_canarys_id_and_the_file_of_another_session_are_found(tmp_path: Path) -> None:
    file = tmp_path / "session.json"
    file.write_text(json.dumps({"session": "east@mqtt.example.org:8883", "filters": ["#"]}))
    chosen = settings(client_id="tidegate-canary", session_file=str(file))
    found = with_fixes(check_clients(chosen, {}, now_ms=NOW_MS))
    assert [check.state for check in found] == ["fail", "warn"]
    assert "belongs to the MQTT session east@" in found[1].text
    file.write_text("torn")
    assert [check.state for check in check_clients(settings(session_file=str(file)), {}, now_ms=NOW_MS)] == ["ok"]


def test_only_running_gateways_at_the_same_broker_lend_their_filters() -> None:
    gateways = {
        "gw-1": record(SESSION),
        "east": record("e@mqtt.example.org:8883", filters=("east/#",)),
        "gone": record("g@mqtt.example.org:8883", ago_s=1000),
        "far": record("f@elsewhere:1883"),
    }
    assert filters_of_others(settings(), gateways, now_ms=NOW_MS) == {"east": ("east/#",)}


def test_records_of_gateways_are_read_by_their_keys_and_others_are_left_out() -> None:
    value = msgspec.json.encode(record(SESSION))
    found = [
        ("tidegate/gw-1/held", value),
        ("tidegate/gw-1/numbers/3", b"{}"),
        ("tidegate/gw-2/held", b"torn"),
        ("x", b""),
    ]
    assert known_gateways(found) == {"gw-1": record(SESSION)}
    assert not is_gateway_record("sparkplug/held")

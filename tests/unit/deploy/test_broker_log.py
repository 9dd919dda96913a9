"""Clients that mosquitto's own log names: too large a packet, two clients of one id."""

from datetime import UTC, datetime

import pytest

from deploy.local.supervisor import CONTENDED_TIMES, broker_alerts

AT = datetime(2026, 11, 29, 3, 0, tzinfo=UTC).timestamp()
OVERSIZE = "2026-11-29T02:5{}:00: Client {} disconnected due to oversize packet."
CLOSING = "2026-11-29T02:55:0{}: Client {} already connected, closing old connection."


def test_a_client_with_too_large_a_packet_is_named_with_the_next_step() -> None:
    lines = [OVERSIZE.format(minute, "meter 7") for minute in (1, 2, 3)] + [OVERSIZE.format(4, "cam")]
    [alert] = broker_alerts(lines, now=AT)
    assert alert["part"] == "broker"
    assert "meter 7 (3 times), cam (1 times)" in alert["text"]
    assert "Send smaller packets" in alert["text"]


def test_it_ends_ten_minutes_after_the_last_one() -> None:
    assert broker_alerts([OVERSIZE.format(1, "m")], now=AT)
    assert not broker_alerts([OVERSIZE.format(1, "m")], now=AT + 600)


def test_a_fleet_of_them_is_counted_and_not_listed() -> None:
    [alert] = broker_alerts([OVERSIZE.format(1, f"m{number}") for number in range(40)], now=AT)
    assert "and 35 more" in alert["text"]


def test_two_clients_of_one_id_are_named_and_one_reconnect_is_not() -> None:
    lines = [CLOSING.format(second, "tidegate-gateway") for second in range(CONTENDED_TIMES)]
    [alert] = broker_alerts(lines, now=AT)
    assert f"tidegate-gateway ({CONTENDED_TIMES} times)" in alert["text"]
    assert not broker_alerts(lines[1:], now=AT)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "2026-11-29T02:55:00: New client connected from 127.0.0.1:1 as big (p2, c1, k0).",
        "2026-99-99T02:55:00: Client x disconnected due to oversize packet.",
        "Client x disconnected due to oversize packet.",
        "2026-11-29T02:55:00: Client x disconnected.",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert not broker_alerts([line], now=AT)


def test_a_hostile_client_id_cannot_control_a_terminal() -> None:
    [alert] = broker_alerts([OVERSIZE.format(1, "a\x1b[31m\x07b")], now=AT)
    assert "\x1b" not in alert["text"]
    assert "\x07" not in alert["text"]

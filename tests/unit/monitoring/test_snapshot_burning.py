"""An objective that is missed at this moment, and a machine that has nothing left for a minute."""

from typing import Any

import pytest

from monitoring.monitoring_settings import MonitoringSettings
from monitoring.sample_history import History
from monitoring.scrape import Scrape
from monitoring.snapshot.build import METRICS
from monitoring.snapshot.figures import host, objectives

START = 1_000_000.0
GATEWAY = "tidegate-gateway"


def told(rates: list[tuple[float, float]]) -> dict[str, Any]:
    """Objectives after spans of time, each of seconds and of which share of 10 messages a second was refused in it."""
    memory, now, received, refused = History(METRICS), START, 0.0, 0.0
    for seconds, bad in rates:
        for _ in range(int(seconds / 5)):
            now, received, refused = now + 5, received + 50, refused + 50 * bad
            values = {
                ("tidegate_gateway_messages_received_total", (("qos", "1"),)): received,
                ("tidegate_gateway_messages_rejected_total", (("reason", "bad_json"),)): refused,
            }
            memory.add(now, GATEWAY, Scrape(now, values))
    return objectives(memory, MonitoringSettings(validity_objective=0.98), watched_seconds=now - START)


@pytest.mark.parametrize(
    ("rates", "burns"),
    [
        ([(600, 0.0)], False),
        ([(600, 0.5)], True),
        ([(600, 0.0), (90, 0.5)], True),
        ([(600, 0.5), (90, 0.0)], False),
        ([(1000, 0.0), (10, 0.1)], False),
        ([(600, 0.01)], False),
    ],
)
def test_an_objective_burns_while_it_is_missed_now_and_not_for_a_moment(
    rates: list[tuple[float, float]], burns: bool
) -> None:
    assert told(rates)["validity"]["burns"] is burns


def test_before_anything_came_nobody_knows_whether_it_burns() -> None:
    found = objectives(History(METRICS), MonitoringSettings(), watched_seconds=0.0)
    assert [each["burns"] for each in found.values()] == [None, None]


def test_what_of_the_last_minute_was_busy_is_told_beside_the_last_half() -> None:
    memory, idle, user = History(METRICS), 0.0, 0.0
    for now in range(0, 121, 5):
        idle, user = (idle + 5, user) if now <= 75 else (idle, user + 5)
        values = {
            ("node_cpu_seconds_total", (("mode", mode),)): seconds for mode, seconds in (("idle", idle), ("user", user))
        }
        memory.add(START + now, "tidegate-monitor", Scrape(START + now, values))
    found = host(memory)
    assert found["cpu_ratio"] == 1
    assert found["cpu_minute_ratio"] == 0.75

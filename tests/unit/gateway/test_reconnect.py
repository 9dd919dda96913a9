"""How soon the broker is tried again, over simulated hours."""

import itertools

import pytest

from gateway.mqtt.backoff import FIRST_SECONDS, QUICK_LOSSES, ReconnectBackoff


def fight(seconds: float, longest_seconds: float) -> list[float]:
    """When two gateways of one client id connect: each is thrown out by the other, and no packet says why."""
    both = [ReconnectBackoff(longest_seconds), ReconnectBackoff(longest_seconds)]
    holder, now, takeovers = 0, 0.0, []
    both[0].accepted(now)
    both[0].established()
    while now < seconds:
        other = 1 - holder
        now += max(0.0, both[other].wait_seconds(now))
        takeovers.append(now)
        both[other].attempt()
        both[other].accepted(now)
        both[other].established()
        both[holder].lost(now, explained=False)
        both[holder].plan(now)
        holder = other
    return takeovers


@pytest.mark.parametrize("longest_seconds", [5.0, 30.0, 300.0])
def test_two_gateways_of_one_client_id_disturb_each_other_less_and_less_without_flaring_up(
    longest_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for draw in (min, max):
        monkeypatch.setattr("gateway.mqtt.backoff.random.uniform", lambda low, high, draw=draw: draw(low, high))
        takeovers = fight(4 * 3600, longest_seconds)
        pauses = [later - earlier for earlier, later in itertools.pairwise(takeovers)]
        settled = pauses[30:]
        assert settled
        assert min(settled) >= longest_seconds / 2


def test_a_link_that_breaks_each_minute_is_tried_again_at_once() -> None:
    reconnect = ReconnectBackoff(30.0)
    for minute in range(20):
        reconnect.attempt()
        reconnect.accepted(60.0 * minute)
        reconnect.established()
        assert not reconnect.lost(60.0 * minute + 50.0, explained=False)
        assert reconnect.plan(60.0 * minute + 50.0) <= FIRST_SECONDS


def test_a_long_connection_ends_the_suspicion() -> None:
    reconnect = ReconnectBackoff(30.0)
    now = 0.0
    for _ in range(QUICK_LOSSES + 4):
        now += 1.0
        reconnect.accepted(now)
        suspected = reconnect.lost(now + 0.1, explained=False)
        reconnect.plan(now + 0.1)
    assert suspected
    reconnect.accepted(now)
    assert not reconnect.lost(now + 3600.0, explained=False)
    assert reconnect.plan(now + 3600.0) <= FIRST_SECONDS


def test_a_fight_is_named_until_a_connection_lasts() -> None:
    reconnect, now = ReconnectBackoff(30.0), 0.0
    for _ in range(QUICK_LOSSES):
        assert not reconnect.is_suspect(now)
        now += 1.0
        reconnect.accepted(now)
        reconnect.lost(now + 0.1, explained=False)
        reconnect.plan(now + 0.1)
    assert reconnect.is_suspect(now)
    assert reconnect.is_suspect(now + 3600), "between two connections nothing has lasted"
    now += 60
    reconnect.accepted(now)
    assert reconnect.is_suspect(now + 1)
    assert not reconnect.is_suspect(now + 300)

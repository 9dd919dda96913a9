"""How the gateway learns at how many unacknowledged messages a broker stops."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.broker_window import LEVEL_HITS, LIMIT_REFILLS, LIMIT_SECONDS, BrokerWindow


def fill(window: BrokerWindow, count: int, now: float, *, quiet: float = 0.06) -> float:
    """One round of a broker that sends so many and waits."""
    window.received(count, now)
    window.acknowledged(count, now + quiet)
    return now + quiet


def learn(window: BrokerWindow, count: int) -> float:
    now = 10.0
    for _ in range(LEVEL_HITS):
        assert not window.level
        now = fill(window, count, now)
    assert window.level == count
    return now


@pytest.mark.parametrize("limit", [1, 10, 20, 32, 999])
def test_a_broker_that_stops_at_a_number_again_and_again_is_not_waited_for_above_half_of_it(limit: int) -> None:
    window = BrokerWindow(1000)
    now = learn(window, limit)
    window.received(limit // 2, now)
    assert window.is_half_full is (limit // 2 * 2 >= limit)
    window.received(limit - limit // 2, now)
    assert window.is_half_full
    assert window.gather_seconds(0.03) == 0.0


def test_a_broker_that_sends_on_ends_what_was_learned() -> None:
    window = BrokerWindow(1000)
    now = learn(window, 20)
    window.received(21, now)
    assert not window.level
    assert not window.is_half_full
    assert window.gather_seconds(0.03) == 0.03


def test_messages_at_a_pace_teach_no_limit() -> None:
    window, now, draw = BrokerWindow(1000), 10.0, random.Random(7)
    learned = 0
    for _ in range(3000):
        now += 0.03
        window.received(draw.randint(50, 70), now)
        window.acknowledged(max(0, window.held - draw.randint(50, 70)), now)
        learned += bool(window.level)
    assert learned < 30, "a chance that the next messages end"


def test_gathering_ends_when_half_of_what_the_broker_sends_is_due() -> None:
    window = BrokerWindow(1000)
    now = learn(window, 20)
    for _ in range(300):
        now += 0.002
        window.received(1, now)
        window.acknowledged(1, now)
    window.received(4, now)
    assert window.gather_seconds(1.0) == pytest.approx(6 / 500, rel=0.05)
    assert window.gather_seconds(0.005) == 0.005


@pytest.mark.parametrize(("share", "limit"), [(0.9, 20), (0.2, 0)])
def test_a_limit_counts_where_it_is_reached_most_of_the_time(share: float, limit: int) -> None:
    window = BrokerWindow(1000)
    now = learn(window, 20)
    window.judge(now + LIMIT_SECONDS)
    begin = now + LIMIT_SECONDS
    for number in range(int(LIMIT_SECONDS / 0.01) + 1):
        fill(window, 20, begin + number * 0.01, quiet=share * 0.01)
    window.judge(begin + LIMIT_SECONDS + 0.01)
    assert window.limit == limit


def test_a_broker_that_waits_while_kafka_hangs_is_not_the_limit() -> None:
    window = BrokerWindow(1000)
    now = learn(window, 20)
    window.received(20, now)
    window.judge(now + 60)
    assert window.limit == 0


def test_our_own_window_is_no_limit_of_the_broker() -> None:
    window, now = BrokerWindow(20), 0.0
    for _ in range(3 * LIMIT_REFILLS):
        now = fill(window, 20, now)
    window.judge(now + LIMIT_SECONDS)
    assert window.limit == 0


@given(
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60), st.floats(0, 0.1)), max_size=200),
)
def test_what_is_held_never_passes_the_level_that_was_learned(limit: int, steps: list[tuple[int, int, float]]) -> None:
    window, now = BrokerWindow(1000), 0.0
    for sent, acknowledged, pause in steps:
        now += pause
        window.received(min(sent, limit - window.held), now)
        window.acknowledged(min(acknowledged, window.held), now + pause)
        assert 0 <= window.held <= limit
        assert window.level == 0 or window.held <= window.level <= limit
        assert 0.0 <= window.gather_seconds(0.03) <= 0.03
    window.begin(now)
    assert (window.held, window.level, window.limit) == (0, 0, 0)

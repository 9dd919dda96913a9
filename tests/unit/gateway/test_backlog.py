"""Which messages may have waited in the broker: never one less than did, and none once the broker has sent all it kept."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.broker_backlog import PING_US, BrokerBacklog

SECOND = 1_000_000
NOW = 1_764_331_200 * SECOND


def test_a_first_connection_without_a_session_has_no_backlog() -> None:
    backlog = BrokerBacklog()
    backlog.begin(NOW, present=False)
    assert (backlog.waits_since_us(NOW + 60 * SECOND), backlog.wants_ping(NOW, 0)) == (None, False)


def test_a_kept_session_that_nobody_knows_of_may_hold_messages_of_any_age() -> None:
    backlog = BrokerBacklog()
    backlog.begin(NOW, present=True)
    assert backlog.waits_since_us(NOW) == 0
    assert backlog.reached_us(None) == 0, "and whoever comes next knows no more"


def test_since_is_the_last_word_of_the_old_connection_or_its_oldest_unacknowledged_message() -> None:
    for oldest, since in ((None, NOW + 5 * SECOND), (NOW + 2 * SECOND, NOW + 2 * SECOND)):
        backlog = BrokerBacklog()
        backlog.begin(NOW, present=False)
        backlog.received(1, 1, NOW + 4 * SECOND)
        backlog.heard(NOW + 5 * SECOND)
        backlog.end(oldest)
        backlog.end(None)  # an attempt that failed
        backlog.begin(NOW + 90 * SECOND, present=True)
        assert backlog.waits_since_us(NOW + 90 * SECOND) == since
        backlog.end(None)
        backlog.begin(NOW + 95 * SECOND, present=True)
        assert backlog.since_us == since, "what was not taken over yet is as old as before"


def test_a_blink_is_not_worth_a_word() -> None:
    backlog = BrokerBacklog()
    backlog.begin(NOW, present=False)
    backlog.end(None)
    backlog.begin(NOW + SECOND // 2, present=True)
    assert backlog.waits_since_us(NOW + SECOND // 2) is None
    assert backlog.waits_since_us(NOW + SECOND) == NOW


def test_a_window_that_stays_full_is_a_backlog_and_one_that_is_full_for_a_moment_is_none() -> None:
    backlog = BrokerBacklog()
    backlog.begin(NOW, present=False)
    for at, full in ((1, True), (1.5, True), (1.6, False), (2, True), (2.9, True)):
        backlog.hold(int(NOW + at * SECOND), full=full)
    assert backlog.since_us is None
    backlog.hold(NOW + 3 * SECOND, full=True)
    backlog.heard(NOW + 4 * SECOND)
    assert backlog.waits_since_us(NOW + 60 * SECOND) == NOW + 2 * SECOND
    assert backlog.reached_us(NOW + 7 * SECOND) == NOW + 2 * SECOND
    assert backlog.reached_us(NOW) == NOW


def test_a_client_that_cannot_ping_sees_the_end_by_a_quiet_while() -> None:
    backlog = BrokerBacklog()
    backlog.begin(NOW, present=True)
    backlog.received(3, 3, NOW + SECOND // 2)
    backlog.end_quiet_backlog(0, NOW + SECOND)
    backlog.end_quiet_backlog(1, NOW + 9 * SECOND)
    assert backlog.since_us == 0
    backlog.end_quiet_backlog(0, NOW + 9 * SECOND)
    assert backlog.since_us is None


@pytest.mark.parametrize("back", [2, 3600, 40 * 86_400])
def test_a_clock_that_is_set_back_hides_no_wait_and_stops_no_ping(back: int) -> None:
    backlog, step = BrokerBacklog(), back * SECOND
    backlog.begin(NOW, present=False)
    backlog.heard(NOW)
    backlog.end(None)
    backlog.begin(NOW + 60 * SECOND, present=True)
    backlog.pinged(1, 0)
    backlog.received(1, 1, NOW + 61 * SECOND)
    backlog.answered(1, NOW + 61 * SECOND)
    later = NOW + 62 * SECOND - step
    assert not backlog.wants_ping(later, 0)
    assert backlog.wants_ping(later + PING_US, 0)
    later += PING_US
    backlog.end(None)
    backlog.begin(later, present=True)
    since = backlog.waits_since_us(later)
    assert since is not None
    assert since <= later - SECOND, "it waited for a minute, whatever the clock says now"


def test_a_gateway_whose_clock_was_set_back_while_it_was_away_knows_no_beginning() -> None:
    backlog = BrokerBacklog()
    backlog.known_us = NOW + 3600 * SECOND
    backlog.begin(NOW, present=True)
    assert backlog.waits_since_us(NOW) == 0


@pytest.mark.parametrize("back", [2, 3600])
def test_a_full_window_and_a_quiet_while_end_after_the_clock_was_set_back(back: int) -> None:
    backlog, step = BrokerBacklog(), back * SECOND
    backlog.begin(NOW, present=False)
    backlog.hold(NOW, full=True)
    for at in (1, 2, 3):
        backlog.hold(NOW + at * SECOND - step, full=True)
    assert backlog.since_us is not None, "the window was full for three seconds"
    backlog.end_quiet_backlog(0, NOW + 4 * SECOND - step)
    assert backlog.since_us is None


class Broker:
    """Sends what it kept and what is published, in order, so many at once; answers a ping behind what it could send."""

    def __init__(self, kept: int, window: int) -> None:
        self.queue, self.window = deque(["kept"] * kept), window
        self.wire: deque[str | int] = deque()
        self.unacknowledged = self.pings = 0

    def send(self) -> None:
        while self.queue and self.unacknowledged < self.window:
            self.unacknowledged += 1
            self.wire.append(self.queue.popleft())


STEPS = st.lists(st.sampled_from(["publish", "read", "acknowledge", "turn"]), max_size=120)


@given(st.integers(0, 40), st.sampled_from([1, 2, 5, 20, 1000]), STEPS)
def test_whatever_the_order_all_that_was_kept_is_marked_and_the_backlog_ends(
    kept: int, window: int, steps: list[str]
) -> None:
    broker, backlog, now, held = Broker(kept, window), BrokerBacklog(), NOW, 0
    backlog.begin(now, present=True)
    broker.send()

    def step(name: str) -> None:
        nonlocal now, held
        now += PING_US
        if name == "publish":
            broker.queue.append("live")
            broker.send()
        elif name == "read" and broker.wire:
            came = broker.wire.popleft()
            if isinstance(came, int):
                backlog.answered(came, now)
            else:
                held += 1
                assert backlog.waits_since_us(now) == 0 or came == "live", "a message that was kept is marked"
                backlog.received(1, held, now)
        elif name == "acknowledge" and held:
            held -= 1
            broker.unacknowledged -= 1
            broker.send()
        elif name == "turn" and backlog.wants_ping(now, held):
            broker.pings += 1
            backlog.pinged(broker.pings, held)
            broker.wire.append(broker.pings)

    for name in steps:
        step(name)
    for _ in range(5 * (kept + len(steps)) + 10):
        for name in ("read", "acknowledge", "turn"):
            step(name)
    assert backlog.since_us is None


@pytest.mark.parametrize("late_ms", [5, 60, 95])
@pytest.mark.parametrize("window", [7, 100])
def test_a_broker_that_answers_at_once_and_sends_late_hides_no_wait(window: int, late_ms: int) -> None:
    """As HiveMQ and Artemis: threads of their own send messages, so a ping overtakes those that are not sent yet."""
    backlog, broker, held, pings = BrokerBacklog(), Broker(35, window), 0, 0
    backlog.begin(NOW, present=True)
    sends_at, marked = NOW + late_ms * 1000, 0
    for now in range(NOW, NOW + 3 * SECOND, 1000):
        if now == sends_at:
            broker.send()
        while broker.wire:
            came, held = broker.wire.popleft(), held + 1
            marked += came == "kept" and backlog.waits_since_us(now) == 0
            backlog.received(1, held, now)
        if held and now % 10_000 == 0:
            held = broker.unacknowledged = 0
            sends_at = now + late_ms * 1000
        if backlog.wants_ping(now, held):
            pings += 1
            backlog.pinged(pings, held)
            backlog.answered(pings, now)
        if (now - NOW) // 1000 % 100 == 50:
            broker.queue.append("live")
            sends_at = max(sends_at, now + 1000)
    assert marked == 35
    assert backlog.since_us is None

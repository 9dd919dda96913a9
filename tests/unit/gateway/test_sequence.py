import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.delivery.sequence import DAY_SECONDS, SequenceRestart, SequenceTracker


def test_gap_then_late_arrival() -> None:
    #  1 2 . . 5 3 | 3 and 4 were skipped when 5 came; 3 came late
    tracker = SequenceTracker()
    seen = [tracker.see("d", 1, seq) for seq in (1, 2, 5, 3, 3, 5)]
    assert seen == [(0, 0), (0, 0), (2, 0), (0, 1), (0, 0), (0, 0)]


def test_each_boot_and_device_counts_for_itself() -> None:
    tracker = SequenceTracker()
    tracker.see("d", 1, 100)
    assert tracker.see("d", 2, 0) == (0, 0)
    assert tracker.see("e", 1, 5) == (0, 0)
    assert tracker.see("d", 1, 102) == (1, 0)


def test_a_counter_that_wraps_begins_anew() -> None:
    tracker = SequenceTracker()
    tracker.see("d", 1, 2**32 - 1)
    assert tracker.see("d", 1, 0) == (0, 0)
    assert tracker.see("d", 1, 2) == (1, 0)


def test_memory_is_bounded_by_counters_and_ranges() -> None:
    tracker = SequenceTracker(max_counters=10, max_ranges=4)
    for number in range(1000):
        tracker.see(f"d{number}", 1, 1)
    assert len(tracker) == 10
    for seq in range(0, 1000, 2):
        tracker.see("d", 1, seq)
    assert len(tracker._devices["d"][1].missing) == 4
    tracker.see("e", 1, 0)
    tracker.see("e", 1, 10_000)
    for seq in range(2, 1000, 2):
        tracker.see("e", 1, seq)
    assert len(tracker._devices["e"][1].missing) == 4


def test_a_device_of_many_boots_crowds_out_no_other() -> None:
    tracker = SequenceTracker(max_counters=10, max_boots=3)
    for number in range(5):
        tracker.see(f"d{number}", 1, 1)
    for boot in range(1000):
        tracker.see("restless", boot, 1)
    assert len(tracker) == 8
    assert [tracker.see(f"d{number}", 1, 3) for number in range(5)] == [(1, 0)] * 5
    assert tracker.see("restless", 998, 3) == (1, 0), "the newest boots are followed"
    assert tracker.see("restless", 5, 3) == (0, 0)


@pytest.mark.parametrize("max_counters", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("max_boots", [1, 2, 4])
def test_however_small_the_bounds_are_they_hold_and_the_newest_is_followed(max_counters: int, max_boots: int) -> None:
    tracker = SequenceTracker(max_counters=max_counters, max_boots=max_boots)
    for number in range(200):
        device, boot = "ab"[number % 7 == 3], number
        tracker.see(device, boot, number)
        assert tracker.follow([(device, boot, number + 1), (device, boot, number + 3)]) == [(device, 1, 0)]
        assert len(tracker) <= max_counters


def test_the_device_that_was_silent_for_longest_goes_first() -> None:
    tracker = SequenceTracker(max_counters=3)
    for device in ("a", "b", "c", "a", "d"):
        tracker.see(device, 1, 1)
    assert [tracker.see(device, 1, 3) for device in ("a", "c", "d")] == [(1, 0)] * 3
    assert tracker.see("b", 1, 3) == (0, 0)


@given(st.permutations(range(12)), st.integers(0, 3))
def test_what_is_still_missing_is_gap_minus_reordered(order: list[int], lost: int) -> None:
    tracker = SequenceTracker()
    first, arrived = order[0], order[: len(order) - lost]
    gap = reordered = 0
    for seq in arrived:
        more = tracker.see("d", 1, seq)
        gap, reordered = gap + more[0], reordered + more[1]
    expected = set(range(first, max(arrived) + 1)) - set(arrived)
    assert gap - reordered == len(expected)


def test_a_device_that_counts_again_is_found_once() -> None:
    tracker = SequenceTracker()
    tracker.follow([("d", 7, seq) for seq in range(200)])
    assert tracker.take_restarts() == []
    tracker.follow([("d", 7, seq) for seq in range(100)])
    assert tracker.take_restarts() == [SequenceRestart("d", 7, 0, 199)]
    tracker.follow([("d", 7, seq) for seq in range(10)])
    assert tracker.take_restarts() == [SequenceRestart("d", 7, 0, 199)], "each start"
    tracker.follow([("d", 8, seq) for seq in range(10)])
    assert tracker.take_restarts() == [], "another boot is right"


def test_what_comes_again_for_another_reason_is_no_restart() -> None:
    tracker = SequenceTracker()
    tracker.follow([("d", 7, seq) for seq in range(5000)])
    redelivered = [("d", 7, seq) for seq in range(4000)]
    tracker.follow(redelivered, set(redelivered))
    tracker.follow([("d", 7, seq) for seq in range(4990, 5010)])
    tracker.follow([("d", 7, 5)] * 10)
    tracker.follow([("d", 7, 6000), ("d", 7, 5500), ("d", 7, 5501), ("d", 7, 5502)])
    assert tracker.take_restarts() == [], "the broker's copies, a device's last messages, one message, late ones"


def test_its_fill_is_the_share_of_counters_in_use() -> None:
    tracker = SequenceTracker(max_counters=4)
    assert tracker.fill == 0
    tracker.follow([("a", 1, 1), ("a", 2, 1), ("b", 1, 1)])
    assert tracker.fill == 0.75
    tracker.follow([(name, 1, 1) for name in "cdefg"])
    assert tracker.fill == 1


def test_who_was_silent_for_a_day_fills_nothing_and_is_still_known() -> None:
    tracker = SequenceTracker(max_counters=4)
    tracker.follow([(name, 1, 1) for name in "abcdef"])
    tracker.pass_time(5.0)
    assert tracker.fill == 1
    tracker.follow([("d", 1, 2)])
    tracker.pass_time(5.0 + DAY_SECONDS - 1)
    assert tracker.fill == 1, "a day is not over"
    tracker.pass_time(5.0 + DAY_SECONDS)
    assert tracker.fill == 0.25
    assert tracker.follow([("c", 1, 9)]) == [("c", 7, 0)], "its gap is seen all the same"
    tracker.follow([("g", 1, 1), ("h", 1, 1)])
    assert tracker.fill == 0.75, "silent ones made room"
    tracker.pass_time(5.0 + 2 * DAY_SECONDS)
    assert tracker.fill == 0.75
    assert tracker.forget(lambda device: device == "d") == ["d"]
    assert len(tracker) == 3

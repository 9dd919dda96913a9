"""Latencies over a run's time: each record counts once, in the interval in which it was due, whoever timed it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.kafka_load.latency import MOST_SLOTS, Latencies, OverTime, merge_latencies
from deploy.bench.suite.spread import middle_run

BEGAN = 1_700_000_000_000_000


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**6), st.booleans()), min_size=1, max_size=60),
)
def test_two_processes_make_the_same_course_as_one(records: list[tuple[int, int, bool]]) -> None:
    alone, parts = OverTime(BEGAN), (OverTime(BEGAN), OverTime(BEGAN))
    for after, latency, second in records:
        for one in (alone, parts[second]):
            one.record(BEGAN + after, latency)
    together = OverTime(BEGAN)
    for one in parts:
        together.add(one.encode())
    assert together.timed == alone.timed == len(records)
    assert together.total().get_max_value() == alone.total().get_max_value()
    assert together.columns() == alone.columns()
    assert len(alone.columns().get("seconds", [])) <= MOST_SLOTS


def test_a_stall_shows_when_its_records_were_due_and_only_there() -> None:
    course = OverTime(BEGAN)
    for number in range(
        20_000
    ):  # 20 s at 1,000 a second, of which those from 10 s to 11 s waited for the end of the stall
        after = number * 1000
        stalled = max(0, 11_000_000 - after) if after >= 10_000_000 else 0
        course.record(BEGAN + after, 1000 + stalled)
    columns = course.columns()
    slow = [seconds for seconds, worst in zip(columns["seconds"], columns["p99"], strict=True) if worst > 2]
    assert (min(slow), max(slow)) == (10.4, 11.2)
    assert max(columns["p99"]) == pytest.approx(1000, rel=0.02)
    assert columns["seconds"][-1] == pytest.approx(20, rel=0.03)
    assert min(columns["p50"]) == pytest.approx(1, rel=0.01)


def test_intervals_grow_until_their_percentiles_say_something() -> None:
    slow = OverTime(BEGAN)
    for number in range(600):  # 5 s at 120 a second
        slow.record(BEGAN + number * 8333, 1000)
    columns = slow.columns()
    assert 2 <= len(columns["seconds"]) <= 12
    few = OverTime(BEGAN)
    for number in range(30):
        few.record(BEGAN + number * 100_000, 1000)
    assert set(few.columns()["p99"]) == {None}
    assert OverTime(BEGAN).columns() == {}


def test_latencies_have_their_course_with_them() -> None:
    first, second = Latencies(BEGAN), Latencies(BEGAN)
    for number in range(400):
        first.record(2000, due_us=BEGAN + number * 1000)
        second.record(4000, 3, due_us=BEGAN + number * 1000)
    found = merge_latencies([first.encode(), second.encode()])
    assert (found.timed, found.count) == (800, 1600)
    assert found.over_time()["p50"] == pytest.approx([4.0] * 4, rel=0.01)
    assert found.figures("ack")["ack_max_ms"] == pytest.approx(4, rel=0.001)


def test_of_repeats_the_middle_one_is_shown() -> None:
    runs = [{"ack": {"seconds": [1.0], "p50": [1.0], "p99": [worst], "max": [9.0]}} for worst in (5.0, 90.0, None)]
    assert middle_run([*runs, {}, {"ack": {}}])["ack"]["p99"] == [5.0]
    assert middle_run([{}]) == {}

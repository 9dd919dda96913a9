"""The memory of the last minutes: resets, ends, gaps, and its bounds."""

import random
from math import nan

import pytest

from monitoring.sample_history import LOOKBACK_SECONDS, MOST_SERIES, History
from monitoring.scrape import Scrape

HERE = (("job", "g"),)


def told(**values: float) -> Scrape:
    return Scrape(0.0, {(name, ()): value for name, value in values.items()})


def fed(*values: float | None, every: float = 5.0, seconds: float = 1200.0) -> History:
    history = History({"n_total", "n"}, seconds=seconds)
    for step, value in enumerate(values):
        history.add(1000 + step * every, "g", None if value is None else told(n_total=value))
    return history


def test_a_counter_that_falls_was_started_anew_and_loses_nothing() -> None:
    history = fed(5, 6, 0, 1, 4)
    assert history.increase("n_total", 60) == {HERE: 1 + 4}
    assert history.rate("n_total", 60) == {HERE: 5 / 20}
    assert history.increase("n_total", 10) == {HERE: 4}


def test_one_sample_is_no_increase() -> None:
    assert fed(5).increase("n_total", 60) == {}
    assert fed(5, 6).increase("n_total", 4) == {}


def test_an_increase_reaches_over_scrapes_that_are_missing() -> None:
    assert fed(5, None, None, None, None, 7).increase("n_total", 60) == {HERE: 2}


def test_a_part_that_does_not_answer_is_down_and_its_series_end_after_ten_seconds() -> None:
    history = fed(5, None)
    assert history.latest("up") == {HERE: 0.0}
    assert history.latest("n_total") == {HERE: 5.0}, "one late answer ends nothing"
    history.add(1010, "g", None)
    assert history.latest("n_total") == {}
    assert history.latest("n_total", 1004.0) == {HERE: 5.0}, "what was then, was"
    history.add(1015, "g", told(n_total=6))
    assert history.latest("n_total") == {HERE: 6.0}


def test_one_missed_answer_of_a_part_that_is_asked_rarely_ends_nothing() -> None:
    """A JVM is asked every ten seconds."""
    history = History({"n"})
    for step, known in enumerate((True, True, False, True, False, False, False)):
        history.add(1000 + 10.02 * step, "g", told(n=1) if known else None, every_seconds=10)
        assert (history.latest("n") == {HERE: 1.0}) is (step < 6), step


def test_a_series_that_its_part_stopped_telling_ends_too() -> None:
    history = fed(5)
    for at in (1005, 1010):
        history.add(at, "g", told(n=1))
    assert (history.latest("n_total"), history.latest("n")) == ({}, {HERE: 1.0})


def test_nobody_who_asks_any_more_is_known_for_five_minutes() -> None:
    history = fed(5)
    history.add(1000 + LOOKBACK_SECONDS, "other", None)
    assert history.latest("n_total") == {HERE: 5.0}
    history.add(1001 + LOOKBACK_SECONDS, "other", None)
    assert history.latest("n_total") == {}


def test_nan_is_no_value() -> None:
    assert fed(nan).latest("n_total") == {}


def test_only_what_is_asked_for_is_kept_by_labels_and_instance() -> None:
    history = History({"n_total"})
    sample = {("n_total", (("reason", reason),)): 1.0 for reason in ("a", "b")} | {("other", ()): 1.0}
    for instance in ("h:1", "h:2"):
        history.add(1000, "g", Scrape(0.0, sample), instance=instance)
    assert len(history.latest("n_total")) == 4
    assert list(history.latest("n_total", reason="a", instance="h:2")) == [
        (("instance", "h:2"), ("job", "g"), ("reason", "a"))
    ]
    assert history.latest("other") == {}


def test_quantiles_are_of_what_was_observed_within_the_window() -> None:
    history = History({"t_seconds_bucket"})
    for at, small, large in ((1000, 100, 100), (1010, 100, 110)):
        values = {
            ("t_seconds_bucket", (("le", bound),)): float(count)
            for bound, count in (("0.1", small), ("0.2", large), ("+Inf", large))
        }
        history.add(at, "c", Scrape(0.0, values))
    found = history.quantiles("t_seconds", 60, (0.5, 1.0))
    assert found is not None
    assert [round(value, 3) for value in found] == [0.15, 0.2]
    assert history.quantiles("t_seconds", 5, (0.5,)) is None
    assert history.quantiles("t_seconds", 60, (0.5,), job="other") is None


@pytest.mark.parametrize("every", [0.1, 0.5, 2.0, 10.0])
def test_memory_is_bounded_by_time_however_often_somebody_looks(every: float) -> None:
    history = History({"n_total"}, seconds=120)
    for step in range(5000):
        history.add(1000 + step * every, "g", told(n_total=float(step)))
    (series,) = (series for known in [history._series["n_total"]] for series in known.values())
    assert len(series.at) <= (120 + 60) / 1.5 + 2
    assert history.increase("n_total", 60)[HERE] * every == pytest.approx(60, abs=max(2 * every, 2))


def test_a_target_with_too_many_series_does_not_fill_the_memory_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    history = History({"n_total"})
    flood = {("n_total", (("x", str(number)),)): 1.0 for number in range(2 * MOST_SERIES)}
    history.add(1000, "g", Scrape(0.0, flood))
    history.add(1002, "g", Scrape(0.0, flood))
    assert len(history.latest("n_total")) <= MOST_SERIES
    (said,) = caplog.messages
    assert "keeps 4000 series" in said
    assert "n_total of g" in said


def test_what_is_old_is_forgotten() -> None:
    history = fed(5, seconds=120)
    for at in range(1000, 1400, 10):
        history.add(at, "other", told(n=1))
    assert "g" not in str(history._series["n_total"])
    assert not history._of_source[HERE]


def test_a_clock_that_is_set_back_begins_the_memory_anew() -> None:
    history = fed(5, 6)
    history.add(1004, "g", told(n_total=7))
    assert history.latest("n_total") == {HERE: 6.0}, "a moment is passed over"
    for at in (100, 105):
        history.add(at, "g", told(n_total=float(at)))
    assert history.latest("n_total") == {HERE: 105.0}
    assert history.increase("n_total", 60) == {HERE: 5.0}


def test_an_increase_is_the_sum_of_its_steps() -> None:
    rng = random.Random(6)
    counts, expected = [10.0], 0.0
    for _ in range(100):
        step = rng.choice([0, 1, 5])
        restarted = rng.random() < 0.1
        expected += step
        counts.append(float(step) if restarted else counts[-1] + step)
        if restarted and step >= counts[-2]:
            expected -= counts[-2]
    assert fed(*counts).increase("n_total", 10_000)[HERE] == pytest.approx(expected)

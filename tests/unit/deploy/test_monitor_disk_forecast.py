"""When the disk will be full: what happens once is no pace, and what comes and goes within the hour is none either."""

import math
from collections.abc import Callable

import pytest

from deploy.monitor.host_probe import SAMPLE_SECONDS, DiskForecast, days_to_full

GIB = 2.0**30
HOUR = 3600.0
DAY = 24 * HOUR
Use = Callable[[float], float]


def samples(use: Use, hours: float = 6.0) -> list[tuple[float, float]]:
    return [(step * SAMPLE_SECONDS, use(step * SAMPLE_SECONDS)) for step in range(int(hours * 6) + 1)]


def steady(second: float) -> float:
    """A GiB an hour."""
    return second / HOUR * GIB


def test_a_steady_pace_is_the_pace() -> None:
    assert days_to_full(samples(steady), 48 * GIB) == pytest.approx(2.0)
    assert days_to_full(samples(lambda second: -steady(second)), 48 * GIB) == math.inf
    assert days_to_full(samples(lambda _: 7 * GIB), 48 * GIB) == math.inf


@pytest.mark.parametrize("hours", [3.0, 3.5, 4.0, 5.0, 6.0])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.7, 0.95])
@pytest.mark.parametrize("jump", [200 * GIB, -200 * GIB])
def test_a_file_that_was_copied_or_deleted_once_is_no_pace(hours: float, share: float, jump: float) -> None:
    """Neither half of the free space filled by one copy, nor growth that one deletion would hide."""

    def use(second: float) -> float:
        return 500 * GIB + steady(second) + (jump if second > share * hours * HOUR else 0.0)

    assert days_to_full(samples(use, hours), 240 * GIB) == pytest.approx(10.0)


def test_what_is_written_twice_and_cleaned_up_each_hour_counts_once() -> None:
    """Joins write what is there already once more; the vacuum takes it away once an hour."""

    def use(second: float) -> float:
        return steady(second) + 5 * GIB * (second % HOUR) / HOUR

    assert days_to_full(samples(use), 48 * GIB) == pytest.approx(2.0)


def test_a_pace_that_rises_is_seen_within_hours() -> None:
    def use(second: float) -> float:
        return steady(second) + 20 * steady(max(0.0, second - 2.5 * HOUR))

    assert (days_to_full(samples(use), 48 * GIB) or 0) < 0.2


def test_the_first_hours_say_nothing_of_the_days_to_come() -> None:
    """Caches and a backlog fill the disk faster than anything does later."""

    def use(second: float) -> float:
        return 100 * steady(min(second, HOUR)) + steady(second)

    assert days_to_full([], GIB) is None
    assert days_to_full(samples(use, 2.8), 48 * GIB) is None
    assert days_to_full(samples(use, 3.2), 48 * GIB) == pytest.approx(2.0)


def test_each_disk_is_remembered_for_itself_and_no_longer_than_the_window() -> None:
    forecast = DiskForecast()

    def days(mount: str, use: Use, second: float) -> float | None:
        return forecast.days(mount, used=use(second), free=48 * GIB, now=1e6 + second)

    looks = [5.0 * step for step in range(int(4 * HOUR / 5))]
    told = [(days("/", steady, second), days("/kafka", lambda _: GIB, second)) for second in looks]
    assert told[0] == (None, None)
    assert told[-1] == (pytest.approx(2.0, rel=0.01), math.inf)
    assert len(forecast._used["/"]) == 24
    # The machine slept: what was before it is no pace of now.
    assert days("/", steady, 3 * DAY) is None
    assert len(forecast._used["/"]) == 1

"""A clock that is wrong deletes nothing: not ahead, not back, not over a restart."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.clock import DeletionClock, newest_plausible, today_of
from lakehouse.maintenance import SPARED_DAYS, TableState, expired_files, newest_landed, plan_expiry

TODAY = date(2026, 11, 29)
YEAR = timedelta(days=365)


def days_before(count: int, end: date = TODAY) -> list[date]:
    return [end - timedelta(days=n) for n in reversed(range(count))]


def state(days: list[date], name: str = "readings", sizes: list[int] | None = None) -> TableState:
    columns: dict[str, Any] = {
        "path": [f"date={day}/{n}.parquet" for n, day in enumerate(days)],
        "size_bytes": pa.array(sizes or [100] * len(days), pa.int64()),
        "num_records": pa.array([1] * len(days), pa.int64()),
        "partition.date": pa.array(days, pa.date32()),
        "modification_time": pa.array(
            [int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000) for day in days], pa.int64()
        ),
    }
    if name == "readings":
        columns["max.landed_at"] = [datetime(day.year, day.month, day.day, 12, tzinfo=UTC) for day in days]
    return TableState(name, "id", 1, ("date",), pa.table(columns), 0.1)


TABLES = ("readings", "dead_letters", "rollups_1m", "ledger")


@pytest.mark.parametrize("name", TABLES)
def test_retention_goes_on_day_by_day_while_the_clock_is_right(name: str) -> None:
    made = state(days_before(93), name)
    expiry = plan_expiry(made, keep_days=90, wall=TODAY, newest=TODAY)
    assert sorted(expiry.files) == [str(TODAY - timedelta(days=n)) for n in (92, 91)]
    assert expiry.waiting == {}


@pytest.mark.parametrize("name", TABLES)
def test_a_clock_a_year_ahead_drops_nothing_and_says_how_much_waits(name: str) -> None:
    made = state(days_before(60), name)
    expiry = plan_expiry(made, keep_days=90, wall=TODAY + YEAR, newest=TODAY)
    assert expiry.files == {}
    assert len(expiry.waiting) == 60 - SPARED_DAYS
    assert expired_files(made, keep_days=90, today=TODAY + YEAR) == {}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("landed_ahead", [1, 3, 6, 30])
def test_rows_that_landed_by_the_wrong_clock_confirm_nothing(name: str, landed_ahead: int) -> None:
    days = [*days_before(60), *days_before(landed_ahead, TODAY + YEAR)]
    newest = newest_plausible(days)
    expiry = plan_expiry(state(days, name), keep_days=90, wall=TODAY + YEAR, newest=newest)
    # After a week of such days the clock is believed, and then so much would go that a person is asked.
    assert expiry.files == {}
    assert expiry.waiting


def test_a_clock_that_is_back_drops_nothing() -> None:
    assert plan_expiry(state(days_before(60)), keep_days=90, wall=date(1970, 1, 2), newest=TODAY).files == {}


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=60, unique=True),
    st.integers(0, 40_000),
    st.integers(1, 800),
    st.sampled_from(TABLES),
)
def test_whatever_the_clock_says_the_newest_days_and_most_of_a_table_stay(
    ages: list[int], ahead: int, keep_days: int, name: str
) -> None:
    days = sorted(TODAY - timedelta(days=age) for age in ages)
    expiry = plan_expiry(state(days, name), keep_days=keep_days, wall=TODAY + timedelta(days=ahead), newest=max(days))
    kept = [day for day in days if str(day) not in expiry.files]
    assert kept[-1] == days[-1]
    assert set(days[-min(SPARED_DAYS, keep_days) :]) <= set(kept)
    gone = len(expiry.files)
    assert gone <= 1 or gone <= len(days) * max(0.2, 2 / (keep_days + 1))
    assert not expiry.files.keys() & expiry.waiting.keys()


def test_a_shorter_retention_waits_for_a_person() -> None:
    expiry = plan_expiry(state(days_before(90)), keep_days=30, wall=TODAY, newest=TODAY)
    assert (len(expiry.files), len(expiry.waiting)) == (0, 59)
    assert len(plan_expiry(state(days_before(90)), keep_days=30, wall=TODAY, newest=TODAY, most_ratio=1.0).files) == 59


def test_a_pause_is_believed_once_a_week_of_days_came_after_it() -> None:
    old = days_before(30, TODAY - timedelta(days=40))
    assert newest_plausible([*old, *days_before(6)]) == old[-1]
    assert newest_plausible([*old, *days_before(7)]) == TODAY
    assert newest_plausible([]) is None
    assert newest_plausible([TODAY]) == TODAY
    assert today_of(TODAY, None) == TODAY


def test_the_time_of_deletions_never_runs_ahead_of_what_this_process_counted() -> None:
    wall, elapsed = [1_800_000_000.0], [50.0]
    clock = DeletionClock(lambda: wall[0], lambda: elapsed[0])
    wall[0], elapsed[0] = wall[0] + YEAR.total_seconds(), 60.0
    assert clock.now() == 1_800_000_010.0
    wall[0] = 0.0
    assert clock.now() == 0.0
    assert clock.wall() == 0.0


def test_after_a_restart_the_newest_row_bounds_the_time_of_deletions() -> None:
    wall = datetime(2027, 11, 29, tzinfo=UTC).timestamp()
    clock = DeletionClock(lambda: wall, lambda: 0.0)
    newest = datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert clock.now(newest) == (newest + timedelta(hours=1)).timestamp()
    ahead = state([*days_before(5), *days_before(2, TODAY + YEAR)])
    assert newest_landed(ahead) == newest
    assert newest_landed(state(days_before(5), "ledger")) is None

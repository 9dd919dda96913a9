"""Statistics of files: a file that holds a row is never left out, however Delta cuts the bounds."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from lakehouse.changes import DataFile
from lakehouse.file_stats import STEP_US, as_micros, as_utc, may_hold_any_text, may_hold_text, time_span

TEXT = st.text(alphabet="ab\u00e9\U0010ffff", max_size=6)
MOMENT = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(st.lists(TEXT, min_size=1), st.integers(1, 6), st.lists(TEXT))
def test_a_file_that_holds_a_text_is_kept_whatever_prefix_its_bounds_have(
    held: list[str], prefix: int, others: list[str]
) -> None:
    low, high = min(held)[:prefix], max(held)[:prefix]
    file = DataFile("f", low={"device": low}, high={"device": high})
    assert all(may_hold_text(file, "device", each) for each in held)
    for each in held:
        assert may_hold_any_text(low, high, sorted({each, *others}))


@given(st.lists(TEXT, min_size=1), TEXT, TEXT)
def test_of_a_sorted_list_the_file_is_kept_where_any_text_may_be_in_it(wanted: list[str], low: str, high: str) -> None:
    file = DataFile("f", low={"device": low}, high={"device": high})
    assert may_hold_any_text(low, high, sorted(wanted)) == any(may_hold_text(file, "device", each) for each in wanted)


def test_a_file_without_bounds_may_hold_anything() -> None:
    assert may_hold_text(DataFile("f"), "device", "x")
    assert may_hold_any_text(None, None, ["x"])
    assert time_span(DataFile("f"), "event_time") is None


@given(st.lists(MOMENT, min_size=1))
def test_a_span_covers_each_time_though_delta_cuts_to_milliseconds(times: list[datetime]) -> None:
    low, high = (each.replace(microsecond=each.microsecond // 1000 * 1000) for each in (min(times), max(times)))
    file = DataFile("f", low={"t": low.isoformat()}, high={"t": high})
    span = time_span(file, "t")
    assert span is not None
    assert all(span[0] <= (as_micros(each) or 0) <= span[1] for each in times)
    assert span[1] - (as_micros(high) or 0) == STEP_US


def test_a_time_without_a_zone_is_utc_and_other_values_are_not_times() -> None:
    at = datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert as_utc("2026-11-29T12:00:00") == as_utc(at) == at
    assert as_micros(at + timedelta(microseconds=1)) == (as_micros(at) or 0) + 1
    assert [as_utc(value) for value in (None, 7, "noon", b"x")] == [None] * 4

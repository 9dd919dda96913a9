from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_text import BadNumber
from gateway.time_rules import Instant, check_plausible_time, native_time, read_time
from ingest.contract.dead_letter import Reject

pytestmark = pytest.mark.promise("P6")

BERLIN = ZoneInfo("Europe/Berlin")


def us(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (1764331200, "2025-11-28T12:00:00Z"),
        (1764331200.25, "2025-11-28T12:00:00.25Z"),
        (1764331200123, "2025-11-28T12:00:00.123Z"),
        (1764331200123456, "2025-11-28T12:00:00.123456Z"),
        (1764331200123456789, "2025-11-28T12:00:00.123456Z"),
        ("1488386400.0", "2017-03-01T16:40:00Z"),
        ("2025-11-28T12:00:00Z", "2025-11-28T12:00:00Z"),
        ("2025-11-28t12:00:00z", "2025-11-28T12:00:00Z"),
        ("2025-11-28 14:00:00+02:00", "2025-11-28T12:00:00Z"),
        ("2025-11-28T14:00:00+0200", "2025-11-28T12:00:00Z"),
        ("2025-11-28T17:45:00+05:45", "2025-11-28T12:00:00Z"),
        ("2025-11-28T12:00:00-00:00", "2025-11-28T12:00:00Z"),
        ("2025-11-28T12:00:00.123456789Z", "2025-11-28T12:00:00.123456Z"),
        ("2025-11-28T12:00:00.1234569Z", "2025-11-28T12:00:00.123456Z"),
        ("2025-11-28T12:00:00.5Z", "2025-11-28T12:00:00.5Z"),
        ("2025-11-28T13:00:00", "2025-11-28T12:00:00Z"),
        ("2025-07-28 14:00:00", "2025-07-28T12:00:00Z"),
    ],
)
def test_times_that_are_understood(value: object, at: str) -> None:
    assert read_time(value, "$.ts", BERLIN) == Instant(us(at))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0, "ts_too_old"),
        (-1, "ts_too_old"),
        (3, "ts_too_old"),
        (946684799, "ts_too_old"),
        (4102444800, "ambiguous_time"),
        (100_000_000_000, "ambiguous_time"),
        (253402300800, "ambiguous_time"),
        (5_000_000_000_000, "ambiguous_time"),
        (1e18 * 10, "ts_too_far_future"),
        (10**40, "ts_too_far_future"),
        ("2025-02-30T00:00:00Z", "bad_timestamp"),
        ("2025-11-28T24:00:00Z", "bad_timestamp"),
        ("2016-12-31T23:59:60Z", "bad_timestamp"),
        ("0000-01-01T00:00:00Z", "bad_timestamp"),
        ("10000-01-01T00:00:00Z", "bad_timestamp"),
        ("2025-11-28T12:00:00+24:00", "bad_timestamp"),
        ("2025-11-28T12:00:00+02:60", "bad_timestamp"),
        ("yesterday", "bad_timestamp"),
        ("", "bad_timestamp"),
        ("٢٠٢٥-11-28T12:00:00Z", "bad_timestamp"),
        (True, "wrong_type"),
        ([1], "wrong_type"),
        ({}, "wrong_type"),
        (BadNumber("NaN"), "bad_number"),
    ],
)
def test_times_that_are_refused(value: object, reason: str) -> None:
    refused = read_time(value, "$.ts", BERLIN)
    assert isinstance(refused, Reject)
    assert (refused.reason, refused.path) == (reason, "$.ts")


def test_local_time_without_a_zone_is_ambiguous() -> None:
    refused = read_time("2025-11-28 12:00:00", "$.time", None)
    assert isinstance(refused, Reject)
    assert refused.reason == "ambiguous_time"


def test_the_repeated_hour_takes_its_first_pass_and_a_flag() -> None:
    #  01:59 CEST | 02:00 ... 02:59 CEST | 02:00 ... 02:59 CET | 03:00 CET
    assert read_time("2023-10-29 02:30:00", "$", BERLIN) == Instant(us("2023-10-29T00:30:00Z"), "ambiguous_local_time")
    assert read_time("2023-10-29 01:59:59", "$", BERLIN) == Instant(us("2023-10-28T23:59:59Z"))
    assert read_time("2023-10-29 03:00:00", "$", BERLIN) == Instant(us("2023-10-29T02:00:00Z"))


def test_the_hour_that_does_not_exist_is_flagged() -> None:
    assert read_time("2023-03-26 02:30:00", "$", BERLIN) == Instant(
        us("2023-03-26T01:30:00Z"), "nonexistent_local_time"
    )


def test_native_time_is_milliseconds_or_text_with_an_offset() -> None:
    assert native_time(1764331200123, "$.ts") == Instant(1764331200123000)
    assert native_time("2025-11-28T12:00:00Z", "$.ts") == Instant(us("2025-11-28T12:00:00Z"))
    refused = native_time("2025-11-28T12:00:00", "$.ts")
    assert isinstance(refused, Reject)
    assert refused.reason == "ambiguous_time"


@pytest.mark.parametrize(
    ("seconds_ahead", "reason"), [(300, None), (600, None), (601, "ts_too_far_future"), (86400, "ts_too_far_future")]
)
def test_clocks_may_run_ahead_by_the_limit(seconds_ahead: int, reason: str | None) -> None:
    now = us("2025-11-28T12:00:00Z")
    refused = check_plausible_time(now + seconds_ahead * 1_000_000, now, 600, "$.ts")
    assert (refused.reason if refused else None) == reason


@pytest.mark.parametrize("time_us", [0, -1, us("1999-12-31T23:59:59Z"), -(10**30)])
def test_times_before_2000_are_refused(time_us: int) -> None:
    refused = check_plausible_time(time_us, us("2025-11-28T12:00:00Z"), 600, "$.ts")
    assert refused is not None
    assert refused.reason == "ts_too_old"


def test_a_time_past_the_calendar_is_told_without_failing() -> None:
    refused = check_plausible_time(10**25, us("2025-11-28T12:00:00Z"), 600, "$.ts")
    assert refused is not None
    assert refused.reason == "ts_too_far_future"


@given(st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2099, 12, 31)))  # noqa: DTZ001
def test_iso_text_reads_back_to_the_microsecond(at: datetime) -> None:
    aware = at.replace(tzinfo=UTC)
    read = read_time(aware.isoformat(), "$", None)
    assert isinstance(read, Instant)
    assert datetime.fromtimestamp(read.us // 1_000_000, UTC).replace(microsecond=read.us % 1_000_000) == aware


@given(st.text(max_size=40) | st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_no_value_raises(value: object) -> None:
    assert isinstance(read_time(value, "$", BERLIN), Instant | Reject)

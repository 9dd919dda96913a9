"""When the next value goes stale, from the rows of `latest` and `devices`."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from streaming.derive.latest_derivation import next_stale

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
LATEST = pa.schema(
    [("device", pa.string()), ("received_at", pa.timestamp("us", "UTC")), ("stale_since", pa.timestamp("us", "UTC"))]
)
DEVICES = pa.schema([("device", pa.string()), ("interval_learned_s", pa.float64())])


def after(*values: tuple[str, float, bool], **intervals: float | None) -> float | None:
    """Seconds after AT; values are (device, received so long after AT, stale already)."""
    rows: list[dict[str, Any]] = [
        {"device": name, "received_at": AT + timedelta(seconds=at), "stale_since": AT if stale else None}
        for name, at, stale in values
    ]
    learned = [{"device": name, "interval_learned_s": value} for name, value in intervals.items()]
    found = next_stale(pa.Table.from_pylist(rows, LATEST), pa.Table.from_pylist(learned, DEVICES))
    return None if found is None else (found - AT).total_seconds()


def test_the_next_value_goes_stale_five_intervals_after_its_devices_newest_reading() -> None:
    assert after(("a", 0, False), a=100.0) == 500
    assert after(("a", 0, False), ("a", 30, False), a=100.0) == 530, "another metric keeps it"
    assert after(("a", 0, False), a=1.0) == 60
    assert after(("a", 0, False), a=None) == 3600
    assert after(("a", 0, False)) == 3600, "a device whose row is still to come"
    assert after(("a", 0, False), ("b", 10, False), a=100.0, b=20.0) == 110


def test_what_is_stale_already_is_no_news() -> None:
    assert after(("a", 0, True), a=100.0) is None
    assert after(("a", 0, True), ("b", 0, False), a=1.0, b=100.0) == 500
    assert after() is None

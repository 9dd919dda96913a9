"""Rows of `duplicates`: which records lose readings, and which messages lose all of them."""

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.tables import DUPLICATES
from streaming.duplicate_rows import COPIED_COLUMNS, drop_landed_records, duplicate_rows

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
Row = tuple[str, int, int]
"""Device, message number and offset of a reading."""


def written(rows: list[Row]) -> pa.Table:
    envelope: dict[str, Any] = {
        "received_at": AT, "kafka_time": AT, "mqtt_topic": "t", "gateway": "g", "gateway_epoch": 1, "partition": 0,
        "date": date(2026, 5, 1),
    }  # fmt: skip
    named = [
        {**envelope, "device": device, "message_number": number, "message_id": f"m{number}", "offset": offset}
        for device, number, offset in rows
    ]
    found: pa.Table = pa.Table.from_pylist(named).select(COPIED_COLUMNS)
    return found


def copies_of(numbers: list[int]) -> pa.Table:
    """The rows with these numbers, from 1."""
    return pa.table({"row": pa.array(numbers, pa.int64())})


def found(rows: list[Row], numbers: list[int]) -> list[tuple[Any, ...]]:
    noted = duplicate_rows(written(rows), copies_of(numbers), AT).to_pylist()
    return [tuple(row[name] for name in ("offset", "readings_dropped", "whole")) for row in noted]


def test_a_record_is_one_row_and_whole_where_nothing_of_its_message_stays() -> None:
    rows = [("a", 1, 0), ("a", 1, 0), ("a", 2, 1), ("a", 2, 1), ("b", 2, 2)]
    assert found(rows, [1, 2, 3]) == [(0, 2, True), (1, 1, False)]
    two_records = [("a", 1, 0), ("a", 1, 1), ("b", 1, 2)]
    assert found(two_records, [1, 3]) == [(0, 1, False), (2, 1, True)]
    assert found(two_records, [1, 2]) == [(0, 1, True), (1, 1, True)]
    assert duplicate_rows(written(rows), copies_of([1]), AT).column_names == [c.name for c in DUPLICATES.columns]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.booleans()), min_size=1, max_size=30),
    st.integers(0, 6),
)
def test_each_record_that_loses_readings_is_counted_once(messages: list[tuple[str, int, bool]], end: int) -> None:
    offsets = {key: place for place, key in enumerate(dict.fromkeys((d, n) for d, n, _ in messages))}
    rows = [(device, number, offsets[device, number]) for device, number, _ in messages]
    numbers = [place + 1 for place, (_, _, copy) in enumerate(messages) if copy]
    lost = [rows[number - 1][2] for number in numbers]
    left = {row[2] for place, row in enumerate(rows) if place + 1 not in numbers}
    wanted = [(offset, lost.count(offset), offset not in left) for offset in sorted(set(lost))]
    assert found(rows, numbers) == wanted
    noted = drop_landed_records(
        duplicate_rows(written(rows), copies_of(numbers), AT), "r", [("r", 0, end), ("o", 0, 99)]
    )
    assert noted["offset"].to_pylist() == [offset for offset, *_ in wanted if offset >= end]


def test_a_storm_of_copies_is_one_row_a_record() -> None:
    rows = [(f"d{number % 10_000}", number, number) for number in range(100_000)]
    noted = duplicate_rows(written(rows), copies_of(list(range(1, 100_001))), AT)
    assert (noted.num_rows, len(set(noted["device"].to_pylist()))) == (100_000, 10_000)
    assert noted.nbytes < 20_000_000

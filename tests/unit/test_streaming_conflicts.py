"""Content of copies against content that is stored: what contradicts it, what cannot be told, and what it may cost."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from streaming.conflicts import COMPARED_COLUMNS, Contents

CLAIMED = datetime(2026, 5, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("device", pa.string()), ("metric", pa.string()), ("index", pa.int32()), ("message_id", pa.string()),
        ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.float64()), ("text", pa.string()),
        ("unit", pa.string()), ("device_time", pa.timestamp("us", "UTC")), ("flags", pa.list_(pa.string())),
    ]
)  # fmt: skip
COPIES = pa.schema([("row", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64()), ("position", pa.int64())])


def row(offset: int, message_id: str | None = "bs:1:1", metric: str = "t", **more: Any) -> dict[str, Any]:
    known = {
        "device": "d",
        "index": 0,
        "partition": 0,
        "value": 20.0,
        "text": None,
        "unit": "C",
        "device_time": CLAIMED,
    }
    return known | {"flags": [], "message_id": message_id, "metric": metric, "offset": offset} | more


def rows(*each: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(each), schema=SCHEMA).select(COMPARED_COLUMNS)


def refused(contents: Contents, *each: dict[str, Any], kept: int = 0) -> tuple[list[dict[str, Any]], int]:
    """All rows but the first `kept` are copies, each the first reading of its record."""
    batch = rows(*each)
    copies = [{"row": i + 1, "partition": 0, "offset": x["offset"], "position": 0} for i, x in enumerate(each)][kept:]
    return contents.conflicts(batch, pa.Table.from_pylist(copies, schema=COPIES))


@pytest.mark.parametrize(
    ("change", "conflict"),
    [
        ({}, False),
        ({"value": 21.0}, True),
        ({"value": None, "text": "off"}, True),
        ({"unit": None}, True),
        ({"device_time": CLAIMED + timedelta(seconds=1)}, True),
        ({"device_time": None}, True),
        ({"flags": ["late"]}, False),
    ],
)
def test_value_text_unit_and_claimed_time_are_the_content(change: dict[str, Any], conflict: bool) -> None:
    contents = Contents()
    contents.remember(rows(row(1)))
    found, unchecked = refused(contents, row(9, **change))
    assert ([each["offset"] for each in found], unchecked) == ([9] if conflict else [], 0)


def test_a_time_made_of_a_relative_one_is_no_content() -> None:
    contents = Contents()
    contents.remember(rows(row(1, flags=["relative_time"])))
    assert refused(contents, row(9, flags=["relative_time"], device_time=CLAIMED + timedelta(hours=1))) == ([], 0)


def test_within_a_batch_the_first_is_what_counts() -> None:
    found, unchecked = refused(Contents(), row(1), row(2, value=7.0), row(3), kept=1)
    assert unchecked == 0
    (letter,) = found
    assert (letter["offset"], letter["path"], letter["got"], letter["partial"]) == (
        2,
        "$.readings[0]",
        "t = 7 C",
        False,
    )
    assert letter["wanted"] == "what is stored under bs:1:1 from partition 0 offset 1: t = 20"


def test_a_record_of_many_contradictions_is_one_letter_of_bounded_length() -> None:
    contents = Contents()
    names = [f"{i:03}{'m' * 200}" for i in range(50)]
    contents.remember(rows(*(row(1, metric=name) for name in names)))
    found, _ = refused(contents, *(row(9, metric=name, value=None, text="x" * 5000) for name in names))
    assert len(found) == 1
    assert found[0]["got"].endswith("; 45 more")
    assert max(len(found[0]["got"]), len(found[0]["wanted"])) < 1000


def lookup_of(stored: pa.Table, asked: list[int], clock: "Clock") -> Callable[[pa.Table], pa.Table]:
    def lookup(copies: pa.Table) -> pa.Table:
        asked.append(copies.num_rows)
        clock.now += 1.0
        return stored

    return lookup


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_not_remembered_is_looked_up_for_a_bounded_share_of_the_time() -> None:
    asked: list[int] = []
    clock = Clock()
    old, older = row(1, "bs:1:7"), row(2, "bs:1:8")
    contents = Contents(lookup_of(rows(old), asked, clock), clock=clock)
    assert [each["offset"] for each in refused(contents, row(9, "bs:1:7", value=7.0))[0]] == [9]
    # Remembered from the look-up: no second one. Another identity has to wait, and is counted.
    assert [each["offset"] for each in refused(contents, row(10, "bs:1:7", value=7.0))[0]] == [10]
    assert refused(contents, row(11, older["message_id"], value=7.0)) == ([], 1)
    assert asked == [1]
    clock.now += 30.0
    assert refused(contents, row(12, older["message_id"], value=7.0)) == ([], 1)
    assert asked == [1, 1]


def test_a_corrected_row_is_no_measure_of_a_copy() -> None:
    clock = Clock()
    contents = Contents(lookup_of(rows(row(1, value=68.0, flags=["corrected"])), [], clock), clock=clock)
    assert refused(contents, row(9)) == ([], 0)


def test_what_is_remembered_is_bounded_and_the_newest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.conflicts.REMEMBERED_ROWS", 100)
    contents = Contents()
    for start in range(0, 300, 30):
        contents.remember(rows(*(row(i, f"bs:1:{i}") for i in range(start, start + 30))))
    assert contents.remembered <= 100
    assert refused(contents, row(999, "bs:1:299", value=1.0))[0]
    assert refused(contents, row(999, "bs:1:0", value=1.0)) == ([], 1)

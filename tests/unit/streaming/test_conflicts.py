"""Content of copies against content that is stored: what contradicts it, what cannot be told, and what it may cost."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse.create import create_table
from lakehouse.tables import READINGS
from streaming.duplicate_comparator import COMPARED_COLUMNS, DuplicateComparator, make_lookup
from tests.support.copies import COMPARED, COPIES

CLAIMED = datetime(2026, 5, 1, 12, tzinfo=UTC)


def row(offset: int, message_id: str | None = "bs:1:1", metric: str = "t", **more: Any) -> dict[str, Any]:
    known = {
        "device": "d",
        "index": 0,
        "partition": 0,
        "value": 20.0,
        "text": None,
        "unit": "C",
        "device_time": CLAIMED,
        "event_time": CLAIMED,
        "received_at": CLAIMED,
    }
    known |= {"gateway": "g", "gateway_epoch": 1, "message_number": offset}
    return known | {"flags": [], "message_id": message_id, "metric": metric, "offset": offset} | more


def rows(*each: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(each), schema=COMPARED).select(COMPARED_COLUMNS)


def refused(
    contents: DuplicateComparator, *each: dict[str, Any], kept: int = 0, replayed: bool = False
) -> tuple[list[dict[str, Any]], int]:
    """All rows but the first `kept` are copies, each the first reading of its record."""
    batch = rows(*each)
    places = [{"row": i + 1, "partition": 0, "offset": x["offset"], "position": 0} for i, x in enumerate(each)][kept:]
    copies = [place | {"replayed": replayed} for place in places]
    return contents.conflicts(batch, pa.Table.from_pylist(copies, schema=COPIES))


def kinds(found: tuple[list[dict[str, Any]], int]) -> tuple[list[tuple[int, str]], int]:
    return [(letter["offset"], letter["reason"]) for letter in found[0]], found[1]


def test_a_replay_that_the_table_holds_under_another_identity_needs_no_comparison() -> None:
    """A mapping that names an identity since then must not make a dead letter of each retained message."""
    contents = DuplicateComparator(lambda copies: [rows(row(1, None))])
    replay = row(2, "id:7", payload_hash=5)
    assert kinds(refused(contents, replay, replayed=True)) == ([], 0)
    assert kinds(refused(contents, replay)) == ([(2, "unchecked_duplicate")], 1)


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
    contents = DuplicateComparator()
    contents.remember(rows(row(1)))
    found, unchecked = refused(contents, row(9, **change))
    assert ([each["offset"] for each in found], unchecked) == ([9] if conflict else [], 0)


def test_a_time_made_of_a_relative_one_is_no_content() -> None:
    contents = DuplicateComparator()
    contents.remember(rows(row(1, flags=["relative_time"])))
    assert refused(contents, row(9, flags=["relative_time"], device_time=CLAIMED + timedelta(hours=1))) == ([], 0)


@pytest.mark.parametrize(
    ("change", "minutes", "is_refused"),
    [
        ({}, 9, False),
        ({}, 11, True),
        ({}, 3 * 24 * 60, True),
        ({}, -60, True),
        ({"device_time": CLAIMED}, 60, False),
        ({"message_id": "a frame's key"}, 60, False),
        ({"gateway": "another"}, 60, False),
        ({"flags": ["may_have_waited"]}, 60, False),
        ({"flags": ["retained"]}, 60, False),
    ],
)
def test_a_reused_identity_with_the_same_content_is_refused(
    change: dict[str, Any], minutes: int, is_refused: bool
) -> None:
    """F23: a redelivery comes within minutes. What waited, or has a time of its own, is the same reading at any time."""
    contents = DuplicateComparator()
    first = row(1, device_time=None, payload_hash=7)
    contents.remember(rows(first | {key: change[key] for key in change.keys() & {"message_id", "device_time"}}))
    again = row(
        9, **{"device_time": None, "payload_hash": 7, "received_at": CLAIMED + timedelta(minutes=minutes)} | change
    )
    found, unchecked = refused(contents, again)
    assert unchecked == 0
    assert [letter["reason"] for letter in found] == (["conflicting_duplicate"] if is_refused else [])
    if minutes == 11:
        assert found[0]["wanted"] == (
            "another `boot` at each start: bs:1:1 with the same content and no device time was received 0:11:00 earlier"
        )


def test_within_a_batch_the_first_is_what_counts() -> None:
    found, unchecked = refused(DuplicateComparator(), row(1), row(2, value=7.0), row(3), kept=1)
    assert unchecked == 0
    (letter,) = found
    assert (letter["offset"], letter["path"], letter["got"], letter["partial"]) == (
        2,
        "$.readings[0]",
        "t = 7 C",
        False,
    )
    assert letter["wanted"] == "the content stored for bs:1:1 from partition 0 offset 1: t = 20"


def test_a_record_of_many_contradictions_is_one_letter_of_bounded_length() -> None:
    contents = DuplicateComparator()
    names = [f"{i:03}{'m' * 200}" for i in range(50)]
    contents.remember(rows(*(row(1, metric=name) for name in names)))
    found, _ = refused(contents, *(row(9, metric=name, value=None, text="x" * 5000) for name in names))
    assert len(found) == 1
    assert found[0]["got"].endswith("; 45 more")
    assert max(len(found[0]["got"]), len(found[0]["wanted"])) < 1000


def lookup_of(stored: pa.Table, asked: list[int], clock: "Clock") -> Callable[[pa.Table], list[pa.Table]]:
    def lookup(copies: pa.Table) -> list[pa.Table]:
        asked.append(copies.num_rows)
        clock.now += 20.0
        return [stored]

    return lookup


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_not_remembered_is_looked_up_for_a_bounded_share_of_the_time() -> None:
    asked: list[int] = []
    clock = Clock()
    old, older = row(1, "bs:1:7"), row(2, "bs:1:8")
    contents = DuplicateComparator(lookup_of(rows(old), asked, clock), clock=clock)
    assert [each["offset"] for each in refused(contents, row(9, "bs:1:7", value=7.0))[0]] == [9]
    # Remembered from the look-up: no second one. There is no time left for another identity: refused, not dropped.
    assert [each["offset"] for each in refused(contents, row(10, "bs:1:7", value=7.0))[0]] == [10]
    assert kinds(refused(contents, row(11, older["message_id"]))) == ([(11, "unchecked_duplicate")], 1)
    assert asked == [1]
    clock.now += 120.0
    assert kinds(refused(contents, row(12, older["message_id"]))) == ([(12, "unchecked_duplicate")], 1)
    assert asked == [1, 1]


@pytest.mark.parametrize(
    ("stored", "sent", "reason"),
    [(None, None, None), (7, None, None), (7, 7, None), (7, 8, "unchecked_duplicate")],
)
def test_a_copy_of_a_corrected_row_is_compared_by_its_payload(
    stored: int | None, sent: int | None, reason: str | None
) -> None:
    clock = Clock()
    corrected = row(1, value=68.0, flags=["corrected"], payload_hash=stored)
    contents = DuplicateComparator(lookup_of(rows(corrected), [], clock), clock=clock)
    assert kinds(refused(contents, row(9, payload_hash=sent)))[0] == ([(9, reason)] if reason else [])


def test_the_same_payload_is_the_same_whatever_decoded_it() -> None:
    contents = DuplicateComparator()
    contents.remember(rows(row(1, payload_hash=-7)))
    converted = {"value": 68.0, "unit": "F", "device_time": CLAIMED + timedelta(hours=1)}
    assert refused(contents, row(8, payload_hash=-7, **converted)) == ([], 0)
    assert refused(contents, row(9, payload_hash=8)) == ([], 0), "another payload with the same reading"
    for other in (8, None):
        assert kinds(refused(contents, row(10, payload_hash=other, **converted)))[0] == [(10, "conflicting_duplicate")]


def test_two_readings_of_one_message_under_one_identity_are_compared_by_value() -> None:
    """Their payload is one, so it says nothing."""
    found = refused(DuplicateComparator(), row(1, payload_hash=7), row(1, value=7.0, payload_hash=7), kept=1)
    assert kinds(found) == ([(1, "conflicting_duplicate")], 0)
    found = refused(
        DuplicateComparator(), row(1, payload_hash=7), row(2, value=7.0, payload_hash=7, message_number=1), kept=1
    )
    assert kinds(found) == ([(2, "conflicting_duplicate")], 0)


def test_a_record_with_both_kinds_of_copies_is_one_conflict() -> None:
    contents = DuplicateComparator()
    contents.remember(rows(row(1)))
    (letter,), unchecked = refused(contents, row(9, value=7.0), row(9, metric="u"))
    assert (letter["reason"], letter["got"], unchecked) == ("conflicting_duplicate", "t = 7 C", 1)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_copy_is_equal_conflicting_or_unchecked(data: st.DataObject) -> None:
    """Against a model: what is dropped without a letter is equal to a row of its identity that can be found."""
    sent = st.builds(
        lambda seq, value, said, corrected: row(
            0, f"bs:1:{seq}", value=value, payload_hash=said, flags=["corrected"] * corrected
        ),
        st.integers(0, 5), st.sampled_from([1.0, 2.0]), st.sampled_from([None, 1, 2]), st.booleans(),
    )  # fmt: skip
    stored = {each["message_id"]: each for each in data.draw(st.lists(sent, max_size=6))}
    findable = data.draw(st.booleans())
    copies = [
        each | {"offset": 10 + n, "message_number": 10 + n, "flags": []}
        for n, each in enumerate(data.draw(st.lists(sent, min_size=1)))
    ]
    contents = DuplicateComparator((lambda missing: [rows(*stored.values())]) if findable else None)
    letters, unchecked = refused(contents, *copies)
    found = {letter["offset"]: letter["reason"] for letter in letters}
    assert unchecked == sum(reason == "unchecked_duplicate" for reason in found.values())
    for copy in copies:
        first = stored.get(copy["message_id"]) if findable else None
        if first is None:
            assert found[copy["offset"]] == "unchecked_duplicate"
        elif first["payload_hash"] is not None and first["payload_hash"] == copy["payload_hash"]:
            assert copy["offset"] not in found
        elif not first["flags"]:
            same = first["value"] == copy["value"]
            assert found.get(copy["offset"]) == (None if same else "conflicting_duplicate")
        else:
            unlike = None not in (first["payload_hash"], copy["payload_hash"])
            assert found.get(copy["offset"]) == ("unchecked_duplicate" if unlike else None)


def table_of(root: Path, *files: list[dict[str, Any]]) -> None:
    """A table `readings` with these files, the oldest first; `at` minutes after CLAIMED is each row's event time."""
    create_table(str(root), READINGS, log_retention_hours=24)
    table = DeltaTable(str(root / "readings"))
    for number, file in enumerate(files):
        landed = CLAIMED + timedelta(days=number)
        times = {"received_at": landed, "kafka_time": landed, "landed_at": landed, "date": landed.date()}
        made = [each | times | {"time_source": "device"} for each in file]
        write_deltalake(table, pa.Table.from_pylist(made, schema=pa.schema(table.schema().to_arrow())), mode="append")


def test_a_look_up_reads_the_likely_file_first_and_then_every_file_of_the_device(tmp_path: Path) -> None:
    def at(number: int, **more: Any) -> dict[str, Any]:
        return row(number, f"bs:1:{number}", **more) | {"event_time": CLAIMED + timedelta(minutes=number)}

    table_of(tmp_path, *([at(n), at(n, device="z")] for n in range(9)), [at(50, device="x")])
    pieces = iter(make_lookup(str(tmp_path))(rows(at(4))))
    assert next(pieces).num_rows == 1, "the file with that event time"
    assert [piece.num_rows for piece in pieces] == [0, 0, 0, 0, 1, 0, 0, 0, 0], "and each that may have the device"
    contents = DuplicateComparator(make_lookup(str(tmp_path)))
    moved = at(7) | {"event_time": CLAIMED - timedelta(days=30), "value": 7.0, "offset": 99}
    assert kinds(refused(contents, moved, at(3))) == ([(99, "conflicting_duplicate")], 0)


def test_what_is_remembered_is_bounded_and_the_newest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.duplicate_comparator.REMEMBERED_ROWS", 100)
    contents = DuplicateComparator()
    for start in range(0, 300, 30):
        contents.remember(rows(*(row(i, f"bs:1:{i}") for i in range(start, start + 30))))
    assert contents.remembered <= 100
    assert refused(contents, row(999, "bs:1:299", value=1.0))[0]
    assert kinds(refused(contents, row(999, "bs:1:0", value=1.0))) == ([(999, "unchecked_duplicate")], 1)

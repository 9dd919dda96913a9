"""Offsets in commits, checkpoints and at a start."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from ingest.contract.errors import FatalError
from streaming.landing_offsets import Mark, behind, newest_mark, newest_of, parse_mark, parse_offset_log, record_count
from streaming.lost_records import (
    LostRecords,
    StartInstruction,
    describe_lost_records,
    find_lost_records,
    read_start_instruction,
    recreated_topics,
    write_start_instruction,
)
from streaming.start_landing import choose_start_offsets, first_offsets, select_valid_marks
from streaming.vanished_commits import FinishedBatch, find_vanished_commits

LOG = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"a":{"0":5,"1":7},"b":{"0":0}}'


def test_an_offset_file_is_read() -> None:
    assert parse_offset_log(LOG) == {"a": {0: 5, 1: 7}, "b": {0: 0}}


@pytest.mark.parametrize("torn", ["", "v1\n", LOG[:-5], "v1\n{}\n[]", "\x00\x00"])
def test_a_torn_offset_file_is_a_value_error(torn: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_offset_log(torn)


def test_records_of_a_batch_are_counted_over_new_partitions_too() -> None:
    assert record_count({"a": {0: 5}}, {"a": {0: 8, 1: 2}}, "a") == 5
    assert record_count({}, {}, "a") == 0


def test_only_what_a_table_holds_past_the_start_is_filtered() -> None:
    done = [("a", 0, 10), ("a", 1, 4), ("b", 0, 3)]
    assert behind({"a": {0: 7, 1: 4}, "b": {0: 3}}, done) == [("a", 0, 10)]


def mark(start: int, end: int, *, batch: int = 1, app: str = "app", **more: Any) -> Mark:
    return Mark(app, batch, {"a": {0: start}}, {"a": {0: end}}, **more)


def test_a_mark_is_read_as_it_was_written_and_so_is_one_of_an_older_version() -> None:
    written = mark(1, 2, topics={"a": "id"}, lost=[["a", 0, 0, 1]])
    assert parse_mark(written.encode()) == written
    assert parse_mark('{"app": "app", "batch": 1, "starts": {"a": {"0": 1}}, "offsets": {"a": {"0": 2}}}') == mark(1, 2)
    assert parse_mark('{"request": {}}') is None


def test_a_new_checkpoint_begins_where_the_newest_batch_of_any_table_began() -> None:
    assert first_offsets([None, None], {}) is None
    assert choose_start_offsets(None, {"a": {0: 7}}, []) == {"a": {0: 7}}
    assert first_offsets([mark(40, 50, batch=9), mark(10, 20)], {}) == {"a": {0: 40}}
    # A partition that was added since begins at its oldest record.
    assert choose_start_offsets({"a": {0: 40}}, {"a": {0: 5, 1: 0}}, []) == {"a": {0: 40, 1: 0}}


def test_of_two_checkpoints_the_later_commit_counts_and_not_the_higher_offset() -> None:
    old, new = mark(900, 1000, app="old", at_ms=1), mark(5, 10, app="new", at_ms=2)
    assert newest_of([old, new]) is new
    assert newest_of([new, None, old]) is new


def test_a_checkpoint_that_went_back_numbers_its_batches_again_so_their_ends_decide() -> None:
    before, after = mark(20, 30, batch=2), mark(10, 60, batch=1)
    assert newest_of([before, after]) is newest_of([after, before]) is after
    # With the older mark, the checkpoint would look as if it were past all tables.
    now = FinishedBatch(after.app, 1, {"a": {0: 60}})
    versions = {"readings": 5, "dead_letters": 3}
    marks = [replace(each, versions={"readings": 4, "dead_letters": 2}) for each in (before, after)]
    assert find_vanished_commits(newest_of(marks), versions, now) == []
    assert find_vanished_commits(newest_of(marks[:1]), versions, now) != []


def test_a_repair_has_records_read_again_from_an_earlier_offset() -> None:
    assert first_offsets([mark(40, 50)], {"a": {0: 30}}) == {"a": {0: 30}}
    assert first_offsets([mark(40, 50)], {"a": {0: 45, 1: 3}}) == {"a": {0: 40, 1: 3}}


def test_lost_ranges_are_exact() -> None:
    following = {"a": {0: 5, 1: 5, 2: 5, 3: 5}}
    oldest, newest = {"a": {0: 9, 1: 0, 2: 0, 4: 0, 5: 2}}, {"a": {0: 20, 1: 3, 2: 5, 4: 9, 5: 9}}
    lost = find_lost_records(following, oldest, newest)
    assert lost == [("a", 0, 5, 9), ("a", 1, 5, 3), ("a", 3, 5, -1), ("a", 5, 0, 2)]
    said = describe_lost_records(lost)
    assert "a partition 0 offsets 5 to 8 (4 records)" in said
    assert "a partition 1 was recreated or cut back: stored up to offset 4" in said
    assert "a partition 3 no longer exists" in said
    assert "a partition 5 offsets 0 to 1 (2 records)" in said
    assert "tidegate repair --accept-loss" in said


def test_a_topic_of_another_id_is_another_topic_however_far_it_reaches() -> None:
    known = mark(40, 50, topics={"a": "one"})
    assert recreated_topics(known, {"a": "one"}) == set()
    assert recreated_topics(known, {}) == set()
    anew = recreated_topics(known, {"a": "two"})
    assert find_lost_records(known.ends, {"a": {0: 0}}, {"a": {0: 500}}, anew) == [("a", 0, 50, 0)]
    assert select_valid_marks({"t": known}, {"a": {0: 500}}, {"a": "two"})["t"] == Mark(
        "app", 1, known.starts, {}, known.topics
    )


def test_an_accepted_loss_covers_itself_and_no_more(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert read_start_instruction(root) == StartInstruction()
    order = StartInstruction({"a": {1: 7}}, (LostRecords("a", 0, 5, 9), LostRecords("b", 0, 5, 3)))
    write_start_instruction(root, order, {"why": "test"})
    read = read_start_instruction(root)
    assert (read.replay, read.accepted) == (order.replay, order.accepted)
    # A new checkpoint begins a little earlier than the old one would have gone on.
    assert read.refused([LostRecords("a", 0, 2, 9), LostRecords("b", 0, 5, 3)]) == []
    more = [LostRecords("a", 0, 5, 12), LostRecords("a", 1, 5, 9), LostRecords("a", 0, 5, 3), LostRecords("b", 0, 5, 9)]
    assert read.refused(more) == more
    assert choose_start_offsets({"a": {0: 5}}, {"a": {0: 9}}, [LostRecords("a", 0, 5, 9)]) == {"a": {0: 9}}
    read.settle()
    assert read_start_instruction(root) == StartInstruction()


def test_a_topic_made_anew_is_not_measured_by_the_offsets_of_the_old_one() -> None:
    marks = {"readings": mark(900, 1000), "dead_letters": None}
    kept = select_valid_marks(marks, {"a": {0: 10}}, {})
    assert kept["readings"] is not None
    assert kept["readings"].ends == {"a": {}}
    assert select_valid_marks(marks, {"a": {0: 1000}}, {})["readings"] == marks["readings"]


def test_a_torn_newest_commit_is_refused_and_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    for i in range(2):
        told = {"userMetadata": mark(i, i + 1).encode()}
        properties = CommitProperties(custom_metadata=told)
        write_deltalake(tmp_path / "t", pa.table({"x": [i]}), mode="append", commit_properties=properties)
    assert newest_mark(str(tmp_path), "t") == mark(1, 2)
    (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").write_bytes(b"")
    with pytest.raises(FatalError, match="empty or torn"):
        newest_mark(str(tmp_path), "t")

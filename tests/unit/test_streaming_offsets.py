"""Offsets in commits, checkpoints and at a start."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from ingest.contract.errors import FatalError
from streaming.offsets import Mark, behind, newest_mark, parse_offset_log, record_count
from streaming.queries import first_offsets, fitting, gone

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


def mark(start: int, end: int) -> Mark:
    return Mark("app", 1, {"a": {0: start}}, {"a": {0: end}})


def test_a_new_checkpoint_begins_where_the_newest_batch_of_any_table_began() -> None:
    oldest, newest = {"a": {0: 0}}, {"a": {0: 100}}
    assert first_offsets({"readings": None, "dead_letters": None}, oldest, newest) == oldest
    marks = {"readings": mark(40, 50), "dead_letters": mark(10, 20)}
    assert first_offsets(marks, oldest, newest) == {"a": {0: 40}}


def test_a_new_checkpoint_begins_at_the_oldest_record_where_the_stored_offset_does_not_fit() -> None:
    assert first_offsets({"readings": mark(40, 50)}, {"a": {0: 60}}, {"a": {0: 100}}) == {"a": {0: 60}}
    assert first_offsets({"readings": mark(40, 50)}, {"a": {0: 0, 1: 0}}, {"a": {0: 10, 1: 5}}) == {"a": {0: 0, 1: 0}}


def test_lost_ranges_are_exact() -> None:
    following = {"a": {0: 5, 1: 5, 2: 5, 3: 5}}
    oldest, newest = {"a": {0: 9, 1: 0, 2: 0}}, {"a": {0: 20, 1: 3, 2: 5}}
    assert gone(following, oldest, newest) == [("a", 0, 5, 9), ("a", 1, 5, 3), ("a", 3, 5, -1)]


def test_a_topic_made_anew_is_not_measured_by_the_offsets_of_the_old_one() -> None:
    marks = {"readings": mark(900, 1000), "dead_letters": None}
    kept = fitting(marks, {"a": {0: 10}})
    assert kept["readings"] is not None
    assert kept["readings"].ends == {"a": {}}
    assert fitting(marks, {"a": {0: 1000}})["readings"] == marks["readings"]


def test_a_torn_newest_commit_is_refused_and_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    for i in range(2):
        told = {"userMetadata": mark(i, i + 1).encode()}
        properties = CommitProperties(custom_metadata=told)
        write_deltalake(tmp_path / "t", pa.table({"x": [i]}), mode="append", commit_properties=properties)
    assert newest_mark(str(tmp_path), "t") == mark(1, 2)
    (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").write_bytes(b"")
    with pytest.raises(FatalError, match="empty or torn"):
        newest_mark(str(tmp_path), "t")

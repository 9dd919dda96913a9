"""The follower: every commit once, in order, only what was appended, from a table that may not be there yet."""

import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deploy.bench.e2e import RowCount, follow_rows
from lakehouse.table_follower import TableFollower


def append(root: Path, devices: list[str]) -> None:
    rows = pa.table({"device": devices, "seq": list(range(len(devices))), "date": ["2026-01-01"] * len(devices)})
    write_deltalake(root / "readings", rows, mode="append", partition_by=["date"])


def test_waits_for_a_table_that_is_not_there_and_then_sees_each_commit_once(tmp_path: Path) -> None:
    root = tmp_path / "with space"
    follower = TableFollower(str(root), "readings", columns=["device", "seq"])
    assert list(follower.poll()) == []
    append(root, ["a", "b"])
    append(root, ["c"])
    commits = list(follower.poll())
    assert [commit.version for commit in commits] == [0, 1]
    assert [commit.rows.column("device").to_pylist() for commit in commits] == [["a", "b"], ["c"]]
    assert all(commit.committed_at <= commit.seen_at + 1 for commit in commits)
    assert list(follower.poll()) == []


def test_begins_behind_the_newest_commit_and_reads_one_device_only(tmp_path: Path) -> None:
    append(tmp_path, ["canary"])
    follower = TableFollower(str(tmp_path), "readings", columns=["device", "seq"], device="canary")
    append(tmp_path, ["x", "y"])
    append(tmp_path, ["a", "canary", "z"])
    rows = [commit.rows for commit in follower.poll()]
    assert [table.num_rows for table in rows] == [0, 1]
    assert rows[1].column("seq").to_pylist() == [1]


def test_a_commit_that_only_rearranges_brings_no_rows(tmp_path: Path) -> None:
    append(tmp_path, ["a"])
    append(tmp_path, ["b"])
    follower = TableFollower(str(tmp_path), "readings", columns=["device"])
    DeltaTable(tmp_path / "readings").optimize.compact()
    assert [commit.rows.num_rows for commit in follower.poll()] == [0]


def test_a_commit_without_new_rows_has_the_columns(tmp_path: Path) -> None:
    append(tmp_path, ["a"])
    follower, count = TableFollower(str(tmp_path), "readings", columns=["device", "seq"]), RowCount(boot=1)
    DeltaTable(tmp_path / "readings").optimize.compact()
    append(tmp_path, ["b"])
    DeltaTable(tmp_path / "readings").optimize.compact()
    for commit in follower.poll():
        assert commit.rows.column_names == ["device", "seq"]
        count.add(replace(commit, rows=commit.rows.rename_columns(["device", "boot"])))
    assert count.rows == 0


def test_a_reader_that_fails_is_not_silent(tmp_path: Path) -> None:
    append(tmp_path, ["a"])
    follower = TableFollower(str(tmp_path), "readings", columns=["missing"], from_start=True)
    with pytest.raises(Exception, match="missing"), follow_rows(follower, RowCount(boot=1)):
        for thread in threading.enumerate():
            if thread.name == "reader":
                thread.join(60)

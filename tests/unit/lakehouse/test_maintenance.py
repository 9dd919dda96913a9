"""What maintenance decides by a table's log alone: which files, which days, which commits, which leftovers."""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.day import write_day
from ingest.contract.errors import FatalError
from lakehouse import maintenance
from lakehouse.maintenance import SMALL_BYTES, TableState, expired_files, plan_join, table_state
from lakehouse.maintenance_log import clean_log, commit_time, last_checkpoint, write_checkpoint
from lakehouse.maintenance_vacuum import SweepResult, sweep_files
from streaming.maintain.retention_holds import needed_since

TODAY = date(2026, 5, 3)
HOUR = 3600.0


def state(*files: tuple[str, int], name: str = "readings") -> TableState:
    """A table of files of (day, bytes)."""
    table = pa.table(
        {
            "path": [f"date={day}/{n}.parquet" for n, (day, _) in enumerate(files)],
            "size_bytes": pa.array([size for _, size in files], pa.int64()),
            "num_records": pa.array([10] * len(files), pa.int64()),
            "partition.date": pa.array([date.fromisoformat(day) for day, _ in files], pa.date32()),
        }
    )
    return TableState(name, "id", 7, ("date",), table, 0.1)


def sizes(made: TableState, **options: Any) -> list[int]:
    join = plan_join(made, open_from=TODAY, **options)
    by_path = dict(zip(made.files["path"].to_pylist(), made.files["size_bytes"].to_pylist(), strict=True))
    return sorted(by_path[file.path] for file in join.files) if join else []


def test_tiny_files_of_today_are_joined_once_they_are_many_and_larger_ones_stay() -> None:
    tiny, larger = ("2026-05-03", 1000), ("2026-05-03", 5 * 1024**2)
    assert sizes(state(*[tiny] * 59, larger)) == []
    assert sizes(state(*[tiny] * 60, larger)) == [1000] * 60
    assert sizes(state(*[tiny] * 3, *[larger] * 8)) == [5 * 1024**2] * 8
    assert sizes(state(tiny, tiny), everything=True) == [1000, 1000]


def test_what_is_left_of_a_day_that_is_over_becomes_one_file_and_a_file_alone_stays() -> None:
    over = "2026-05-02"
    assert sizes(state((over, 1000), (over, 20 * 1024**2), (over, SMALL_BYTES))) == [1000, 20 * 1024**2]
    assert sizes(state((over, 1000), (over, SMALL_BYTES), ("2026-05-01", 1000))) == []


def test_one_go_takes_no_more_than_its_bound_of_files_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    over = "2026-05-02"
    assert sizes(state(*[(over, 20 * 1024**2)] * 9)) == [20 * 1024**2] * 3
    monkeypatch.setattr(maintenance, "TARGET_FILES", 5)
    assert sizes(state(*[(over, 10)] * 9)) == [10] * 5


@given(st.lists(st.integers(1, 20 * 1024**2), max_size=40))
def test_joins_end_with_every_byte_in_place_and_each_rewritten_a_few_times(written: list[int]) -> None:
    files, rewritten = [("2026-05-02", size) for size in written], 0
    while join := plan_join(state(*files), open_from=TODAY):
        gone = {int(Path(file.path).stem) for file in join.files}
        rewritten += sum(files[n][1] for n in gone)
        files = [file for n, file in enumerate(files) if n not in gone]
        files.append(("2026-05-02", sum(f.bytes for f in join.files)))
    assert sum(size for _, size in files) == sum(written)
    assert sum(size < SMALL_BYTES for _, size in files) <= 1
    assert rewritten <= 4 * sum(written)


def test_days_go_when_they_are_older_than_is_kept_and_none_where_all_is_kept() -> None:
    made = state(("2026-04-30", 1), ("2026-05-01", 1), ("2026-05-01", 2), ("2026-05-03", 3))
    assert {day: len(files) for day, files in expired_files(made, keep_days=1, today=TODAY).items()} == {
        "2026-04-30": 1,
        "2026-05-01": 2,
    }
    assert expired_files(made, keep_days=0, today=TODAY) == {}
    # A gateway whose clock was months behind: the old date, landed today.
    landed = [datetime(2026, 5, day, tzinfo=UTC) for day in (3, 1, 1, 3)]
    lately = replace(made, files=made.files.append_column("max.landed_at", pa.array(landed)))
    assert list(expired_files(lately, keep_days=1, today=TODAY)) == ["2026-05-01"]
    assert expired_files(made, keep_days=30, today=TODAY) == {}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    """Six commits of a moment ago, in a folder with a space."""
    made = str(tmp_path / "the tables")
    write_day(made, commits=6, rows_per_commit=3, devices=2)
    yield made


@pytest.fixture
def age(root: str) -> Callable[..., None]:
    """`age(hours)` makes what is there so old: files by their times, removals by what the log says."""

    def back(hours: float) -> None:
        for path in Path(root).rglob("*"):
            if path.is_file():
                at = path.stat().st_mtime - hours * HOUR
                if path.suffix == ".json":
                    lines = [json.loads(line) for line in path.read_text().splitlines()]
                    for line in lines:
                        if "remove" in line:
                            line["remove"]["deletionTimestamp"] -= int(hours * HOUR * 1000)
                    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
                os.utime(path, (at, at))

    return back


def data_files(root: str) -> set[str]:
    return {path.name for path in Path(root).rglob("*.parquet") if "_delta_log" not in path.parts}


def log_names(root: str) -> list[str]:
    return sorted(path.name.lstrip("0") for path in (Path(root) / "readings" / "_delta_log").iterdir())


def test_files_go_once_no_version_that_is_kept_has_them_and_no_sooner(root: str, age: Any) -> None:
    before, folder = data_files(root), next(Path(root).glob("readings/date=*"))
    DeltaTable(f"{root}/readings").optimize.compact()
    (joined,) = data_files(root) - before
    (folder / "left-by-a-crash.parquet").write_bytes(b"half")

    age(23)
    assert sweep_files(root, "readings", keep_hours=24) == SweepResult(0, 0)
    age(2)
    (folder / "about-to-be-committed.parquet").write_bytes(b"new")
    assert sweep_files(root, "readings", keep_hours=24, dry_run=True).files == 7
    assert data_files(root) > before
    assert sweep_files(root, "readings", keep_hours=24).files == 7
    assert data_files(root) == {joined, "about-to-be-committed.parquet"}
    assert DeltaTable(f"{root}/readings").to_pyarrow_table().num_rows == 18


def test_a_vacuum_that_keeps_nothing_is_refused(root: str) -> None:
    with pytest.raises(FatalError, match=r"keeps 0 hours .* Keep at least 1 hour"):
        sweep_files(root, "readings", keep_hours=0)


def test_the_log_is_cut_behind_a_checkpoint_so_that_every_kept_version_can_be_read(root: str, age: Any) -> None:
    for path in (Path(root) / "readings" / "_delta_log").glob("*checkpoint*"):
        path.unlink()
    assert last_checkpoint(root, "readings") == -1
    assert write_checkpoint(root, "readings") == 6
    assert last_checkpoint(root, "readings") == 6
    keep_from = time.time() - 24 * HOUR
    assert clean_log(root, "readings", keep_from=keep_from) == 0
    age(25)
    assert clean_log(root, "readings", keep_from=time.time() - 26 * HOUR) == 0
    assert clean_log(root, "readings", keep_from=keep_from) == 6
    assert log_names(root) == ["6.checkpoint.parquet", "6.json", "_last_checkpoint"]
    assert DeltaTable(f"{root}/readings", version=6).to_pyarrow_table().num_rows == 18
    assert commit_time(root, "readings", 5) is None


@pytest.mark.parametrize("marked", ["app", "derived", "stream"])
@pytest.mark.parametrize(
    "later",
    [{"maintain": {"joined": 2}}, {"request": {"kind": "correct"}}, {"erased": "d"}, {"repair": "20261128"}, None, 5],
)
def test_the_commit_that_says_how_far_the_table_is_stays_in_the_log(
    root: str, age: Any, marked: str, later: Any
) -> None:
    log = Path(root) / "readings" / "_delta_log"
    for version, told in ((7, {marked: "a"}), (8, later)):
        commit = {"commitInfo": {"timestamp": 1, "userMetadata": json.dumps(told)}}
        (log / f"{version:020d}.json").write_text(json.dumps(commit) + "\n")
        write_checkpoint(root, "readings")
    age(25)
    clean_log(root, "readings", keep_from=time.time() - 24 * HOUR)
    assert [name for name in log_names(root) if name.endswith("json")] == ["7.json", "8.json"]


def test_checkpoints_of_one_hour_are_thinned_out_to_one(root: str) -> None:
    log = Path(root) / "readings" / "_delta_log"
    written = (log / f"{6:020d}.checkpoint.parquet").read_bytes()
    now = time.time()
    for version, hours in ((1, 3.0), (2, 2.9), (3, 2.2), (4, 1.5), (5, 0.1)):
        path = log / f"{version:020d}.checkpoint.parquet"
        path.write_bytes(written)
        os.utime(path, (now - hours * HOUR, now - hours * HOUR))
    clean_log(root, "readings", keep_from=now - 24 * HOUR)
    kept = [int(name.split(".")[0]) for name in log_names(root) if "checkpoint.p" in name]
    assert kept == [1, 4, 5, 6]


def test_what_the_slowest_derivation_has_not_seen_is_kept_for_it(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {"readings": 3}
    monkeypatch.setattr("streaming.maintain.retention_holds.read_cursor", lambda root, table: seen)
    monkeypatch.setattr("streaming.maintain.retention_holds.table_names", lambda root: ["readings", "latest"])
    default = time.time()
    written = (commit_time(root, "readings", 4) or 0) - HOUR  # its files are older than the commit
    assert needed_since(root, "readings", default=default) == written
    assert needed_since(root, "latest", default=default) == default
    seen["readings"] = 6
    assert needed_since(root, "readings", default=default) == default
    old = (datetime.now(UTC) - timedelta(days=8)).timestamp()
    os.utime(Path(root) / "readings" / "_delta_log" / f"{4:020d}.json", (old, old))
    seen["readings"] = 3
    assert needed_since(root, "readings", default=default) == pytest.approx(default - 7 * 86_400, abs=5)


def test_a_table_is_looked_at_once_and_what_was_joined_is_left_out(root: str) -> None:
    found = table_state(root, "readings")
    assert (found.file_count, found.small_count, found.partitioned_by) == (6, 6, ("date",))
    assert found.bytes == sum(path.stat().st_size for path in Path(root).glob("readings/date=*/*.parquet"))
    join = plan_join(found, open_from=TODAY, everything=True)
    assert join is not None
    assert join.rows == 18
    assert found.without(join.files).file_count == 0

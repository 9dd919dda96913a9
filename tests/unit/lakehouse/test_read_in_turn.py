"""Rows of a dataset in turn: as many as before, and memory that does not grow with the file."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from lakehouse.dataset import read_in_turn

GROUP_ROWS = 25_000


def table_of(groups: int) -> pa.Table:
    numbers = pa.array(range(groups * GROUP_ROWS), pa.int64())
    names = pa.array([f"device-{number:020d}" for number in range(groups * GROUP_ROWS)])
    return pa.table({"number": numbers, "place": pa.array([n % 1000 for n in range(len(numbers))]), "name": names})


def most_bytes(path: Path, groups: int) -> int:
    """The most memory that a look at the file takes; rows of every group meet the condition."""
    pq.write_table(table_of(groups), path, row_group_size=GROUP_ROWS)
    before, rows, most = pa.total_allocated_bytes(), 0, 0
    for batch in read_in_turn(ds.dataset(path), ["number", "name"], ds.field("place") == 7):
        rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == groups * GROUP_ROWS // 1000
    return most


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    assert most_bytes(tmp_path / "large.parquet", 30) < 3 * most_bytes(tmp_path / "small.parquet", 6)


@pytest.mark.parametrize("rows", [0, 5000])
def test_a_table_in_memory_is_read_as_well(rows: int) -> None:
    found = read_in_turn(ds.dataset(table_of(1).slice(0, rows)), ["number"], ds.field("place") == 7).read_all()
    assert found["number"].to_pylist() == [number for number in range(rows) if number % 1000 == 7]

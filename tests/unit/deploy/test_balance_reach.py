"""How much of a table the audit reads: the window and a little before it, and single identities of what lies farther back."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deploy.balance import BalanceFigures, MessageBalance
from deploy.bench import audit as bench
from ingest.contract.topics import DEAD_LETTERS, READINGS
from lakehouse.dataset import dataset_of
from tests.support.balance import DEAD_LETTER_ROWS, READING_ROWS, START_US, Row, World, assert_faults

DAYS = 20
_TIMES = ("received_at", "event_time", "landed_at")
_SCHEMA = pa.schema(
    [field.with_nullable(field.name not in _TIMES) for field in READING_ROWS]
    + [pa.field("landed_at", pa.timestamp("us", "UTC"), nullable=False)]
)


def earlier(row: Row, days: int, message_id: str) -> Row:
    """A row of the same reading, days before."""
    moved = {name: row[name] - timedelta(days=days) for name in ("received_at", "date", "event_time")}
    return row | moved | {"message_id": message_id, "offset": -days}


def strike(world: World, table: Path) -> BalanceFigures:
    with MessageBalance(START_US, from_the_start=True) as books:
        books.load_tables(dataset_of(DeltaTable(str(table))), pa.Table.from_pylist(world.letter_rows, DEAD_LETTER_ROWS))
        books.add_outcomes(world.outcomes)
        books.add_readings(world.records)
        books.add_dead_letters(world.letters)
        return books.balance({READINGS: {0: len(world.records)}, DEAD_LETTERS: {0: len(world.letters)}})


@pytest.fixture
def table(world: World, tmp_path: Path) -> Path:
    """The world's rows, and a file for each of the days before."""
    old = [earlier(world.rows[3], days, f"bs:0:{days}") for days in range(1, DAYS + 1)]
    for rows in (world.rows, *([row] for row in old)):
        landed = [row | {"landed_at": row["received_at"]} for row in rows]
        write_deltalake(
            str(tmp_path / "readings"), pa.Table.from_pylist(landed, _SCHEMA), mode="append", partition_by=["date"]
        )
    return tmp_path / "readings"


def break_days(table: Path, days: range) -> None:
    """Files that nobody can open: who reads one fails."""
    newest = max(folder.name for folder in table.glob("date=*"))
    for folder in table.glob("date=*"):
        age = (
            pa.scalar(newest[5:]).cast(pa.date32()).as_py() - pa.scalar(folder.name[5:]).cast(pa.date32()).as_py()
        ).days
        for file in folder.glob("*.parquet"):
            if age in days:
                file.write_bytes(b"no parquet")


def test_the_bench_audits_a_window_that_balances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "FILE_ROWS", 2000)
    result = bench.measure_audit(rows=(2000, 20_000), messages=1500, runs=1)
    assert result["balanced"]
    assert [cell["rows"] for cell in result["cells"]] == [2000, 20_000]
    assert "next to        20,000 rows" in bench.render_audit(result)


def test_files_outside_the_window_are_not_opened(world: World, table: Path) -> None:
    break_days(table, range(1, DAYS + 1))
    assert_faults(strike(world, table))


def test_a_copy_opens_the_days_in_which_a_broker_may_have_kept_it(world: World, table: Path) -> None:
    world.store("a", "bs:0:5", land=False)
    break_days(table, range(10, DAYS + 1))
    figures = strike(world, table)
    assert_faults(figures)
    assert figures.duplicate == 1


def test_a_copy_of_an_older_row_is_found_in_the_rest_of_the_table(world: World, table: Path) -> None:
    world.store("a", "bs:0:15", land=False)
    assert strike(world, table).duplicate == 1


def test_a_double_of_a_late_reading_is_found_where_it_was_measured(world: World, table: Path) -> None:
    late_us = START_US - 3 * 86_400 * 1_000_000
    world.store("a", "bs:0:3", time_us=late_us)
    rows = [world.rows[-1] | {"landed_at": world.rows[-1]["received_at"]}]
    write_deltalake(str(table), pa.Table.from_pylist(rows, _SCHEMA), mode="append", partition_by=["date"])
    break_days(table, range(10, DAYS + 1))
    assert_faults(strike(world, table), duplicate_rows=1)

"""Tables as data and as Delta has them, catalog, SQL and rendering: all without a JVM."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.contract.errors import FatalError, TidegateError, UnavailableError
from lakehouse.catalog import columns_of, history_of, list_tables, open_table
from lakehouse.create import ensure_tables
from lakehouse.dataset import dataset_of
from lakehouse.query import run_sql
from lakehouse.render import render_table
from lakehouse.tables import TABLES, spark_ddl

NOW = datetime(2026, 5, 1, 12, 30, 0, 250_000, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Tables in a folder with a space in its name, one row in `readings`."""
    folder = str(tmp_path / "my tables")
    ensure_tables(folder, TABLES.values(), log_retention_hours=24)
    return folder


def add_reading(root: str, **more: Any) -> None:
    schema = pa.schema(DeltaTable(f"{root}/readings").schema().to_arrow())
    times = dict.fromkeys(("event_time", "received_at", "kafka_time", "landed_at"), NOW)
    values = {
        "device": "d",
        "metric": "t",
        "value": 21.5,
        "time_source": "device",
        "index": 0,
        "date": NOW.date(),
        **times,
    } | more
    row = {name: values.get(name) for name in schema.names}
    write_deltalake(f"{root}/readings", pa.Table.from_pylist([row], schema=schema), mode="append")


def test_every_column_has_a_comment_in_the_definition_and_in_delta(root: str) -> None:
    for table in TABLES.values():
        shown = columns_of(root, table.name)
        assert [column.name for column in shown] == [column.name for column in table.columns]
        assert [column.type for column in shown] == [column.type for column in table.columns]
        assert all(column.comment.strip() for column in shown)
        assert "COMMENT" in spark_ddl(table)


def test_tables_need_no_feature_that_some_reader_lacks(root: str) -> None:
    for name in TABLES:
        protocol = DeltaTable(f"{root}/{name}").protocol()
        assert (protocol.min_reader_version, protocol.reader_features) == (1, None)


def test_creating_again_changes_nothing(root: str) -> None:
    ensure_tables(root, TABLES.values(), log_retention_hours=24)
    assert DeltaTable(f"{root}/readings").version() == 0


def test_a_table_of_another_shape_is_refused_by_name(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "readings"), pa.table({"device": [1]}))
    with pytest.raises(FatalError, match=r"column device is .*wanted string"):
        ensure_tables(str(tmp_path), TABLES.values(), log_retention_hours=24)


def test_sql_sees_the_tables_by_name(root: str) -> None:
    add_reading(root)
    answer = run_sql(
        root,
        "SELECT r.device, count(d.reason) AS refused FROM Readings r LEFT JOIN dead_letters d USING (device) GROUP BY 1",
    )
    assert answer.to_pylist() == [{"device": "d", "refused": 0}]


def test_sql_reads_an_older_version_and_time(root: str) -> None:
    add_reading(root)
    assert run_sql(root, "FROM readings", version=0).num_rows == 0
    assert run_sql(root, "FROM readings", at=datetime.now(UTC)).num_rows == 1
    with pytest.raises(UnavailableError, match="no version 99"):
        run_sql(root, "FROM readings", version=99)


def test_a_wrong_column_is_answered_with_the_right_one(root: str) -> None:
    with pytest.raises(TidegateError, match='"device"') as caught:
        run_sql(root, "SELECT devise FROM readings")
    assert caught.value.exit_code == 1


def test_a_wrong_table_is_answered_with_those_that_are_there(root: str) -> None:
    with pytest.raises(TidegateError, match="The tables here are: dead_letters, duplicates, readings"):
        run_sql(root, "SELECT 1 FROM reading")


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO 'out.csv'",
        "FROM read_csv('/etc/passwd')",
        "ATTACH 'x.db'",
        "SET enable_external_access = true",
    ],
)
def test_sql_can_not_touch_files(root: str, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(TidegateError):
        run_sql(root, sql)
    assert sorted(tmp_path.iterdir()) == before


def test_without_tables_the_next_step_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="tidegate up"):
        run_sql(str(tmp_path / "nothing"), "SELECT 1")


def test_the_catalog_counts_and_tells_history(root: str) -> None:
    add_reading(root)
    tables = {table.name: table for table in list_tables(root)}
    assert (tables["readings"].rows, tables["readings"].files, tables["readings"].version) == (1, 1, 1)
    assert tables["dead_letters"].rows == 0
    assert [commit.version for commit in history_of(root, "readings")] == [1, 0]
    with pytest.raises(UnavailableError, match="no table rollups"):
        open_table(root, "rollups")


ODD = pa.table(
    {
        "t": pa.array([NOW], pa.timestamp("us", tz="UTC")),
        "raw": pa.array([b"\xff\x00"], pa.binary()),
        "v": [float("nan")],
        "tags": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
        "text": ["line\nbreak"],
    }
)


def test_json_holds_times_bytes_and_maps() -> None:
    (row,) = json.loads(render_table(ODD, "json"))
    assert row == {
        "t": "2026-05-01T12:30:00.250000Z",
        "raw": "/wA=",
        "v": None,
        "tags": {"a": "b"},
        "text": "line\nbreak",
    }


def test_a_table_for_people_keeps_to_its_lines() -> None:
    lines = render_table(ODD, "table").decode().splitlines()
    assert len(lines) == 4
    assert "2026-05-01T12:30:00.250000Z" in lines[2]
    assert "0xff00" in lines[2]
    assert lines[3] == "(1 row)"


def test_csv_and_parquet_are_whole() -> None:
    assert render_table(ODD, "csv").decode().splitlines()[0] == "t,raw,v,tags,text"
    assert pq.read_table(pa.BufferReader(render_table(ODD, "parquet"))).num_rows == 1


def test_files_are_skipped_by_their_times_and_no_row_is_lost_for_it(root: str) -> None:
    for second in range(5):
        at = NOW.replace(second=second, microsecond=999_999)
        add_reading(root, metric=f"m{second}", received_at=at, landed_at=at)
    assert run_sql(root, "select metric from readings where landed_at = '2026-05-01 12:30:03.999999'").to_pylist() == [
        {"metric": "m3"}
    ]
    assert run_sql(root, "select count(*) n from readings where date = '2026-05-01'").to_pylist() == [{"n": 5}]
    dataset = dataset_of(open_table(root, "readings"))
    assert (
        len(
            list(
                dataset.get_fragments(
                    ds.field("landed_at") < pa.scalar(NOW.replace(second=1), pa.timestamp("us", "UTC"))
                )
            )
        )
        == 1
    )


def test_a_table_of_an_older_version_gets_the_new_columns_and_keeps_its_rows(tmp_path: Path) -> None:
    new = ("message_id", "retain", "may_have_waited", "waited_since")
    table = TABLES["dead_letters"]
    older = replace(table, columns=tuple(column for column in table.columns if column.name not in new))
    ensure_tables(str(tmp_path), [older], log_retention_hours=24)
    schema = pa.schema(DeltaTable(f"{tmp_path}/dead_letters").schema().to_arrow())
    values = {"reason": "bad_json", "stage": "gateway", "attempt": 0, "source_topic": "t", "partial": False}
    values |= {"received_at": NOW, "landed_at": NOW, "date": NOW.date()}
    row = {name: values.get(name) for name in schema.names}
    write_deltalake(f"{tmp_path}/dead_letters", pa.Table.from_pylist([row], schema=schema), mode="append")
    ensure_tables(str(tmp_path), TABLES.values(), log_retention_hours=24)
    (kept,) = run_sql(str(tmp_path), "SELECT reason, message_id, retain FROM dead_letters").to_pylist()
    assert kept == {"reason": "bad_json", "message_id": None, "retain": None}

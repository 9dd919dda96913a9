"""Which files a query opens, what it may do, and what it is told: answers never depend on the files left out."""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake

from ingest.contract.errors import TidegateError
from lakehouse import query
from lakehouse.create import ensure_tables
from lakehouse.dataset import dataset_of
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.query import run_sql
from lakehouse.scan import FileScan, local_path, needed_files, scan_of

NOW = datetime.now(UTC)
FILES = 40


def rows_of(root: str, table: str, rows: list[dict[str, Any]]) -> None:
    schema = pa.schema(DeltaTable(f"{root}/{table}").schema().to_arrow())
    full = [{name: row.get(name) for name in schema.names} for row in rows]
    write_deltalake(f"{root}/{table}", pa.Table.from_pylist(full, schema=schema), mode="append")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """More files of readings than are opened unasked: file k holds the minute that began k * 10 minutes ago."""
    root = str(tmp_path_factory.mktemp("query") / "my=own tables")
    ensure_tables(root, ALL_TABLES.values(), log_retention_hours=24)
    chance = random.Random(4)
    for k in range(FILES):
        rows = []
        for i in range(5):
            at = NOW - timedelta(minutes=10 * k, seconds=12 * i + chance.random())
            times = dict.fromkeys(("event_time", "received_at", "kafka_time", "landed_at"), at)
            more = {"time_source": "device", "index": 0, "partition": 0, "offset": 5 * k + i}
            rows.append({"device": f"d{i}", "metric": "m", "value": float(k), "date": at.date(), **times, **more})
        rows_of(root, "readings", rows)
    rows_of(
        root,
        "devices",
        [
            {"device": f"d{i}", "first_seen": NOW, "last_seen": NOW - timedelta(hours=i), "updated_at": NOW}
            for i in range(3)
        ],
    )
    return root


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files each plan left."""
    counts: list[int] = []

    def counted(plan: str, scan: FileScan) -> list[str]:
        found = needed_files(plan, scan)
        counts.append(len(found))
        return found

    monkeypatch.setattr(query, "needed_files", counted)
    return counts


def whole(root: str, sql: str) -> list[dict[str, Any]]:
    """The answer where every file is opened, by Arrow."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("readings", "devices"):
        connection.register(name, dataset_of(DeltaTable(f"{root}/{name}")))
    return list(connection.sql(sql).to_arrow_table().to_pylist())


HOUR = "now() - INTERVAL 1 HOUR"


@pytest.mark.parametrize(
    ("sql", "most"),
    [
        (f"SELECT count(*) AS n FROM readings WHERE event_time > {HOUR}", 8),
        (f"SELECT count(*) AS n FROM readings WHERE received_at BETWEEN {HOUR} AND now()", 8),
        (f"SELECT min(value) AS v FROM readings WHERE landed_at < {HOUR} AND event_time >= now() - INTERVAL 2 HOUR", 8),
        (f"SELECT device, value FROM readings WHERE event_time > {HOUR} ORDER BY landed_at DESC LIMIT 3", 8),
        (f"SELECT count(*) AS n FROM readings r JOIN devices d USING (device) WHERE r.event_time > {HOUR}", 8),
        (
            f"WITH r AS (FROM readings WHERE event_time > {HOUR}) SELECT count(*) AS n FROM r a JOIN r b USING (device)",
            8,
        ),
        (f"SELECT count(*) AS n FROM (SELECT *, lag(value) OVER () FROM readings) WHERE event_time > {HOUR}", FILES),
        (
            f"SELECT (SELECT count(*) FROM readings) AS n, max(value) AS v FROM readings WHERE event_time > {HOUR}",
            FILES,
        ),
        (
            "SELECT count(*) AS n FROM readings WHERE event_time > (SELECT max(last_seen) FROM devices) - INTERVAL 1 HOUR",
            FILES,
        ),
        (f"SELECT count(*) AS n FROM readings WHERE event_time > {HOUR} OR device = 'd1'", FILES),
        (
            f"SELECT count(*) AS n FROM readings WHERE event_time > {HOUR} AND event_time < now() - INTERVAL 2 HOUR",
            FILES,
        ),
        ("SELECT count(*) AS n FROM readings WHERE event_time > now() + INTERVAL 1 DAY", 1),
        ("SELECT count(*) AS n FROM readings WHERE date = current_date", FILES),
        (f"SELECT count(*) AS n FROM readings WHERE date >= '2020-01-01' AND received_at > {HOUR}", 8),
        ("SELECT count(*) AS n, sum(value) AS v FROM readings", FILES),
    ],
)
def test_only_files_of_the_wanted_times_are_opened(root: str, opened: list[int], sql: str, most: int) -> None:
    assert run_sql(root, sql).to_pylist() == whole(root, sql)
    assert len(opened) == 1
    assert opened[0] <= max(most, 1)
    assert opened[0] == FILES or most < FILES


def test_any_condition_on_times_finds_what_a_whole_scan_finds(root: str) -> None:
    chance = random.Random(7)
    for _ in range(15):
        conditions = []
        for column in chance.sample(["event_time", "received_at", "landed_at"], 2):
            at = NOW - timedelta(minutes=chance.uniform(-5, 420))
            sign = chance.choice([">", ">=", "<", "<=", "<>"])
            conditions.append(f"{column} {sign} '{at.isoformat()}'")
        joint = chance.choice([" AND ", " AND ", " OR "])
        sql = f'SELECT count(*) AS n, sum("offset") AS s FROM readings WHERE {joint.join(conditions)}'
        assert run_sql(root, sql).to_pylist() == whole(root, sql), sql


def test_a_time_on_the_edge_of_a_cut_statistic_is_found(root: str) -> None:
    for at in [row["event_time"] for row in run_sql(root, "SELECT event_time FROM readings").to_pylist()][::19]:
        sql = f"SELECT count(*) AS n FROM readings WHERE event_time = '{at.isoformat()}'"
        assert run_sql(root, sql).to_pylist() == [{"n": 1}]


def test_a_column_that_old_files_lack_is_null_in_them(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    write_deltalake(uri, pa.table({"a": pa.array([1], pa.int32()), "day": ["x"]}), partition_by=["day"])
    new = pa.table({"a": pa.array([2], pa.int32()), "b": ["new"], "day": ["y"]})
    write_deltalake(uri, new, mode="append", schema_mode="merge")
    rows = run_sql(str(tmp_path), "SELECT a, b, day FROM t ORDER BY a").to_pylist()
    assert rows == [{"a": 1, "b": None, "day": "x"}, {"a": 2, "b": "new", "day": "y"}]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("struct", pa.table({"a": [{"x": 1}]})),
        ("escaped", pa.table({"a": [1], "day": ["x/y%"]})),
        ("missing", pa.table({"a": [1], "day": pa.array([None], pa.string())})),
    ],
)
def test_what_duckdb_cannot_read_by_path_is_read_by_arrow(tmp_path: Path, name: str, rows: pa.Table) -> None:
    uri = str(tmp_path / name / "t")
    write_deltalake(uri, rows, partition_by=["day"] if "day" in rows.column_names else None)
    assert scan_of(DeltaTable(uri)) is None
    assert run_sql(str(tmp_path / name), "FROM t").to_pylist() == rows.to_pylist()
    assert local_path("/data/[1]*/t") is None
    assert local_path("s3://bucket/t") is None


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM readings",
        "INSERT INTO readings SELECT * FROM readings",
        "CREATE TABLE x AS SELECT 1",
        "COPY (SELECT 1) TO '{root}/readings/x.parquet'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{root}/readings/x.parquet'",
        "-- why\nexplain (format json) create table x (a int)",
        "COPY (PIVOT readings ON device USING max(value)) TO '{root}/readings/x.parquet'",
        "SET VARIABLE x = 1",
        "PRAGMA database_list",
        # Comments nest, and hold no word of the statement.
        "EXPLAIN (ANALYZE /*) SELECT 1 -- */) COPY (SELECT 1) TO '{root}/readings/x.parquet'",
        "/* /* */ EXPLAIN SELECT 1 -- */ EXPLAIN ANALYZE COPY (SELECT 1) TO '{root}/readings/x.parquet'",
        "/* ü€ */ EXPLAIN/**/ANALYZE COPY (SELECT 1) TO '{root}/readings/x.parquet'",
        "/* /* */ SELECT 1 -- */ COPY (PIVOT readings ON device USING max(value)) TO '{root}/readings/x.parquet'",
        # Parts of a query that write, or run a text.
        "WITH x AS (COPY (SELECT 1) TO '{root}/readings/x.parquet') SELECT 1 FROM readings",
        "(WITH w AS (SELECT 1), x AS NOT MATERIALIZED (COPY readings TO '{root}/readings/x.parquet') FROM readings)",
        "EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1) TO '{root}/readings/x.parquet') SELECT 1 FROM readings",
        "WITH x AS (INSERT INTO readings SELECT * FROM readings RETURNING *) SELECT * FROM x",
        "WITH x AS (DELETE FROM readings) SELECT 1",
        "FROM readings, json_execute_serialized_sql(json_serialize_sql('WITH x AS (COPY (SELECT 1) TO "
        "''{root}/readings/x.parquet'') SELECT 1'))",
        "FROM \"QUERY\"('FROM json_execute_serialized_sql(json_serialize_sql(''WITH x AS (COPY (SELECT 1) TO "
        "{root}/readings/x.parquet) SELECT 1''))'), readings",
        "PIVOT (FROM readings, system.main.json_execute_serialized_sql/**/(json_serialize_sql('WITH x AS (COPY (SELECT 1) "
        "TO ''{root}/readings/x.parquet'') SELECT 1'))) ON device USING max(value)",
        "FROM readings, arrow_scan(1, 2, 3)",
    ],
)
def test_what_is_no_query_is_refused_in_a_sentence(root: str, sql: str) -> None:
    with pytest.raises(TidegateError, match="only reads, but this is"):
        run_sql(root, sql.format(root=root))
    assert not list(Path(root).rglob("x.parquet"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM '{secret}'",
        "SELECT * FROM read_csv('{root}/readings/../../secret.csv')",
        "SELECT * FROM glob('{root}/../*')",
        "WITH s AS (FROM read_blob('{secret}')) SELECT * FROM s, readings",
        "SELECT getenv('PATH')",
        "FROM query('COPY (SELECT 1) TO ''{root}/x.csv''')",
    ],
)
def test_nothing_but_the_tables_is_read(root: str, sql: str) -> None:
    secret = Path(root).parent / "secret.csv"
    secret.write_text("the canary's words\n")
    with pytest.raises(TidegateError) as refused:
        run_sql(root, sql.format(root=root, secret=secret))
    assert "canary's words" not in str(refused.value)
    assert not list(Path(root).rglob("x.csv"))


def test_one_query_at_a_time(root: str) -> None:
    for sql, found in (("SELECT 1; SELECT 2", "2 statements"), ("  -- nothing", "none")):
        with pytest.raises(TidegateError, match=found):
            run_sql(root, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "/* plan */ EXPLAIN FROM readings",
        "/* é /* in */ plan */ explain analyze (FORMAT 'json') /* it */ FROM readings",
        "EXPLAIN (ANALYZE, FORMAT json) SELECT ')' FROM readings",
        "-- all\nPIVOT (FROM readings, unnest([1, 2]) AS u(n)) ON device USING sum(n)",
        "WITH a AS MATERIALIZED (FROM readings), b AS (FROM a) SELECT * FROM b, range(2) UNION ALL BY NAME SELECT * FROM a",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) FROM r, LATERAL unnest([n])",
        "SELECT (SELECT max(value) FROM readings), list_transform([1], lambda x: x + 1), json_tree.key FROM json_tree('{}')",
        "FROM readings ASOF JOIN devices ON readings.event_time >= devices.last_seen",
        "UNPIVOT (SELECT 1 AS a, 2 AS b) ON a, b",
        "FROM (DESCRIBE readings)",
        "SELECT count(*) FROM duckdb_settings()",
        "PIVOT readings ON device USING max(value)",
        "DESCRIBE readings",
        "SUMMARIZE readings",
        "SHOW TABLES",
        "VALUES (1)",
    ],
)
def test_questions_about_tables_are_queries(root: str, sql: str) -> None:
    assert run_sql(root, sql).num_columns


def test_an_unknown_name_is_answered_with_the_near_one(root: str) -> None:
    with pytest.raises(TidegateError, match=r"Did you mean rollups_5m\? The tables here are: dead_letters, devices, "):
        run_sql(root, "SELECT 1 FROM rollup_5m")


def test_a_table_that_needs_more_than_its_files_is_refused_by_name(tmp_path: Path) -> None:
    uri, schema = str(tmp_path / "t"), Schema([Field("a", "long")])
    DeltaTable.create(uri, schema=schema)
    log = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    needs: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
    needs |= {key: ["deletionVectors"] for key in ("readerFeatures", "writerFeatures")}
    actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    changed = [{"protocol": needs} if "protocol" in action else action for action in actions]
    log.write_text("\n".join(map(json.dumps, changed)), encoding="utf-8")
    with pytest.raises(TidegateError, match=r"Table t needs a reader with deletionVectors.*--engine spark"):
        run_sql(str(tmp_path), "FROM t")


def test_a_plan_with_something_unknown_leaves_nothing_out(root: str) -> None:
    scan = scan_of(DeltaTable(f"{root}/readings"))
    assert scan is not None

    def plan(*leaves: dict[str, Any]) -> str:
        return json.dumps([{"name": "PROJECTION", "children": list(leaves)}])

    def leaf(name: str, *filters: str) -> dict[str, Any]:
        return {"name": name, "children": [], "extra_info": {"Filters": list(filters)}}

    late = "(event_time > '2999-01-01 00:00:00.5+00'::TIMESTAMP WITH TIME ZONE)"
    count: Callable[..., int] = lambda *leaves: len(needed_files(plan(*leaves), scan))  # noqa: E731
    assert count(leaf("READ_PARQUET", late)) == 0
    assert count(leaf("READ_PARQUET", f"optional: {late}")) == 0
    assert count(leaf("READ_PARQUET", late), leaf("READ_PARQUET")) == FILES
    assert count(leaf("READ_PARQUET", late), leaf("EMPTY_RESULT")) == FILES
    assert count(leaf("READ_PARQUET", late), leaf("SOMETHING_NEW")) == FILES
    assert count(leaf("READ_PARQUET", f"({late} OR (device = 'x'))")) == FILES
    assert count(leaf("READ_PARQUET", f"(device = 'x AND {late.replace(chr(39), chr(39) * 2)}')")) == FILES
    assert count(leaf("READ_PARQUET", "(event_time > '99999-01-01 00:00:00+00'::TIMESTAMP WITH TIME ZONE)")) == FILES

"""What Spark writes for us reads the same everywhere, without a feature that some reader lacks; one query, five engines."""

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from deploy.cli import run
from ingest.contract.errors import TidegateError, UnavailableError
from lakehouse.append import Appender
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.query import run_spark_sql, run_sql
from lakehouse.session import LakeSession
from lakehouse.show_code import NamedTable, render_code
from lakehouse.tables import READINGS
from lakehouse.views import View, names_in_query, shipped_views, views_in, wide_view
from tests.support.counters import gains_of, odd_counters, reading_rows

MIDNIGHT = datetime(2026, 5, 2, tzinfo=UTC)
WIDE = wide_view("odd-ones", {"temperature": "number", "o'clock \"\\": "any", "door": "boolean", "state": "enum"})


def reading(number: int, metric: str, **more: Any) -> tuple[Any, ...]:
    at = MIDNIGHT + timedelta(seconds=number, microseconds=123_456)
    values = {
        "device": f"d{number % 3}",
        "metric": metric,
        "event_time": at,
        "time_source": "device",
        "index": 0,
        "flags": ["no_identity"] if number == 1 else [],
        "tags": {"floor": "ö\n"} if number % 2 else None,
        "partition": 0,
        "offset": number,
        "date": at.date(),
        **dict.fromkeys(("received_at", "kafka_time", "landed_at"), at),
        **more,
    }
    return tuple(values.get(column.name) for column in READINGS.columns)


@pytest.fixture(scope="module")
def root(lake: LakeSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """`readings` of two days in two commits, by what lands rows; the other tables are empty."""
    root = str(tmp_path_factory.mktemp("readers") / "tables")
    ensure_tables(root, ALL_TABLES.values(), log_retention_hours=24)
    schema = ", ".join(f"`{column.name}` {column.type}" for column in READINGS.columns)
    appender = Appender(lake.spark, root, READINGS)

    def write(*rows: tuple[Any, ...]) -> int:
        with appender.begin() as append:
            append.write(lake.spark.createDataFrame(list(rows), schema).coalesce(1))
            return append.commit(json.dumps({"why": "test"}))

    write(*(reading(i, "temperature", value=20.5 + i) for i in range(-5, 5)))
    write(
        reading(6, "temperature", value=math.nan),
        reading(6, "temperature", value=7.0, index=1),
        reading(6, "o'clock \"\\", value=12.0),
        reading(6, "door", value=1.0, text="true"),
        reading(7, "state", text="on"),
        reading(9, "state", text="on", retained=True, flags=["retained"]),
        reading(8, "big", value=9007199254740993.0, text="9007199254740993", unit="°C"),
    )
    return root


def plain_rows(found: Any) -> list[dict[str, Any]]:
    """Rows of any reader in one form."""
    if isinstance(found, pd.DataFrame):
        found = pa.Table.from_pandas(found, preserve_index=False)
    elif isinstance(found, pl.DataFrame):
        found = found.to_arrow()
    elif not isinstance(found, pa.Table):
        found = found.toArrow() if hasattr(found, "toArrow") else found.to_arrow_table()
    rows = [{name: _plain(value) for name, value in row.items()} for row in found.to_pylist()]
    return sorted(rows, key=lambda row: json.dumps(row, default=str))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        # Polars has no maps: it shows one as a list of pairs, as Arrow does.
        pairs = [tuple(item.values()) if isinstance(item, dict) else item for item in value]
        return dict(pairs) if pairs and isinstance(pairs[0], tuple) else pairs
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def test_every_reader_sees_the_same_rows(lake: LakeSession, root: str) -> None:
    uri = f"{root}/readings"
    ours = plain_rows(run_sql(root, "FROM readings"))
    assert len(ours) == 17
    assert {row["date"] for row in ours} == {date(2026, 5, 1), date(2026, 5, 2)}
    table = DeltaTable(uri)
    assert plain_rows(pa.table(table.to_pyarrow_table())) == ours
    assert plain_rows(pl.read_delta(uri)) == ours
    assert plain_rows(lake.spark.read.format("delta").load(uri)) == ours
    import duckdb

    connection = duckdb.connect()
    connection.register("readings", table.to_pyarrow_dataset())
    assert plain_rows(connection.sql("FROM readings")) == ours
    frame = table.to_pandas()  # NaN and null are one in pandas
    assert sorted(frame["event_time"]) == sorted(row["event_time"] for row in ours)
    assert sum(frame["tags"].notna()) == sum(row["tags"] is not None for row in ours)


def test_no_table_needs_a_feature_that_a_reader_may_lack(root: str) -> None:
    for name in ALL_TABLES:
        table = DeltaTable(f"{root}/{name}")
        protocol, properties = table.protocol(), table.metadata().configuration
        assert (protocol.min_reader_version, protocol.reader_features) == (1, None), name
        assert properties["delta.enableDeletionVectors"] == "false", name
        assert "delta.columnMapping.mode" not in properties, name


def test_times_stand_in_the_files_as_microseconds_with_statistics(root: str) -> None:
    for file in Path(root, "readings").glob("*/*.parquet"):
        found = pq.ParquetFile(file)
        column = found.schema_arrow.names.index("event_time")
        assert found.schema_arrow.field("event_time").type == pa.timestamp("us", "UTC")
        assert found.metadata.row_group(0).column(column).statistics.has_min_max


@pytest.fixture
def programs(lake: LakeSession, root: str, tmp_path: Path) -> Iterator[Any]:
    """Runs what --show-code prints; the tables lie in a folder with a space in its name."""
    (tmp_path / "the tables").symlink_to(root)
    root = str(tmp_path / "the tables")

    def answers(sql: str, version: int | None = None, views: tuple[View, ...] = ()) -> dict[str, Any]:
        used = views_in(sql, views)
        names = names_in_query(" ".join([sql, *(view.sql for view in used)]), ALL_TABLES)
        opened = [NamedTable(name, f"{root}/{name}", version) for name in names]
        found = {}
        for engine, program in render_code(sql, opened, used).items():
            space: dict[str, Any] = {}
            exec(compile(program, engine, "exec"), space)  # noqa: S102 - what --show-code prints
            found[engine] = plain_rows(space["answer"])
        return found

    yield answers
    lake.spark.catalog.dropTempView("readings")


@pytest.mark.parametrize(
    ("sql", "version"),
    [
        (
            "SELECT device, count(*) AS n, max(value) AS top FROM readings WHERE metric = 'temperature' GROUP BY device",
            1,
        ),
        (
            "SELECT r.metric, r.unit FROM readings r\nLEFT JOIN devices d ON r.device = d.device WHERE r.unit = '°C'",
            None,
        ),
    ],
)
def test_the_four_programs_give_our_answer(programs: Any, root: str, sql: str, version: int | None) -> None:
    ours = plain_rows(run_sql(root, sql, version=version))
    assert ours
    assert programs(sql, version) == dict.fromkeys(("duckdb", "polars", "pandas", "spark"), ours)


def test_a_view_is_the_same_in_every_program(programs: Any, root: str) -> None:
    sql = "SELECT * FROM readings_wide_odd_ones WHERE door OR state = 'on'"
    ours = plain_rows(run_sql(root, sql, views=[WIDE]))
    assert [(row["temperature"], row["o'clock \"\\"], row["door"], row["state"]) for row in ours] == [
        ("NaN", 12.0, True, None),
        (None, None, None, "on"),
    ]
    found = programs(sql, views=(WIDE,))
    assert found.pop("pandas")  # NaN and null are one in pandas
    assert found == dict.fromkeys(("duckdb", "polars", "spark"), ours)


def test_spark_counts_gains_by_the_rule(lake: LakeSession, tmp_path: Path) -> None:
    counters = odd_counters(60)
    pq.write_table(reading_rows(counters), tmp_path / "readings.parquet")
    lake.spark.read.parquet(f"file://{tmp_path}/readings.parquet").createOrReplaceTempView("readings")
    sql = shipped_views()[0].spark
    rows = (
        lake.spark.sql(f"SELECT metric, delta, event, pending FROM ({sql}) ORDER BY metric, event_time")
        .toArrow()
        .to_pylist()
    )
    lake.spark.catalog.dropTempView("readings")
    for metric, readings in counters.items():
        found = [(row["delta"], row["event"], row["pending"]) for row in rows if row["metric"] == metric]
        wanted = gains_of(readings)
        assert [event for _, event, _ in found] == [gain.event for gain in wanted]
        assert found[0][0] is None
        assert [delta for delta, _, _ in found[1:]] == pytest.approx([gain.delta for gain in wanted[1:]])
        assert [pending for _, _, pending in found] == pytest.approx([gain.pending for gain in wanted])


def test_spark_answers_as_duckdb_does_and_changes_nothing(lake: LakeSession, root: str) -> None:
    sql = "SELECT device, count(*) AS n, min(event_time) AS first FROM readings GROUP BY device"
    for travel in ({}, {"version": 1}, {"version": 0}, {"at": datetime.now(UTC)}):
        assert plain_rows(run_spark_sql(lake.spark, root, sql, **travel)) == plain_rows(run_sql(root, sql, **travel))
    wide = run_spark_sql(lake.spark, root, "SELECT count(*) AS n FROM readings_wide_odd_ones", views=[WIDE])
    assert (
        wide.to_pylist() == run_sql(root, "SELECT count(*) AS n FROM readings_wide_odd_ones", views=[WIDE]).to_pylist()
    )
    gained = "SELECT device, metric, delta, event FROM counter_deltas WHERE metric = 'temperature' AND value < 30"
    counted = run_spark_sql(lake.spark, root, gained, views=shipped_views())
    assert plain_rows(counted) == plain_rows(run_sql(root, gained, views=shipped_views()))
    before = DeltaTable(f"{root}/readings").version()
    for command in (
        f"DELETE FROM delta.`{root}/readings`",
        f"WITH x AS (SELECT 1) INSERT INTO delta.`{root}/latest` SELECT * FROM x",
        "CREATE TABLE t (a int)",
        "SET spark.sql.shuffle.partitions = 1",
    ):
        with pytest.raises(TidegateError, match="only reads"):
            run_spark_sql(lake.spark, root, command)
    assert DeltaTable(f"{root}/readings").version() == before
    with pytest.raises(TidegateError, match=r"`reading` cannot be found\. Did you mean readings\?"):
        run_spark_sql(lake.spark, root, "SELECT * FROM reading")
    with pytest.raises(TidegateError, match="devise"):
        run_spark_sql(lake.spark, root, "SELECT devise FROM readings")
    with pytest.raises(UnavailableError, match="tidegate up"):
        run_spark_sql(lake.spark, f"{root}/nothing", "SELECT 1")


def test_the_command_asks_spark(
    lake: LakeSession, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Kept:
        spark = lake.spark

        def close(self) -> None:
            """The session is the tests'."""

    given: dict[str, Any] = {}

    def open_session(jvm: Any, **more: Any) -> Kept:
        given.update(more)
        return Kept()

    monkeypatch.setattr("lakehouse.session.open_session", open_session)
    config = tmp_path / "c.toml"
    config.write_text(f"[lake]\nroot = {json.dumps(root)}\n", encoding="utf-8")
    with suppress(SystemExit):
        assert run(["sql", "SELECT count(*) AS n FROM readings", "--engine", "spark", "-c", str(config), "--json"]) == 0
    told = capfd.readouterr()
    assert json.loads(told.out) == [{"n": 17}]
    assert "Starting Spark" in told.err
    assert given["extra"]["spark.sql.adaptive.enabled"] == "true"
    assert given["master"] == "local[*]"

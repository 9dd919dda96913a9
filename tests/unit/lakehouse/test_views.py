"""Views: profiles as columns, and what the commands say of them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deploy.cli import run
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.query import run_sql
from lakehouse.show_code import NamedTable, render_code
from lakehouse.views import names_in_query, views_in, wide_view

NOW = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
PROFILE = """\
name = "boiler-2"
version = 1
[metrics.temperature]
min = -50
[metrics.state]
values = ["on", "off"]
[metrics.door]
type = "boolean"
[metrics.note]
[metrics."te*"]
max = 1000
"""


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Two messages: the first with two temperatures at one moment and one at the next, the second with text."""
    root = str(tmp_path / "tables")
    ensure_tables(root, ALL_TABLES.values(), log_retention_hours=24)
    schema = pa.schema(DeltaTable(f"{root}/readings").schema().to_arrow())
    rows = [
        message(1, metric="temperature", value=20.0),
        message(1, metric="temperature", value=99.0, index=1),
        message(1, metric="door", value=1.0, text="true"),
        message(1, metric="temperature", value=21.0, index=2, event_time=NOW + timedelta(seconds=1)),
        message(2, metric="state", text="on"),
        message(2, metric="note", text="ok"),
        message(3, metric="unlisted", value=1.0),
    ]
    full = [{name: row.get(name) for name in schema.names} for row in rows]
    write_deltalake(f"{root}/readings", pa.Table.from_pylist(full, schema=schema), mode="append")
    return root


def message(number: int, **more: Any) -> dict[str, Any]:
    times = dict.fromkeys(("event_time", "received_at", "kafka_time", "landed_at"), NOW)
    place = {"device": "d", "time_source": "device", "index": 0, "partition": 0, "offset": number, "date": NOW.date()}
    return {**times, **place, **more}


@pytest.fixture
def config(root: str, tmp_path: Path) -> str:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "boiler.toml").write_text(PROFILE, encoding="utf-8")
    (tmp_path / "profiles" / "bad.toml").write_text("name = 1", encoding="utf-8")
    file = tmp_path / "c.toml"
    text = f"[lake]\nroot = {json.dumps(root)}\n[gateway]\nprofiles = {json.dumps(str(tmp_path / 'profiles'))}\n"
    file.write_text(text, encoding="utf-8")
    return str(file)


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_profile_is_a_view_with_a_column_per_metric(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    sql = 'SELECT "offset" AS o, temperature AS t, state AS s, door AS d, note AS n, note_text AS x'
    rows = asked(capsys, "sql", f"{sql} FROM readings_wide_boiler_2 ORDER BY o, event_time", "-c", config)
    assert [tuple(row.values()) for row in rows] == [
        (1, 20.0, None, True, None, None),
        (1, 21.0, None, None, None, None),
        (2, None, "on", None, None, "ok"),
    ]


@pytest.mark.parametrize("counted", [False, True])
def test_a_view_of_a_profile_leaves_replays_out_unless_the_setting_counts_them(
    root: str, config: str, capsys: pytest.CaptureFixture[str], *, counted: bool
) -> None:
    schema = pa.schema(DeltaTable(f"{root}/readings").schema().to_arrow())
    replays = [
        message(5, metric="temperature", value=-1.0, retained=True, flags=["no_identity", "retained"]),
        message(6, metric="temperature", value=-2.0, retained=None, flags=["retained"]),  # of an older version
        message(7, metric="temperature", value=7.0, retained=False, flags=["no_identity"]),
    ]
    full = [{name: row.get(name) for name in schema.names} for row in replays]
    write_deltalake(f"{root}/readings", pa.Table.from_pylist(full, schema=schema), mode="append")
    with Path(config).open("a", encoding="utf-8") as file:
        file.write(f"[stream]\ncount_retained = {str(counted).lower()}\n")
    sql = 'SELECT "offset" AS o FROM readings_wide_boiler_2 WHERE "offset" > 2 ORDER BY o'
    assert [row["o"] for row in asked(capsys, "sql", sql, "-c", config)] == ([5, 6, 7] if counted else [7])


def test_the_commands_name_the_views_and_their_columns(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    listed = asked(capsys, "tables", "ls", "-c", config)
    assert {"readings_wide_boiler_2"} <= {each["name"] for each in listed if each["kind"] == "view"}
    assert {each["name"] for each in listed if each["kind"] == "table"} == set(ALL_TABLES)
    columns = [column["name"] for column in asked(capsys, "tables", "show", "readings_wide_boiler_2", "-c", config)]
    assert columns[-5:] == ["temperature", "state", "door", "note", "note_text"]
    assert run(["tables", "show", "readings_wide_boiler_2", "-c", config]) == 0
    assert "min_by(value" in capsys.readouterr().err
    assert run(["sql", "FROM readings_wide_boiler", "-c", config]) == 1
    assert "Did you mean readings_wide_boiler_2?" in capsys.readouterr().err


def test_show_code_has_the_view_and_the_version_at_that_time(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT * FROM readings_wide_boiler_2"
    found = asked(capsys, "sql", sql, "--show-code", "--at", "2999-01-01", "-c", config)
    assert set(found["programs"]) == {"duckdb", "polars", "pandas", "spark"}
    assert list(found["views"]) == ["readings_wide_boiler_2"]
    for program in found["programs"].values():
        compile(program, "program", "exec")
        assert "FILTER (WHERE metric = 'temperature')" in program
        assert "version=1" in program or '"versionAsOf", 1' in program
    assert run(["sql", sql, "--show-code", "-c", config]) == 0
    assert "version" not in capsys.readouterr().out


def test_counters_are_a_view_without_any_setting(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT count(*) AS readings, count(delta) AS deltas FROM counter_deltas WHERE metric = 'temperature'"
    assert asked(capsys, "sql", sql, "-c", config) == [{"readings": 3, "deltas": 2}]
    assert "counter_deltas" in {each["name"] for each in asked(capsys, "tables", "ls", "-c", config)}


def test_names_of_metrics_are_only_names(root: str) -> None:
    odd = {"device": "number", "a'b": "number", 'c"d': "text", "e\\f": "any", "e\\f_text": "text", "Offset": "boolean"}
    view = wide_view("x y", odd)
    assert view.name == "readings_wide_x_y"
    found = run_sql(root, f"FROM {view.name}", views=[view])
    assert found.column_names[7:] == ["device_", "a'b", 'c"d', "e\\f", "e\\f_text", "Offset_"]


def test_only_views_that_a_query_names_are_made() -> None:
    views = [wide_view("a", {"m": "any"}), wide_view("ab", {"m": "any"})]
    assert [view.name for view in views_in("SELECT 1 FROM Readings_Wide_AB", views)] == ["readings_wide_ab"]
    assert names_in_query("select x.readings from a", ["readings", "reading"]) == ["readings"]


def test_programs_quote_what_they_are_given() -> None:
    sql = "SELECT '\"\"\"' AS a,\n'\\' AS b"
    for program in render_code(sql, [NamedTable("t", "/data/it's here/t")], []).values():
        compile(program, "program", "exec")
        assert repr(sql) in program
    assert "use_pyarrow=True" in render_code(sql, [NamedTable("t", "/data/it's here/t")], [])["polars"]
    assert "use_pyarrow" not in render_code(sql, [NamedTable("t", "/data/here/t")], [])["polars"]

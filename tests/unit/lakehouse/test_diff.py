"""What two versions of a table do not share, and that only their own files are read for it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deploy.cli import run
from ingest.contract.errors import TidegateError, UnavailableError
from lakehouse.catalog import open_table
from lakehouse.create import create_table
from lakehouse.derived_tables import ALL_TABLES, LATEST
from lakehouse.diff import KEYS, diff_table

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Version 1: a, b and b again. 2: c comes in a file of its own. 3: compacted. 4: b changes once, a goes, d comes."""
    root = str(tmp_path / "the tables")
    create_table(root, LATEST, log_retention_hours=24)
    write(root, [("a", 1.0), ("b", 2.0), ("b", 2.0)], "append")
    write(root, [("c", 3.0)], "append")
    DeltaTable(f"{root}/latest").optimize.compact()
    write(root, [("b", 2.0), ("b", 5.0), ("c", 3.0), ("d", None)], "overwrite")
    return root


def write(root: str, values: list[tuple[str, float | None]], mode: Any) -> None:
    schema = pa.schema(DeltaTable(f"{root}/latest").schema().to_arrow())
    times = dict.fromkeys(("event_time", "received_at", "updated_at"), NOW)
    rows = [{"device": device, "metric": "m", "value": value, "flags": ["x"], **times} for device, value in values]
    full = [{name: row.get(name) for name in schema.names} for row in rows]
    write_deltalake(f"{root}/latest", pa.Table.from_pylist(full, schema=schema), mode=mode)


def counts(root: str, one: int, other: int, **more: Any) -> tuple[int, int, int]:
    found = diff_table(root, "latest", one, other, **more)
    return found.only_in_from, found.only_in_to, found.changed


def test_rows_are_paired_by_the_tables_key(root: str) -> None:
    found = diff_table(root, "latest", 3, 4)
    assert found.keys == ("device", "metric")
    assert (found.only_in_from, found.only_in_to, found.changed) == (1, 1, 1)
    assert [row["device"] for row in found.rows_only_in_from] == ["a"]
    assert [(row["device"], row["value"]) for row in found.rows_only_in_to] == [("d", None)]
    assert found.rows_changed == [{"device": "b", "metric": "m", "columns": {"value": {"from": 2.0, "to": 5.0}}}]


def test_the_way_back_swaps_the_sides_and_a_version_equals_itself(root: str) -> None:
    assert counts(root, 4, 3) == (1, 1, 1)
    assert counts(root, 1, 2) == (0, 1, 0)
    assert counts(root, 2, 1) == (1, 0, 0)
    assert counts(root, 0, 4) == (0, 4, 0)
    assert counts(root, 4, 4) == (0, 0, 0)


def test_a_rearrangement_is_no_difference(root: str) -> None:
    assert counts(root, 2, 3) == (0, 0, 0)


def test_other_keys_and_none(root: str) -> None:
    assert counts(root, 3, 4, keys=[]) == (2, 2, 0)
    assert counts(root, 3, 4, keys=["metric"]) == (0, 0, 2)
    with pytest.raises(
        TidegateError, match=r"'devise' is not a column of latest in both versions\. The columns are: device"
    ):
        diff_table(root, "latest", 3, 4, keys=["devise"])
    with pytest.raises(UnavailableError, match="no version 99"):
        diff_table(root, "latest", 3, 99)


def test_only_files_of_one_version_are_read(root: str) -> None:
    for file in DeltaTable(f"{root}/latest", version=1).file_uris():
        Path(file.removeprefix("file://").replace("%20", " ")).unlink()
    assert counts(root, 1, 2) == (0, 1, 0)


def test_the_command_counts_and_shows_the_first(root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f"[lake]\nroot = {json.dumps(root)}\n", encoding="utf-8")
    given = ["tables", "diff", "latest", "-c", str(config)]
    assert run([*given, "--from", "3", "--to", "2999-01-01", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["to_version"], found["changed"], found["keys"]) == (4, 1, ["device", "metric"])
    assert run([*given, "--from", "0", "--to", "4", "--limit", "1", "--keys", "device, metric"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "latest, version 0 to 4, key device, metric:"
    assert lines[1:3] == ["only in from: 0 rows", "only in to: 4 rows"]
    assert "… and 3 more" in lines[4]
    assert run([*given, "--from", "3", "--to", "4"]) == 0
    assert "  ~ device=b  metric=m  value: 2.0 → 5.0" in capsys.readouterr().out.splitlines()


def test_every_table_has_a_key_of_its_own_columns() -> None:
    for name, table in ALL_TABLES.items():
        assert set(KEYS[name]) <= {column.name for column in table.columns}


def test_a_version_whose_files_are_gone_is_refused_in_a_sentence(root: str) -> None:
    kept = set(DeltaTable(f"{root}/latest").file_uris())
    for file in Path(root, "latest").glob("*.parquet"):
        if not any(uri.endswith(file.name) for uri in kept):
            file.unlink()
    with pytest.raises(UnavailableError, match="no longer complete"):
        diff_table(root, "latest", 3, 4)


def test_a_damaged_table_is_told_with_repair_as_next_step(root: str) -> None:
    Path(root, "latest", "_delta_log", f"{4:020d}.json").write_text('{"add": {"pa', encoding="utf-8")
    with pytest.raises(UnavailableError, match="tidegate repair"):
        open_table(root, "latest")


def test_no_text_of_a_row_steers_the_terminal(root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f"[lake]\nroot = {json.dumps(root)}\n", encoding="utf-8")
    write(root, [("\x1b[2J\nforged", 1.0)], "append")
    assert run(["tables", "diff", "latest", "-c", str(config), "--from", "4", "--to", "5"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\\x1b[2J\\nforged" in shown

"""Appends that take files out of the table in the same commit: what derived tables and corrections are written by."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakehouse.append import Appender
from lakehouse.changes import newest_version, read_changes, table_files
from lakehouse.create import create_table
from lakehouse.derived_tables import LATEST


@pytest.fixture
def write(lake: Any, tmp_path: Path) -> Any:
    root = str(tmp_path / "the tables")
    create_table(root, LATEST, log_retention_hours=24)
    appender = Appender(lake.spark, root, LATEST)

    def write(values: dict[str, float], *, replace: bool = False, data_change: bool = True) -> str:
        now = datetime(2026, 5, 1, tzinfo=UTC)
        rows = [(device, "m", value, None, None, now, now, [], now, None) for device, value in values.items()]
        schema = ", ".join(f"`{column.name}` {column.type}" for column in LATEST.columns)
        with appender.begin() as append:
            append.write(lake.spark.createDataFrame(rows, schema).coalesce(1))
            if replace:
                append.replace(table_files(root, "latest"))
            append.commit(json.dumps({"why": "test"}), data_change=data_change)
        return root

    return write


def values(root: str) -> dict[str, float]:
    rows = pa.table(DeltaTable(f"{root}/latest").to_pyarrow_table())
    return dict(zip(rows["device"].to_pylist(), rows["value"].to_pylist(), strict=True))


def test_a_replacement_is_one_version_and_its_change_names_both_sides(write: Any) -> None:
    root = write({"a": 1.0, "b": 2.0})
    write({"a": 3.0}, replace=True)
    assert values(root) == {"a": 3.0}
    last = list(read_changes(root, "latest", after=0, upto=newest_version(root, "latest")))
    assert [(len(change.added), len(change.removed)) for change in last] == [(1, 0), (1, 1)]
    assert last[1].removed[0].path == last[0].added[0].path
    assert json.loads(last[1].user_metadata or "") == {"why": "test"}


def test_a_rearrangement_is_no_change_to_those_who_follow(write: Any) -> None:
    root = write({"a": 1.0})
    write({"a": 1.0}, replace=True, data_change=False)
    assert values(root) == {"a": 1.0}
    last = list(read_changes(root, "latest", after=1, upto=2))
    assert [(change.added, change.removed) for change in last] == [((), ())]

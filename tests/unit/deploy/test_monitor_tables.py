"""Tables by the names in their logs: looked at every few seconds, listed once."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.monitor.monitor_process import TablesOnDisk
from tests.support.fleet import device


def test_tables_by_the_names_of_their_logs(small_lake: Any, tmp_path: Path) -> None:
    tables = TablesOnDisk(small_lake.root)
    for version in (0, 1, 2):
        found = {each["name"]: each for each in tables.look()}
        assert found["devices"]["version"] == version
        assert found["readings"]["version"] == 0
        assert time.time() - found["devices"]["committed_at"] < 60
        small_lake.put("devices", device("a", seen=1))
    assert [each["name"] for each in TablesOnDisk(f"file://{small_lake.root}").look()] == sorted(found)
    assert TablesOnDisk(str(tmp_path / "none")).look() == []
    assert TablesOnDisk("s3://bucket/tables").look() == []


def test_a_table_that_is_dropped_or_made_anew_is_looked_at_anew(small_lake: Any) -> None:
    tables, log = TablesOnDisk(small_lake.root), Path(small_lake.root) / "devices" / "_delta_log"
    small_lake.put("devices", device("a", seen=1))
    assert {each["name"]: each["version"] for each in tables.look()}["devices"] == 1
    (log / f"{1:020d}.json").unlink()
    assert {each["name"]: each["version"] for each in tables.look()}["devices"] == 0
    shutil.rmtree(log.parent)
    assert "devices" not in {each["name"] for each in tables.look()}


def test_a_long_log_is_listed_once(small_lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = TablesOnDisk(small_lake.root)
    tables.look()
    monkeypatch.setattr("deploy.monitor.monitor_process._newest", lambda log: pytest.fail(f"{log} was listed again"))
    small_lake.put("devices", device("a", seen=1))
    assert {each["name"]: each["version"] for each in tables.look()}["devices"] == 1

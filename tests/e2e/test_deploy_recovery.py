"""`RECOVERY.md`, run as an operator runs it: every command, in order, on one run under the load of its fleet."""

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run
from deploy.local.runfile import read_run
from lakehouse.catalog import table_names
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.health import refuse_damaged
from lakehouse.tables import TABLES
from streaming.landing_offsets import newest_mark, newest_of
from streaming.vanished_commits import refuse_vanished
from tests.support.shell_page import ROOT, Reader, blocks, run_page

pytestmark = pytest.mark.promise("P1")

BLOCK_SECONDS = 1200.0


def test_tables_of_a_backup_of_a_running_pipeline_belong_together(
    pipeline: Any, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    wait_until(pipeline.ready, seconds=300, what="the run being ready")
    pipeline.tidegate("backup", str(tmp_path / "first"))
    pipeline.tidegate("backup", str(tmp_path / "second"), "--reuse", str(tmp_path / "first"))
    for name in ("first", "second"):
        pipeline.tidegate("restore", str(tmp_path / name), "--data", str(tmp_path / f"new {name}"))
        root = str(tmp_path / f"new {name}" / "tables")
        assert set(table_names(root)) >= set(ALL_TABLES)
        refuse_damaged(root, ALL_TABLES)
        refuse_vanished(root, newest_of(newest_mark(root, each) for each in TABLES), None)
    refused = pipeline.tidegate("restore", str(tmp_path / "first"), ok=(1,)).stderr
    assert shlex.join(["mv", f"{pipeline.data}/tables", f"{pipeline.data}/tables.lost"]) in refused


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.setenv("TIDEGATE_DATA", "tidegate-data")
    monkeypatch.setenv("TIDEGATE_EMBEDDED__READY_TIMEOUT_SECONDS", "900")
    monkeypatch.setenv("TIDEGATE_STREAM__WARM_UP", "false")
    found = Reader(tmp_path, block_seconds=BLOCK_SECONDS)
    yield found
    found.close()
    if read_run(tmp_path / "tidegate-data") is not None:
        assert run(["down", "--data", str(tmp_path / "tidegate-data")]) == 0


@pytest.mark.chaos
@pytest.mark.timeout(5400)
def test_each_recovery_does_what_its_page_shows(
    reader: Reader, wait_until: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "RECOVERY.md").read_text("utf-8")
    seconds = run_page(text, reader, wait_until, again_seconds=BLOCK_SECONDS)
    with capsys.disabled():
        for took, (commands, _, _) in zip(seconds, blocks(text), strict=True):
            print(f"\n{took:7.1f} s  {'; '.join(commands.splitlines())}", end="")  # noqa: T201
    assert len(seconds) > 10
    left = {name for name in os.listdir(tmp_path) if "lost" not in name}
    assert left == {"tidegate", "tidegate-data", "backup-1", "backup-2"}

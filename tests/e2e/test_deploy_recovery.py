"""`RECOVERY.md`, run as an operator runs it: every command, in order, on one run under the load of its fleet.

It takes minutes: `make chaos` runs it.
"""

import logging
import os
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

pytestmark = [pytest.mark.chaos, pytest.mark.promise("P1"), pytest.mark.timeout(5400)]

logger = logging.getLogger("tidegate.test")

BLOCK_SECONDS = 1200.0


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


def test_each_recovery_does_what_its_page_shows(
    reader: Reader, wait_until: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "RECOVERY.md").read_text("utf-8")
    seconds = run_page(text, reader, wait_until, again_seconds=BLOCK_SECONDS)
    for took, (commands, _, _) in zip(seconds, blocks(text), strict=True):
        logger.info("%7.1f s  %s", took, "; ".join(commands.splitlines()))
    assert len(seconds) > 10
    left = {name for name in os.listdir(tmp_path) if "lost" not in name}
    assert left == {"tidegate", "tidegate-data", "backup-1", "backup-2"}
    for name in ("backup-1", "backup-2"):
        assert run(["restore", str(tmp_path / name), "--data", str(tmp_path / f"new {name}")]) == 0
        root = str(tmp_path / f"new {name}" / "tables")
        assert set(table_names(root)) >= set(ALL_TABLES)
        refuse_damaged(root, ALL_TABLES)
        refuse_vanished(root, newest_of(newest_mark(root, each) for each in TABLES), None)
    assert run(["restore", str(tmp_path / "backup-1"), "--data", str(tmp_path / "new backup-2")]) == 1
    assert "tables.lost" in capsys.readouterr().err

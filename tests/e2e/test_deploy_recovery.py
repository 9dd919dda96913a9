"""`RECOVERY.md`, run as an operator runs it: every command, in order, on one run under the load of its fleet."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run
from deploy.local.runfile import read_run
from tests.support.shell_page import ROOT, Reader, blocks, run_page

pytestmark = [pytest.mark.chaos, pytest.mark.promise("P1"), pytest.mark.timeout(5400)]

BLOCK_SECONDS = 900.0


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.setenv("TIDEGATE_DATA", "tidegate-data")
    found = Reader(tmp_path, block_seconds=BLOCK_SECONDS)
    yield found
    found.close()
    for name in ("tidegate-data", "new-data"):
        if read_run(tmp_path / name) is not None:
            assert run(["down", "--data", str(tmp_path / name)]) == 0


def test_each_recovery_does_what_its_page_shows(
    reader: Reader, wait_until: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "RECOVERY.md").read_text("utf-8")
    seconds = run_page(text, reader, wait_until, again_seconds=BLOCK_SECONDS)
    with capsys.disabled():
        for took, (commands, _, _) in zip(seconds, blocks(text), strict=True):
            print(f"\n{took:7.1f} s  {'; '.join(commands.splitlines())}", end="")  # noqa: T201
    assert len(seconds) > 15
    left = {name for name in os.listdir(tmp_path) if "lost" not in name}
    assert left == {"tidegate", "tidegate-data", "new-data", "backup-1", "backup-2"}

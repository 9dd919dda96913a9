"""One run per data folder, and what is left of a killed one is not taken for a live one."""

import os
import time
from pathlib import Path

import pytest

from deploy.local.runfile import DataLock, RunFile, is_locked, read_run, read_state, require_run
from ingest.contract.errors import FatalError, UnavailableError


def test_a_second_run_is_refused_by_name_and_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    lock = DataLock(tmp_path)
    RunFile(run_id="r", pid=os.getpid(), started_at=time.time()).write(tmp_path)
    with pytest.raises(FatalError, match=rf"pid {os.getpid()}\) already uses .*tidegate down"):
        DataLock(tmp_path)
    assert is_locked(tmp_path)
    assert require_run(tmp_path).run_id == "r"
    lock.release()
    assert not is_locked(tmp_path)
    DataLock(tmp_path).release()


def test_a_run_file_without_a_lock_is_no_run(tmp_path: Path) -> None:
    RunFile(run_id="r", pid=1, started_at=0.0).write(tmp_path)
    with pytest.raises(UnavailableError, match="Nothing runs on"):
        require_run(tmp_path)
    found = read_run(tmp_path)
    assert found is not None
    assert found.run_id == "r"


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}', "[]", '{"other": 1}'])
def test_a_damaged_run_file_reads_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    (tmp_path / "state.json").write_text(text[:1])
    assert read_run(tmp_path) is None
    assert read_state(tmp_path) == {}


def test_a_folder_that_is_not_there_holds_no_run(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "none")
    assert read_run(tmp_path / "none") is None

"""Whose process is it? A run file's pid alone proves nothing; the guard below a supervisor does."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.demo.part_faults import belongs_to_run
from deploy.local import down
from deploy.local.guard import Guard, is_supervisor
from deploy.local.runfile import DataLock, RunFile
from deploy.testbed.server_process import stop_child
from ingest.contract.errors import FatalError

Wait = Callable[..., Any]

FOREVER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


@pytest.fixture
def guard() -> Iterator[Guard]:
    made = Guard(uuid.uuid4().hex)
    yield made
    made.end()


def test_only_the_parent_of_the_runs_guard_is_its_supervisor(guard: Guard, wait_until: Wait) -> None:
    # The guard's command line can be read once its program is loaded.
    wait_until(lambda: is_supervisor(os.getpid(), guard._run_id))
    assert not is_supervisor(os.getpid(), uuid.uuid4().hex)
    assert not is_supervisor(1, guard._run_id)


def test_a_guard_that_was_killed_is_started_anew(guard: Guard, wait_until: Wait) -> None:
    first = guard._process
    first.kill()
    first.wait()
    guard.watch()
    assert guard._process.pid != first.pid
    wait_until(lambda: is_supervisor(os.getpid(), guard._run_id))


def test_down_never_signals_the_process_that_got_an_old_supervisors_pid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down, "FOUND_SECONDS", 0.3)
    stranger = subprocess.Popen(FOREVER)
    lock = DataLock(tmp_path)
    try:
        RunFile(run_id=uuid.uuid4().hex, pid=stranger.pid, started_at=0.0).write(tmp_path)
        with pytest.raises(FatalError, match=rf"not by pid {stranger.pid}"):
            down.stop_run(tmp_path, notify=lambda line: None)
        # What was sent to it before is delivered first.
        stop_child(stranger.pid)
        assert stranger.poll() is None
    finally:
        lock.release()
        stranger.kill()
        stranger.wait()


def test_down_clears_up_after_all_runs_that_were_killed(tmp_path: Path, wait_until: Wait) -> None:
    ids = [uuid.uuid4().hex, uuid.uuid4().hex]
    left = [subprocess.Popen(FOREVER, env={**os.environ, "TIDEGATE_RUN_ID": run_id}) for run_id in ids]
    try:
        for process, run_id in zip(left, ids, strict=True):
            wait_until(lambda pid=process.pid, run_id=run_id: belongs_to_run(pid, run_id), what="the mark")
        RunFile(run_id=ids[1], pid=1, started_at=0.0, recovers=[ids[0]]).write(tmp_path)
        assert down.stop_run(tmp_path, notify=lambda line: None)["killed"] == 2
    finally:
        for process in left:
            process.kill()
            process.wait()
    assert not (tmp_path / "run.json").exists()


def test_the_end_of_a_run_is_seen_although_the_next_one_has_the_folder(tmp_path: Path) -> None:
    old = RunFile(run_id="old", pid=1, started_at=0.0)
    lock = DataLock(tmp_path)
    try:
        old.write(tmp_path)
        assert down._lives(tmp_path, old)
        RunFile(run_id="new", pid=2, started_at=0.0).write(tmp_path)
        assert not down._lives(tmp_path, old)
    finally:
        lock.release()
    assert not down._lives(tmp_path, old)

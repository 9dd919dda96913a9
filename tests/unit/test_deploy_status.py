"""What `status` says when the supervisor cannot write down what it sees."""

import json
import shutil
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import status
from deploy.local.runfile import DataLock, RunFile
from deploy.local.status import read_status

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    lock = DataLock(tmp_path)
    RunFile(run_id="r", pid=7, started_at=time.time() - 60).write(tmp_path)
    yield tmp_path
    lock.release()


def told(data: Path, *, at: float, free: int, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, str]:
    (data / "state.json").write_text(json.dumps({"ready": True, "at": at, "parts": {}, "alerts": []}))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9 - free, free))
    found = read_status(data)
    return found["ready"], " ".join(alert["text"] for alert in found["alerts"])


def test_an_old_state_on_a_full_disk_is_told_as_what_it_is(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, text = told(run, at=time.time() - 60, free=3 * 1024**2, monkeypatch=monkeypatch)
    assert not ready
    assert text == (
        f"The disk of {run} is full (3 MB free): the gateway stops accepting; free some space and the run resumes by "
        "itself."
    )


def test_an_old_state_with_space_left_is_the_supervisors_silence(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, text = told(run, at=time.time() - 60, free=10**9, monkeypatch=monkeypatch)
    assert not ready
    assert "The supervisor (pid 7) has not looked for" in text


def test_a_fresh_state_is_believed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(run, at=time.time(), free=0, monkeypatch=monkeypatch) == (True, "")


def test_a_run_that_fetches_its_parts_first_says_so(run: Path) -> None:
    found = read_status(run)
    assert not found["ready"]
    assert "started no part yet" in found["alerts"][0]["text"]
    assert "Not ready." in status.render_status(found)

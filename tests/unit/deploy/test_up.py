"""The beginning and the end of `tidegate up`: what an older run left is not taken for ours, and nothing skips the stop."""

import io
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local import up
from deploy.local.checklist import Checklist
from deploy.local.guard import Guard
from deploy.local.runfile import DataLock, RunFile, is_locked, read_run, read_state
from deploy.local.supervisor import Supervisor
from deploy.local.up import print_safely
from deploy.settings import Settings
from ingest.contract.errors import FatalError

OLD = RunFile(run_id="old", pid=4_000_000, started_at=0.0)
READY = {"ready": True, "at": time.time(), "parts": {}}


class Gone(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in up.STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def options(tmp_path: Path) -> up.UpOptions:
    return up.UpOptions(data=tmp_path / "data", config=None, port_offset=0, fleet=False, as_json=False)


def left_by_a_killed_run(data: Path) -> None:
    up.make_folders(data)
    OLD.write(data)
    (data / "state.json").write_text(json.dumps(READY))
    (data / "tmp").mkdir()
    (data / "tmp" / "liblz4-java-1.so").touch()


def test_nothing_of_a_killed_run_is_taken_for_the_new_ones_words_while_it_still_fetches_parts(
    options: up.UpOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def fetch() -> None:
        run = read_run(options.data)
        assert run is not None
        seen.update(pid=run.pid, state=dict(read_state(options.data)), tmp=list((options.data / "tmp").iterdir()))
        raise KeyboardInterrupt

    left_by_a_killed_run(options.data)
    monkeypatch.setattr(up, "_fetch_jvm_parts", fetch)
    with pytest.raises(KeyboardInterrupt):
        up.run_foreground(options, Settings())
    assert seen == {"pid": os.getpid(), "state": {}, "tmp": []}
    assert not is_locked(options.data)
    assert read_run(options.data) is None


def test_the_waiter_believes_only_the_supervisor_that_it_started(tmp_path: Path) -> None:
    lock = DataLock(tmp_path)
    try:
        (tmp_path / "state.json").write_text(json.dumps(READY))
        OLD.write(tmp_path)
        assert not up._is_up(tmp_path, os.getpid(), wait=True)
        assert not up._is_up(tmp_path, os.getpid(), wait=False)
        RunFile(run_id="new", pid=os.getpid(), started_at=0.0).write(tmp_path)
        assert up._is_up(tmp_path, os.getpid(), wait=True)
    finally:
        lock.release()
    assert not up._is_up(tmp_path, os.getpid(), wait=True)


def test_the_waiter_ends_with_the_sentence_of_a_part_that_cannot_run(tmp_path: Path) -> None:
    parts = {"gateway": {"state": "failed", "detail": "ended with exit code 78 (unknown key)"}}
    (tmp_path / "state.json").write_text(json.dumps({"parts": parts}))
    with pytest.raises(FatalError, match=r"gateway cannot run: .*unknown key.*tidegate down"):
        up._check_parts(tmp_path)


@pytest.fixture
def heeded() -> Iterator[None]:
    """A shell starts background commands with SIGINT ignored, and `up` keeps to that: not what is tried here."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in up.STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_fetching_of_parts_at_once(
    number: signal.Signals, options: up.UpOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ensure(parts: str, tell: Callable[[str], None]) -> None:
        os.kill(os.getpid(), number)
        pytest.fail("the fetching went on")

    monkeypatch.setattr(up.artifacts, "fetch_jars", ensure)
    with pytest.raises(KeyboardInterrupt):
        up.run_foreground(options, Settings())
    assert not is_locked(options.data)
    assert read_run(options.data) is None


def test_a_closed_terminal_does_not_skip_the_ordered_stop(
    options: up.UpOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a terminal: who started these tests with nohup ignores it, and so would `up`.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    stopped = threading.Event()

    class Fake:
        ready = False

        def tick(self) -> None:
            os.kill(os.getpid(), signal.SIGHUP)

        def parts(self) -> dict[str, dict[str, Any]]:
            return {"kafka": {"state": "ready", "since": 0.0, "detail": "", "seconds": 1.0}}

        def stop(self, told: Callable[[str], None]) -> None:
            told("kafka")
            stopped.set()

    class FakePlan:
        remarks: tuple[str, ...] = ("mqtt: port 1883 is taken",)
        settings = Settings()

    monkeypatch.setattr(up, "_fetch_jvm_parts", lambda: None)
    monkeypatch.setattr(up, "preflight", lambda settings, data, prometheus: ["java: 17"])
    monkeypatch.setattr(up, "make_plan", lambda *args, **kwargs: FakePlan())
    monkeypatch.setattr(up, "_supervise", lambda *args: Fake())
    monkeypatch.setattr("sys.stderr", Gone())
    monkeypatch.setattr("sys.stdout", Gone())
    try:
        assert up.run_foreground(options, Settings()) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert stopped.is_set()
    assert not is_locked(options.data)


def test_words_to_a_closed_stream_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (closed, Gone()):
        monkeypatch.setattr("sys.stderr", stream)
        print_safely("hello")
        for tty in (True, False):
            Checklist(stream, tty=tty).show({"kafka": {"state": "ready", "since": 0.0, "detail": "", "seconds": 1.0}})


def test_no_fault_of_a_look_ends_the_supervisor_and_each_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def watch(self) -> None:
            raise BlockingIOError(11, "no more processes")

    run = RunFile(run_id="r", pid=os.getpid(), started_at=0.0)
    guard: Any = Broken()
    supervisor = Supervisor(tmp_path, run, guard, [], stop_order=(), log_max_bytes=1000)

    def broken() -> Any:
        raise ValueError("no number")

    monkeypatch.setattr(supervisor, "_rotate_logs", broken)
    monkeypatch.setattr(supervisor, "_disk_free", broken)
    for _ in range(3):
        supervisor._looked_at = 0.0
        supervisor.tick()
    assert sum("no more processes" in record.message for record in caplog.records) == 1
    assert sum("no number" in record.message for record in caplog.records) == 2
    monkeypatch.undo()
    supervisor._looked_at = 0.0
    supervisor.tick()
    assert read_state(tmp_path)["run_id"] == "r"


def test_a_guard_stands_before_the_run_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class Noted(Guard):
        def __init__(self, run_id: str) -> None:
            assert read_run(tmp_path) is None
            made.append(run_id)

    monkeypatch.setattr(up, "Guard", Noted)
    run, _ = up._enter(tmp_path, None)
    found = read_run(tmp_path)
    assert found is not None
    assert [found.run_id] == [run.run_id] == made

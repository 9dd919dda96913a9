"""A part that was made to hang always goes on: at the end, after a fault, and when the demonstration is killed."""

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.demo.part_faults import belongs_to_run, crash_part, hang_part
from deploy.testbed.server_process import stop_child
from ingest.contract.errors import UnavailableError

FOREVER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
WITH_A_CHILD = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""
HOLDS = """
import sys, time
from deploy.demo.part_faults import hang_part
with hang_part(int(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    time.sleep(600)
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def run_id() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def start(run_id: str, wait_until: Callable[..., Any]) -> Iterator[Start]:
    """Starts a process as a part of the run is started."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(command: list[str] = FOREVER) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "TIDEGATE_RUN_ID": run_id}
        started.append(subprocess.Popen(command, env=environment, start_new_session=True))
        wait_until(lambda: belongs_to_run(started[-1].pid, run_id), what="the mark in its environment")
        return started[-1]

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def state(pid: int) -> str:
    return str(psutil.Process(pid).status())


def test_a_part_hangs_with_all_it_started_and_goes_on(
    start: Start, run_id: str, wait_until: Callable[..., Any]
) -> None:
    part = start([sys.executable, "-S", "-c", WITH_A_CHILD])
    (child,) = wait_until(lambda: psutil.Process(part.pid).children(), what="its child")
    with pytest.raises(ValueError, match="a fault"), hang_part(part.pid, run_id):
        for pid in (part.pid, child.pid):
            wait_until(lambda pid=pid: state(pid) == psutil.STATUS_STOPPED, what="the hang")
        raise ValueError("a fault")
    for pid in (part.pid, child.pid):
        wait_until(lambda pid=pid: state(pid) != psutil.STATUS_STOPPED, what="going on")


def test_a_killed_demonstration_leaves_nothing_hanging(
    start: Start, run_id: str, wait_until: Callable[..., Any]
) -> None:
    part = start()
    root = Path(__file__).parents[3]
    holder = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDS, str(part.pid), run_id],
        env={**os.environ, "PYTHONPATH": str(root)}, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    wait_until(lambda: state(part.pid) == psutil.STATUS_STOPPED, what="the hang")
    holder.kill()
    holder.wait()
    holder.stdout.close()
    wait_until(lambda: state(part.pid) != psutil.STATUS_STOPPED, what="going on")


def test_a_process_of_somebody_else_is_never_touched(start: Start, wait_until: Callable[..., Any]) -> None:
    stranger, asked = start(), list[int]()

    def pid_now() -> int:
        asked.append(stranger.pid)
        return stranger.pid

    with pytest.raises(UnavailableError, match="not part of this run"), hang_part(stranger.pid, "another run"):
        pass
    with crash_part(pid_now, "another run"):
        wait_until(lambda: len(asked) > 1, what="a whole look at it")
    # What was sent to it before is delivered first.
    stop_child(stranger.pid)
    assert stranger.poll() is None
    assert not belongs_to_run(None, "another run")


def test_a_crash_is_repeated_for_each_new_start(start: Start, run_id: str, wait_until: Callable[..., Any]) -> None:
    now = [start()]
    with crash_part(lambda: now[-1].pid, run_id):
        for _ in range(2):
            assert now[-1].wait(10) == -signal.SIGKILL
            now.append(start())
        assert now[-1].wait(10) == -signal.SIGKILL
    last = start()
    now.append(last)
    assert last.poll() is None

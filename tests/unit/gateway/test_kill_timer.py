"""A kernel timer ends the process at its time, whatever the process does meanwhile."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.lease.kill_timer import KillTimer, lease_clock

ROOT = Path(__file__).parents[3]
HEAD = """
import os, signal, sys, time
from gateway.lease.kill_timer import KillTimer, lease_clock
timer = KillTimer()
"""

pytestmark = pytest.mark.skipif(not KillTimer().available, reason="this system has no such timers")


def ends_with(code: str) -> int:
    """The exit code of a new process that runs this."""
    return subprocess.run([sys.executable, "-c", HEAD + code], cwd=ROOT, timeout=60, check=False).returncode


def test_a_stopped_process_is_killed() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HEAD + "timer.arm(lease_clock() + 0.3)\nos.kill(os.getpid(), signal.SIGSTOP)"], cwd=ROOT
    )
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_a_timer_that_is_set_again_or_disarmed_does_not_kill() -> None:
    code = "timer.arm(lease_clock() + 0.1)\ntimer.arm(lease_clock() + 60)\ntime.sleep(0.3)\nsys.exit(7)"
    assert ends_with(code) == 7
    assert ends_with("timer.arm(lease_clock() + 0.1)\ntimer.disarm()\ntime.sleep(0.3)\nsys.exit(7)") == 7


def test_a_time_that_has_passed_kills_at_once() -> None:
    assert ends_with("timer.arm(lease_clock() - 5)\ntime.sleep(30)") == -signal.SIGKILL


def test_the_clock_is_monotonic_and_in_seconds() -> None:
    before, began = lease_clock(), time.monotonic()
    assert 0 <= lease_clock() - before <= time.monotonic() - began + 1

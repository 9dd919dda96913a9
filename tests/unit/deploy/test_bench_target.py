"""A pipeline that a benchmark starts: what an interrupt leaves."""

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.bench import target
from deploy.bench.target import own_run

SUPERVISOR = """
import sys, time
from pathlib import Path
from deploy.local.runfile import DataLock
time.sleep(0.5)
lock = DataLock(Path(sys.argv[2]))
time.sleep(600)
"""


def test_an_interrupt_before_the_supervisor_has_its_lock_stops_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def tidegate(word: str, *_: str) -> None:
        if word == "up":
            started.append(subprocess.Popen([sys.executable, "-c", SUPERVISOR, "--data", str(tmp_path)]))
            raise KeyboardInterrupt
        started[0].kill()
        started[0].wait()

    monkeypatch.setattr(target, "_tidegate", tidegate)
    try:
        with pytest.raises(KeyboardInterrupt), own_run(tmp_path, port_offset=0):
            pass
        assert started[0].poll() is not None
    finally:
        started[0].kill()
        started[0].wait()

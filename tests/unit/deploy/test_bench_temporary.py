"""Folders of benchmarks: what a killed one leaves, processes included, is removed by the next; what others have is not."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from deploy.bench.temporary import MARK, PREFIX, clear_orphans, own_folder, signed_folder
from deploy.demo.part_faults import belongs_to_run
from deploy.local.runfile import RunFile
from deploy.testbed.server_process import stop_child
from tests.support.processes import runs

SLEEPER = "import time; time.sleep(600)"
SERVER = (
    f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]).pid, flush=True); {SLEEPER}"
)
BENCHMARK = f"""
import subprocess, sys
from deploy.bench.temporary import own_folder
with own_folder() as folder:
    (folder / "data").mkdir()
    server = subprocess.Popen([sys.executable, "-c", {SERVER!r}], stdout=subprocess.PIPE, text=True, start_new_session=True)
    print(folder, server.pid, server.stdout.readline().strip(), sep="\\n", flush=True)
    sys.stdin.read()
"""


class Benchmark:
    """A process that has a folder, a server in a session of its own, and a child of that server."""

    def __init__(self, place: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", BENCHMARK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": str(place)},
        )  # fmt: skip
        assert self.process.stdout is not None
        folder, *pids = (self.process.stdout.readline().strip() for _ in range(3))
        self.folder, self.servers = Path(folder), [psutil.Process(int(pid)) for pid in pids]

    def left(self) -> list[int]:
        """Servers that run; one that has ended may be a zombie until its parent looks."""
        return [one.pid for one in self.servers if runs(one)]

    def end(self) -> None:
        """Leave nothing after a test."""
        self.process.kill()
        self.process.communicate()
        for one in self.servers:
            if one.is_running():
                one.kill()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Benchmark]]:
    started: list[Benchmark] = []

    def one() -> Benchmark:
        started.append(Benchmark(tmp_path))
        return started[-1]

    yield one
    for each in started:
        each.end()


def test_the_next_benchmark_removes_what_a_killed_one_left_and_nothing_else(
    start: Callable[[], Benchmark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, lives = start(), start()
    # A person who looks at a file there is not one of its processes.
    (killed.folder / "log").write_text("words\n")
    with subprocess.Popen(["tail", "-f", str(killed.folder / "log")], stdout=subprocess.DEVNULL) as looks:
        try:
            assert clear_orphans(tmp_path) == [], "both live"
            killed.process.kill()
            killed.process.communicate()
            assert len(killed.left()) == 2, "kill -9 lets nobody clean up"
            monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
            with own_folder() as folder:
                assert killed.left() == [] and not killed.folder.exists()
                assert len(lives.left()) == 2 and lives.folder.exists() and folder.exists()
            # What was sent to it before is delivered first.
            stop_child(looks.pid)
            assert looks.poll() is None
        finally:
            looks.kill()


def test_a_run_whose_parts_carry_its_id_alone_is_ended(tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    folder = tmp_path / f"{PREFIX}left"
    (folder / "data").mkdir(parents=True)
    (folder / "owner.json").write_text(json.dumps({"pid": 2**22 + 1, "started_at": 1.0}))
    RunFile(f"run-{tmp_path}", 2**22 + 1, 1.0).write(folder / "data")
    mark = {**os.environ, "TIDEGATE_RUN_ID": f"run-{tmp_path}"}
    with subprocess.Popen([sys.executable, "-c", SLEEPER], env=mark) as part:
        try:
            wait_until(lambda: belongs_to_run(part.pid, f"run-{tmp_path}"), what="the mark in its environment")
            assert clear_orphans(tmp_path) == [folder]
            assert part.poll() is not None
        finally:
            part.kill()


def test_a_folder_that_cannot_be_removed_now_is_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / f"{PREFIX}left"
    (folder / "data").mkdir(parents=True)
    (folder / "owner.json").write_text(json.dumps({"pid": 2**22 + 1, "started_at": 1.0}))
    commands: list[list[str]] = []
    disk = SimpleNamespace(mountpoint=str(folder / "data"))
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [disk, SimpleNamespace(mountpoint=str(tmp_path))])
    monkeypatch.setattr("deploy.bench.temporary.subprocess.run", lambda command, **_: commands.append(command))

    def busy(path: Path) -> None:
        raise OSError(16, "busy", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("deploy.bench.temporary.shutil.rmtree", busy)
        assert clear_orphans(tmp_path) == [] and (folder / "owner.json").exists()
    assert clear_orphans(tmp_path) == [folder] and not folder.exists()
    assert commands == [["umount", "-l", str(folder / "data")]] * 2, "a small disk of its own, and no other"


def test_the_mark_is_that_of_the_innermost_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv(MARK, raising=False)

    def mark() -> Any:
        return os.environ.get(MARK)

    with own_folder() as outer:
        with own_folder() as inner, signed_folder():
            assert mark() == str(inner)
        assert mark() == str(outer)
    assert mark() is None and not list(tmp_path.iterdir())

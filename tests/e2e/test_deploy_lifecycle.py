"""Beside a first run, on a disk that fills up, twice in a row, killed without warning, stopped without a trace.

All of it on one second run: each start costs half a minute.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.prometheus_servers import WATCHERS
from deploy.local.runfile import read_state

pytestmark = pytest.mark.promise("P1")

SIZE_MB = 256


@pytest.fixture(scope="module")
def second(pipeline: Any, new_pipeline: Callable[[], Any]) -> Iterator[Any]:
    """A second run that is ready, its data folder a small file system of its own where one can be mounted."""
    run = new_pipeline()
    run.data.mkdir()
    mounted = False
    if os.geteuid() == 0 and sys.platform == "linux":
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(run.data)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        assert '"ready": true' in run.up("--wait", "--no-fleet", "--json").stdout
        yield run
        run.tidegate("down", ok=(0, 69))
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(run.data)], check=True)


def fill(file: Path) -> None:
    """Take every byte that is left."""
    with file.open("wb", buffering=0) as out:
        for size in (1024 * 1024, 4096):
            while True:
                try:
                    out.write(b"x" * size)
                except OSError:
                    break


@pytest.mark.chaos
def test_a_full_disk_stops_the_intake_and_loses_nothing(
    second: Any, start_fleet: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    if not second.data.is_mount():
        pytest.skip("only root on Linux may mount a small file system to fill up")
    fleet = start_fleet(second, devices=20, rate=50)
    wait_until(lambda: len(fleet.acknowledged()) > 100, what="the load")

    filler = second.data / "filler"
    fill(filler)
    full = ("is full (0 MB free)", "Only 0 MB of disk")
    wait_until(lambda: any(words in str(second.status()["alerts"]) for words in full), seconds=60, what="the alert")
    wait_until(lambda: not second.ready(), seconds=120, what="the run saying that it is not ready")

    filler.unlink()
    wait_until(second.ready, seconds=300, what="the run being ready again")
    fleet.finish()
    report = second.audit()
    assert (report["unaccounted"], report["duplicate_rows"], report["order_violations"]) == (0, 0, 0), report
    assert set(fleet.acknowledged()) <= second.stored_messages(fleet.boot)


def test_a_second_instance_lives_and_ends_beside_the_first(
    pipeline: Any, second: Any, wait_until: Callable[..., Any]
) -> None:
    assert not set(second.run.ports.values()) & set(pipeline.run.ports.values())

    refused = second.tidegate("up", "--data", str(second.data), ok=(1,))
    assert f"pid {second.run.pid}" in refused.stderr
    assert "tidegate down" in refused.stderr

    killed = second.run
    os.kill(killed.pid, signal.SIGKILL)
    wait_until(lambda: second.left_behind(killed) == ["run.json"], seconds=60, what="the end of all its processes")
    assert "Nothing runs on" in second.tidegate("status", ok=(69,)).stderr

    # Twice in a row on the same data, over what the killed run left, which once read as if it were ready already.
    second.up("--wait", "--no-fleet")
    again, state = second.run, read_state(second.data)
    assert again.run_id == state["run_id"] != killed.run_id
    were_ready = {name for name, part in state["parts"].items() if part["seconds"] is not None}
    assert were_ready >= set(state["parts"]) - set(WATCHERS), "it returned before each part had been ready once"
    wait_until(second.ready, seconds=300, what="the run being ready")
    second.tidegate("down")
    assert second.left_behind(again) == []
    assert {entry.name for entry in second.data.parent.iterdir()} == {second.data.name, second.config.name}
    assert pipeline.run.pid > 0

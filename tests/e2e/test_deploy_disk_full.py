"""A full disk stops the intake and costs nothing: what the gateway acknowledged is stored once there is space again."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SIZE_MB = 256


@pytest.fixture
def small_disk(new_pipeline: Callable[[], Any]) -> Iterator[Any]:
    """A pipeline whose data folder is a small file system of its own."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("only root on Linux may mount a small file system to fill up")
    pipeline = new_pipeline()
    pipeline.data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(pipeline.data)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this machine lets no file system be mounted: {done.stderr.strip()}")
    try:
        yield pipeline
        pipeline.tidegate("down", ok=(0, 69))
    finally:
        subprocess.run(["umount", "-l", str(pipeline.data)], check=True)


def fill(file: Path) -> None:
    """Take every byte that is left."""
    with file.open("wb", buffering=0) as out:
        for size in (1024 * 1024, 4096):
            while True:
                try:
                    out.write(b"x" * size)
                except OSError:
                    break


def test_a_full_disk_stops_the_intake_and_loses_nothing(
    small_disk: Any, start_fleet: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    small_disk.up("--wait", "--no-fleet")
    fleet = start_fleet(small_disk, devices=20, rate=50)
    wait_until(lambda: len(fleet.acknowledged()) > 100, what="the load")

    filler = small_disk.data / "filler"
    fill(filler)
    wait_until(lambda: any("disk" in alert["text"] for alert in small_disk.status()["alerts"]), what="the alert")
    wait_until(lambda: not small_disk.ready(), seconds=120, what="the run saying that it is not ready")

    filler.unlink()
    wait_until(small_disk.ready, seconds=300, what="the run being ready again")
    fleet.finish()
    report = small_disk.audit()
    assert (report["unaccounted"], report["duplicate_rows"], report["order_violations"]) == (0, 0, 0), report
    assert set(fleet.acknowledged()) <= small_disk.stored_messages(fleet.boot)

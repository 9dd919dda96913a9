"""Temporary folders of benchmarks. Each names its process; the next benchmark removes the folders of killed processes.

After `kill -9` nobody cleans up: the folder stays, and so do the servers in their own sessions. So each process that is started
while the block of a folder runs has the folder's path in its environment; children of children too.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from deploy.local.guard import kill_marked
from deploy.local.runfile import read_run
from deploy.testbed.cluster import KafkaCluster
from deploy.testbed.cluster_layout import LAYOUT_FILE
from deploy.testbed.mosquitto import IDENTITY_FILE, end_mosquitto
from deploy.testbed.server_process import ProcessIdentity, find_process
from ingest.contract.errors import TidegateError

__all__ = ["PREFIX", "clear_orphans", "own_folder", "sign_folder", "signed_folder"]

PREFIX: Final = "tidegate-bench-"
OWNER_FILE: Final = "owner.json"
MARK: Final = "TIDEGATE_BENCH_FOLDER"


@contextmanager
def own_folder() -> Iterator[Path]:
    """A signed folder, whose path all processes carry that are started while the block runs. In one thread at a time."""
    with signed_folder() as folder:
        before = os.environ.get(MARK)
        os.environ[MARK] = str(folder.resolve())
        try:
            yield folder
        finally:
            if before is None:
                del os.environ[MARK]
            else:
                os.environ[MARK] = before


@contextmanager
def signed_folder() -> Iterator[Path]:
    """A folder that is removed at the end of the block, or by a later benchmark; what killed ones left is removed first."""
    clear_orphans(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        sign_folder(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sign_folder(folder: Path) -> None:
    """Note that this process has the folder."""
    owner = {"pid": os.getpid(), "started_at": psutil.Process().create_time()}
    (folder / OWNER_FILE).write_text(json.dumps(owner), "utf-8")


def clear_orphans(place: Path) -> list[Path]:
    """End the processes of benchmarks that were killed, and remove their folders; those folders.

    Only folders of this user count, whose signed process is gone. A process is ended where it carries the folder's path or the
    id of a run in it, or where the folder has its id and its start time.
    """
    cleared = []
    for folder in sorted(place.glob(f"{PREFIX}*")):
        with suppress(OSError, ValueError, TypeError, TidegateError):
            owner = ProcessIdentity(**json.loads((folder / OWNER_FILE).read_text("utf-8")))
            if folder.is_symlink() or folder.stat().st_uid != os.getuid() or find_process(owner) is not None:
                continue
            _end_processes(folder)
            _remove(folder)
            cleared.append(folder)
    return cleared


def _end_processes(folder: Path) -> None:
    kill_marked(str(folder.resolve()), variable=MARK)
    for data in (folder, folder / "data"):
        run = read_run(data)
        for run_id in run.unrecovered if run is not None else ():
            kill_marked(run_id)
    if (folder / IDENTITY_FILE).exists():
        end_mosquitto(folder)
    for bed in (folder, folder / "kafka"):
        if (bed / LAYOUT_FILE).exists():
            KafkaCluster.attach(bed).stop(0)


def _remove(folder: Path) -> None:
    """Remove the folder, its signature last: the next benchmark finds what cannot be removed now."""
    for disk in psutil.disk_partitions(all=True):
        if Path(disk.mountpoint).is_relative_to(folder.resolve()):
            subprocess.run(["umount", "-l", disk.mountpoint], capture_output=True, check=False)
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        elif each.name != OWNER_FILE:
            each.unlink()
    shutil.rmtree(folder)

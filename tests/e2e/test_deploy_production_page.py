"""`PRODUCTION.md`, run as a reader runs it: a secured pipeline of many processes, a kill of each kind, and the audit.

It takes ten minutes and the ports that the page names: `make chaos` runs it.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.testbed.cluster import KafkaCluster
from deploy.testbed.cluster_layout import LAYOUT_FILE
from tests.support.shell_page import ROOT, Reader, run_page

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(2400),
    pytest.mark.promise("P1"),
    *(
        pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not on this machine")
        for name in ("mosquitto", "prometheus", "java", "curl", "openssl")
    ),
]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    found = Reader(tmp_path, block_seconds=600)
    yield found
    # A part that waits for another one does not end by itself: what the shell started is found by its folder.
    with suppress(subprocess.TimeoutExpired):
        found.close()
    for one in psutil.process_iter():
        try:
            if one.pid != os.getpid() and Path(one.cwd()).is_relative_to(tmp_path):
                one.send_signal(signal.SIGKILL)
        except (psutil.Error, OSError):
            continue
    if (tmp_path / "rehearsal" / "kafka" / LAYOUT_FILE).exists():
        KafkaCluster.attach(tmp_path / "rehearsal" / "kafka").stop(0)


def test_the_production_page_does_what_it_shows(reader: Reader, wait_until: Callable[..., Any], tmp_path: Path) -> None:
    run_page((ROOT / "PRODUCTION.md").read_text("utf-8"), reader, wait_until, again_seconds=300)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".venv", "tidegate"], "the last commands clean up"

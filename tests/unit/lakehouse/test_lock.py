"""One writer: the second is refused by name, a child that inherited the lock keeps it, a crash frees it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.contract.errors import FatalError
from lakehouse.lock import WriterLock


def test_a_second_writer_is_refused_and_told_whom_to_stop(tmp_path: Path) -> None:
    first = WriterLock(tmp_path, what="tables")
    with pytest.raises(FatalError, match=rf"Process {os.getpid()} .*kill {os.getpid()}"):
        WriterLock(tmp_path, what="tables")
    first.close()
    WriterLock(tmp_path, what="tables").close()


def test_a_child_that_inherited_the_lock_holds_it(tmp_path: Path) -> None:
    first = WriterLock(tmp_path, what="tables")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[first.fd])
    first.close()
    (tmp_path / "_writer.lock").write_text("999999999\n")
    with pytest.raises(FatalError, match="a process that has ended"):
        WriterLock(tmp_path, what="tables", patience_seconds=0)
    child.kill()
    child.wait()
    assert child.stdin is not None
    child.stdin.close()
    WriterLock(tmp_path, what="tables").close()

"""Questions about processes that may end between two system calls; `from tests.support.processes import runs`."""

import psutil


def runs(process: psutil.Process | int) -> bool:
    """True while the process runs; a zombie, which waits for its parent to read its exit code, does not run."""
    try:
        process = psutil.Process(process) if isinstance(process, int) else process
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def name_of(process: psutil.Process) -> str:
    """The program's name; empty for a process that has ended in the meantime."""
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""

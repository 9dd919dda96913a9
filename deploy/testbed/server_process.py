"""A started server, which a command ends, suspends or kills by process id, even if another command started it."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import psutil

from deploy.settings import child_environment

__all__ = ["ProcessIdentity", "ServerPart", "ServerProcess", "SingleServer", "find_process", "stop_child"]

SAME_START_SECONDS: Final = 1.0
KILLED_SECONDS: Final = 30.0
STOP_SECONDS: Final = 20.0


@dataclass(frozen=True)
class ProcessIdentity:
    """A process beyond doubt: the system gives a process id again, but not with the same start time."""

    pid: int
    started_at: float


def find_process(identity: ProcessIdentity) -> psutil.Process | None:
    """The process of this identity while it runs."""
    with suppress(psutil.Error):
        process = psutil.Process(identity.pid)
        same = abs(process.create_time() - identity.started_at) < SAME_START_SECONDS
        if same and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def stop_child(pid: int) -> None:
    """SIGSTOP to a child of this process; back when all of its threads stand still, or when it has ended.

    A thread stops at its own next turn: until then it may still answer, on a busy machine for a while.
    """
    os.kill(pid, signal.SIGSTOP)
    # Only looked at: the process that waits for the child reaps it.
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


class ServerProcess:
    """A process of a server, in a session of its own: it outlives the command that starts it until somebody ends it.

    Args:
        log: where its output goes; an existing file is kept.
        mark: shown in the process's environment.
        environment: of the process, laid over that of a part of the pipeline.
        identity: of a process that another command started.
    """

    def __init__(
        self,
        log: Path,
        *,
        mark: str = "testbed",
        environment: Mapping[str, str] | None = None,
        identity: ProcessIdentity | None = None,
    ) -> None:
        self.log_file = log
        self.identity = identity
        self._environment = {**child_environment(mark), **(environment or {})}
        self._child: subprocess.Popen[bytes] | None = None

    def spawn(self, command: list[str]) -> "subprocess.Popen[bytes]":
        """Start it; its output is added to its log.

        Raises:
            RuntimeError: it runs already; nobody would end the first process.
        """
        if self.alive:
            message = f"The server with the log {self.log_file} runs already."
            raise RuntimeError(message)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as out:
            self._child = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.log_file.parent,
                env=self._environment, start_new_session=True,
            )  # fmt: skip
        pid = self._child.pid
        try:
            self.identity = ProcessIdentity(pid, psutil.Process(pid).create_time())
        except psutil.Error:
            self.identity = ProcessIdentity(pid, time.time())
        return self._child

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        if self._child is not None:
            return self._child.poll() is None
        return self.identity is not None and find_process(self.identity) is not None

    @property
    def pid(self) -> int | None:
        """Process id; None while it does not run."""
        return self.identity.pid if self.identity is not None and self.alive else None

    @property
    def ended(self) -> int | None:
        """The exit code of a child; None while it runs."""
        return None if self._child is None else self._child.poll()

    @property
    def resident_mb(self) -> float:
        """Resident memory now; 0 while it does not run."""
        process = find_process(self.identity) if self.identity is not None else None
        with suppress(psutil.Error):
            return float(process.memory_info().rss) / 1024**2 if process is not None else 0.0
        return 0.0

    def signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self._child is not None:
            self._child.send_signal(number)
            return
        process = find_process(self.identity) if self.identity is not None else None
        if process is not None:
            with suppress(psutil.Error):
                process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash does; back when it has ended."""
        self.signal(signal.SIGKILL)
        self.wait_end(KILLED_SECONDS)

    def hold(self) -> None:
        """Let it stand still (SIGSTOP), each of its threads: its connections stay open, and nothing answers."""
        if self._child is not None and self.alive:
            stop_child(self._child.pid)
        else:
            self.signal(signal.SIGSTOP)

    def resume_process(self) -> None:
        """Let it go on (SIGCONT)."""
        self.signal(signal.SIGCONT)

    def end(self, seconds: float) -> None:
        """Ask it to end, and kill it where it still runs after some seconds; 0 or less kills it at once."""
        if seconds > 0:
            self.signal(signal.SIGTERM)
            self.wait_end(seconds)
        if self.alive:
            self.kill()

    def wait_end(self, seconds: float) -> bool:
        """Wait for its end; False where it still runs."""
        if self._child is not None:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(seconds)
            return not self.alive
        process = find_process(self.identity) if self.identity is not None else None
        if process is not None:
            with suppress(psutil.Error):
                process.wait(seconds)
        return not self.alive

    def wait(self, seconds: float = 30.0) -> int:
        """The exit code of a child, once it ends.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        assert self._child is not None  # noqa: S101 - a caller's mistake
        return self._child.wait(seconds)

    def terminate(self, seconds: float = 30.0) -> int:
        """Ask a child to end; its exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def log(self) -> str:
        """All its output so far."""
        return self.log_file.read_text("utf-8", "replace") if self.log_file.exists() else ""


class ServerPart(Protocol):
    """A broker or a Kafka as deploy/local describes it: its files, its command, its first answer."""

    def prepare(self) -> None:
        """Write its files."""

    def command(self) -> list[str]:
        """The command, after `prepare`."""

    def wait_ready(self, process: "subprocess.Popen[bytes]", seconds: float = ...) -> None:
        """Wait until the started process answers."""


class SingleServer(ServerProcess):
    """A single server that runs from the first moment on; `part` says how to start it."""

    def __init__(self, part: Any, log: Path, *, mark: str = "testbed") -> None:
        super().__init__(log, mark=mark)
        self.part = part
        self.start()

    def start(self) -> None:
        """Start it on the data that it has, and wait until it answers; one that does not is ended."""
        part: ServerPart = self.part
        part.prepare()
        try:
            part.wait_ready(self.spawn(part.command()))
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask it to end, as a supervisor does, and kill it where it does not."""
        self.end(STOP_SECONDS)

    def restart(self) -> None:
        """Kill it and start it again on its data."""
        self.kill()
        self.start()

"""Process of a load: it gets and gives lines, each within a time limit, and ends with the block that started it."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from deploy.bench.kafka_load.client_work import ClientWork
from deploy.settings import child_environment
from ingest.contract.errors import UnavailableError

__all__ = [
    "READY",
    "START_SECONDS",
    "LoadWorker",
    "StarterLines",
    "open_worker",
    "send_line",
    "serve_sessions",
    "take_plan",
]

READY: Final = "ready"
START_SECONDS: Final = 120.0
"""Time to start Python and to connect to Kafka, on a busy machine too."""


class LoadWorker:
    """A process with pipes for its input, its output and its errors."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def say(self, what: float | str) -> None:
        """Give it a line.

        Raises:
            UnavailableError: it has ended.
        """
        if self._process.stdin is None:
            raise AssertionError
        try:
            self._process.stdin.write(f"{what}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed() from None

    def answer(self, seconds: float) -> str:
        """Return the worker's next line. A worker that hangs, such as after SIGSTOP, is killed after these seconds.

        Raises:
            UnavailableError: it has ended, or gave no line in time.
        """
        if self._process.stdout is None:
            raise AssertionError
        too_late = threading.Event()

        def give_up() -> None:
            too_late.set()
            self.kill()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            text = self._process.stdout.readline()
        finally:
            timer.cancel()
        if too_late.is_set():
            message = f"a process of the load did not answer within {seconds:,.0f} s and was killed"
            raise UnavailableError(message)
        if not text.endswith("\n"):
            raise self._failed()
        return text.strip()

    def work(self, seconds: float) -> ClientWork:
        """Return the worker's work from its next line; it fails as `answer` does."""
        return ClientWork.decode(self.answer(seconds))

    def await_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until it is ready.

        Raises:
            UnavailableError: it has ended, or was too slow.
        """
        if self.answer(seconds) != READY:
            raise self._failed()

    def kill(self) -> None:
        """End the process as a crash does."""
        self._process.kill()

    def _failed(self) -> UnavailableError:
        self.kill()
        words = "" if self._process.stderr is None else self._process.stderr.read()
        last = next((line for line in reversed(words.splitlines()) if line.strip()), "it printed nothing")
        return UnavailableError(f"a process of the load ended early: {last.strip()[:500]}")


class StarterLines:
    """Inside the process: the lines of its starter, read by a thread.

    The pipe closes when the starter is gone, also by kill -9. The process then ends, because the load is no longer wanted.
    """

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def take(self) -> str:
        """The next line, as soon as it comes."""
        return self._lines.get()

    def take_if_there(self) -> str | None:
        """The next line, or None where none came yet."""
        try:
            return self._lines.get_nowait()
        except queue.Empty:
            return None

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)
        os._exit(1)


def take_plan() -> dict[str, Any]:
    """Inside the process: what it was started with."""
    return dict(json.loads(sys.stdin.readline()))


def send_line(line: str) -> None:
    """Inside the process: a line for its starter."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def serve_sessions(run: Callable[[str, StarterLines], ClientWork]) -> NoReturn:
    """Inside the process, when it is ready: for each line that says to begin, run, and give the work that was done."""
    lines = StarterLines()
    send_line(READY)
    while True:
        send_line(run(lines.take(), lines).encode())


@contextmanager
def open_worker(module: str, plan: Mapping[str, Any]) -> Iterator[LoadWorker]:
    """Start a module of this package, or one by its full name, and give it its plan; it ends with the block.

    Secrets go through its input alone.
    """
    command = [sys.executable, "-P", "-m", module if "." in module else f"{__package__}.{module}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=child_environment("bench"), start_new_session=True,
    ) as process:  # fmt: skip
        try:
            worker = LoadWorker(process)
            worker.say(json.dumps(plan))
            yield worker
        finally:
            process.kill()

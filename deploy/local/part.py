"""One part of the embedded run: a child process that is started, watched, restarted and stopped.

Each part has its own thread, so the code of its life reads from top to bottom. Each part also has its own session: signals of
the terminal reach only the supervisor, which then stops the parts in order.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import psutil

from deploy.local.logs import last_lines
from ingest.contract.errors import ConfigError
from monitoring.scrape import SILENT

__all__ = ["Part", "PartSpec", "State", "backoff_seconds"]

State = Literal["waiting", "starting", "ready", "down", "done", "restarting", "failed", "stopping", "stopped"]

BACKOFF_SECONDS: Final = (0.5, 1.0, 2.0, 4.0)
BACKOFF_LAST_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 1.0
STARTING_STOP_SECONDS: Final = 3.0
STABLE_SECONDS: Final = 30.0
"""A part that was ready this long starts again with the first back-off."""
SILENT_SINCE: Final = "does not answer"
"""Detail of a part that was ready and no longer answers: it does not start, so there is no "yet"."""
STALLED_SECONDS: Final = 120.0
"""Time without a sign of life after which a part that served is restarted."""
WRONG_SETTINGS: Final = ConfigError.exit_code


@dataclass(frozen=True, kw_only=True)
class PartSpec:
    """Specification of a part: how to start it and how it shows that it is ready.

    Attributes:
        command: called before each start; may prepare files; its errors count as a failed start.
        ready: (is it ready, what it says); called a few times a second while starting, then once a second.
        after: parts that must have been ready once before this one starts.
        one_shot: a step that is done when it exits 0, such as making the topics.
        stop_seconds: how long it may drain.
        stalled: whether what a part says that is not ready means that it hangs, rather than waits for another one.
        stalls_with: parts that must be ready at the same time: without them the hang may be theirs.
        optional: the run is ready without it.
    """

    name: str
    command: Callable[[], Sequence[str]]
    ready: Callable[[], tuple[bool, str]]
    after: tuple[str, ...] = ()
    one_shot: bool = False
    stop_seconds: float = 20.0
    stalled: Callable[[str], bool] = lambda detail: False
    stalls_with: tuple[str, ...] = ()
    optional: bool = False


class Part:
    """The life of one part; all attributes may be read from other threads.

    `last_end` is the number of the last end after which it starts again, and the words of it; None before the first.
    """

    def __init__(self, spec: PartSpec, *, environment: dict[str, str], log: Path, cwd: Path) -> None:
        self.spec = spec
        self.state: State = "waiting"
        self.since = time.time()
        self.detail = ""
        self.pid: int | None = None
        self.restarts = 0
        self.last_end: tuple[int, str] | None = None
        self.first_ready_seconds: float | None = None
        self.was_ready = threading.Event()
        self.log = log
        self._cwd = cwd
        self._environment = environment
        self._stop = threading.Event()
        self._changed: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self._log_began = 0
        self._begin_life()
        self._beside: dict[str, Part] = {}

    def _begin_life(self) -> None:
        self._served = self._stable = self._final = False
        self._stalled_at: float | None = None
        self._ready_at = 0.0

    def start(self, parts: dict[str, "Part"], changed: Callable[[], None]) -> None:
        """Begin: wait for the parts this one needs, then run until stopped. `changed` is called after each change."""
        self._changed, self._beside = changed, parts
        needs = [parts[name] for name in self.spec.after if name in parts]
        self._thread = threading.Thread(target=self._live, args=(needs,), name=f"part-{self.spec.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the process: first asked, then killed after the part's time; returns when it is gone."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _live(self, needs: list["Part"]) -> None:
        while not all(need.was_ready.wait(0.1) for need in needs):
            if self._stop.is_set():
                return self._enter("stopped", "")
        vain = 0
        while not self._stop.is_set():
            cause = self._run_once()
            if cause is None or self._stop.is_set():
                break
            if self._final:
                return self._enter("failed", cause)
            vain = 1 if self._stable else vain + 1
            words = f"{cause}; starts again in {backoff_seconds(vain):g} s"
            self.last_end = (self.restarts + 1, words)
            self._enter("restarting", words)
            self._stop.wait(backoff_seconds(vain))
            self.restarts += 1
        if self.state != "done":
            self._enter("stopped", "")
        return None

    def _run_once(self) -> str | None:
        """Start and follow one process; return why it ended by itself, or None if it was done or asked to stop."""
        self._begin_life()
        self._enter("starting", "")
        try:
            process = self._spawn()
        except Exception as error:  # whatever a start meets is a failed start, shown and tried again
            return str(error) or type(error).__name__
        try:
            return self._follow(process)
        finally:
            self.pid = None
            _end_group(process.pid)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        command = list(self.spec.command())
        self._log_began = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                env=self._environment, cwd=self._cwd, start_new_session=True,
            )  # fmt: skip
        self.pid = process.pid
        self._changed()
        return process

    def _follow(self, process: "subprocess.Popen[bytes]") -> str | None:
        began, looked_at = time.monotonic(), 0.0
        while process.poll() is None:
            if self._stop.is_set():
                self._ask_to_stop(process)
                return None
            if self.state != "ready" or time.monotonic() - looked_at >= LOOK_SECONDS:
                looked_at = time.monotonic()
                self._look(began)
            if (hung := self._stalled_seconds()) > STALLED_SECONDS:
                self._end(process, STARTING_STOP_SECONDS)
                return f"hung for {hung:.0f} s ({self.detail})"
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        if self.spec.one_shot and process.returncode == 0:
            self._became("done", "", began)
            return None
        self._final = process.returncode == WRONG_SETTINGS
        return _ending(process.returncode) + ("" if process.returncode < 0 else self._last_words())

    def _last_words(self) -> str:
        """Return the last line of the part's log: each part ends with a sentence that says why."""
        said = next((line.strip() for line in reversed(last_lines(self.log, 5)) if line.strip()), "")
        return f" ({said[:200]})" if said and self._has_reported() else ""

    def _has_reported(self) -> bool:
        """Return whether the log grew in this life of the part; older lines would mislead."""
        return self.log.exists() and self.log.stat().st_size > self._log_began

    def _look(self, began: float) -> None:
        if self.spec.one_shot:
            return
        try:
            ready, detail = self.spec.ready()
        except Exception as error:  # a probe that fails says "not ready", never ends the watch
            ready, detail = False, str(error)
        if ready:
            self._became("ready", detail, began)
        else:
            self._not_ready(detail)
        self._note_stall(ready=ready, detail=detail)

    def _not_ready(self, detail: str) -> None:
        """One that served and is silent now is down; one that says why it is not ready, or never served, starts."""
        is_down = self._served and detail == SILENT
        state: State = "down" if is_down else "starting"
        words = SILENT_SINCE if is_down else detail
        if self.state != state:
            self._enter(state, words)
        self.detail = words

    def _note_stall(self, *, ready: bool, detail: str) -> None:
        hangs = self._served and not ready and self.spec.stalled(detail)
        others = (self._beside[name] for name in self.spec.stalls_with if name in self._beside)
        if not hangs or any(other.state != "ready" for other in others):
            self._stalled_at = None
        elif self._stalled_at is None:
            self._stalled_at = time.monotonic()

    def _stalled_seconds(self) -> float:
        return 0.0 if self._stalled_at is None else time.monotonic() - self._stalled_at

    def _became(self, state: State, detail: str, began: float) -> None:
        if self.first_ready_seconds is None:
            self.first_ready_seconds = time.monotonic() - began
        if self.state != state:
            self._ready_at = time.monotonic()
            self._enter(state, detail)
        self.detail = detail
        self._served = True
        self._stable = self._stable or time.monotonic() - self._ready_at > STABLE_SECONDS
        self.was_ready.set()

    def _ask_to_stop(self, process: "subprocess.Popen[bytes]") -> None:
        self._enter("stopping", "")
        # A part that was never ready in this life has nothing to drain.
        self._end(process, self.spec.stop_seconds if self._served else STARTING_STOP_SECONDS)

    def _end(self, process: "subprocess.Popen[bytes]", seconds: float) -> None:
        # Only the leader is asked: a JVM below it must live until its Python part has drained.
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(seconds, self.spec.stop_seconds))
            return
        _end_group(process.pid)
        process.wait()

    def _enter(self, state: State, detail: str) -> None:
        self.state, self.detail, self.since = state, detail, time.time()
        self._changed()


def backoff_seconds(vain: int) -> float:
    """Return the pause after the n-th end in a row of a part that was not ready for long."""
    return BACKOFF_SECONDS[vain - 1] if vain <= len(BACKOFF_SECONDS) else BACKOFF_LAST_SECONDS


def _ending(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _end_group(group: int) -> None:
    """Kill what a part left in its session (a JVM whose Python died); back when it is gone and its locks are free."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while _group_lives(group) and time.monotonic() < deadline:
            time.sleep(0.02)


def _group_lives(group: int) -> bool:
    """Return whether a member of the group still runs; without a reaper of orphans, dead ones stay as zombies."""
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False

"""`tidegate up`: checks, starts, shows, says ready, watches, stops.

Words to the person in front of the screen, who may have closed it: nothing that is said may end a run.
"""

import os
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from deploy.local import artifacts
from deploy.local.announce import announcement, render_announcement
from deploy.local.checklist import Checklist
from deploy.local.guard import Guard, kill_marked
from deploy.local.port_claims import PortClaims
from deploy.local.preflight import preflight
from deploy.local.run_plan import RunPlan, make_plan
from deploy.local.runfile import DataLock, RunFile, read_run
from deploy.local.supervisor import Supervisor
from deploy.settings import Settings
from ingest.contract.errors import UnavailableError

__all__ = ["UpOptions", "make_folders", "print_safely", "run_foreground"]

DRAW_SECONDS: Final = 0.2
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def print_safely(text: str, *, err: bool = True) -> None:
    """Print a line; a closed terminal or a reader that stopped reading is not an error of the run."""
    # ValueError: the stream is closed.
    with suppress(OSError, ValueError):
        typer.echo(text, err=err)


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """The flags of `tidegate up`."""

    data: Path
    config: Path | None
    port_offset: int
    fleet: bool
    prometheus: bool = True
    as_json: bool


def run_foreground(options: UpOptions, settings: Settings) -> int:
    """Run until a signal asks to stop; the exit code."""
    stop = _stop_on_signals()
    make_folders(options.data)
    lock = DataLock(options.data)
    claims = PortClaims()
    try:
        left = read_run(options.data)
        run, guard = _enter(options.data, left)
        try:
            _recover(options.data, left)
            run.recovers.clear()
            if not stop.is_set():
                _fetch_jvm_parts()
            if not stop.is_set():
                _run(options, settings, run, guard, claims, stop)
        finally:
            guard.end()
    finally:
        _leave(options.data)
        claims.release()
        lock.release()
    return 0


def _enter(data: Path, left: RunFile | None) -> tuple[RunFile, Guard]:
    """Write down whose the folder is from now on: with the lock held, nothing of an older run may be taken for ours."""
    (data / "state.json").unlink(missing_ok=True)
    run = RunFile(run_id=uuid.uuid4().hex, pid=os.getpid(), started_at=time.time())
    # An id that was not cleared up after yet is kept until it is.
    run.recovers = left.unrecovered if left is not None else []
    guard = Guard(run.run_id)
    run.write(data)
    return run, guard


def _leave(data: Path) -> None:
    for name in ("run.json", "state.json"):
        (data / name).unlink(missing_ok=True)


def _run(
    options: UpOptions,
    settings: Settings,
    run: RunFile,
    guard: Guard,
    claims: PortClaims,
    stop: threading.Event,
) -> None:
    began = time.monotonic()
    for line in preflight(settings, options.data, prometheus=options.prometheus):
        print_safely(line)
    plan = make_plan(
        settings,
        options.data,
        run,
        claims,
        port_offset=options.port_offset,
        fleet=options.fleet,
        prometheus=options.prometheus,
    )
    for line in plan.remarks:
        print_safely(line)
    supervisor = _supervise(options, plan, run, guard)
    try:
        _watch(supervisor, _Shown(plan.settings, run, options, began), stop)
    finally:
        print_safely("Stopping …")
        supervisor.stop(lambda name: print_safely(f"  stopping {name}"))
        print_safely(f"Stopped. Data stays in {options.data}")


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        stop.set()

    for number in STOP_SIGNALS:
        # nohup asks to ignore the end of the terminal; this keeps it so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, ask)
    return stop


@contextmanager
def _interruptible() -> Iterator[None]:
    """While nothing runs yet that would have to be stopped in order, a signal ends what is going on at once.

    Raises:
        KeyboardInterrupt: a signal came.
    """

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_folders(data: Path) -> None:
    """Make the run's folder and that of its logs.

    Raises:
        UnavailableError: not possible there.
    """
    try:
        (data / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{data} cannot be created ({error.strerror}). Name a writable folder with --data."
        raise UnavailableError(msg) from error
    if not os.access(data, os.W_OK):
        msg = f"{data} is not writable. Name a writable folder with --data."
        raise UnavailableError(msg)


def _recover(data: Path, left: RunFile | None) -> None:
    """Clear up after a run that was killed together with its guard, and empty the folder of temporary files."""
    if left is not None:
        count = sum(kill_marked(run_id) for run_id in left.unrecovered)
        left_over = f"; {count} of its processes were stopped" if count else ""
        print_safely(f"The last run here (pid {left.pid}) was killed and has been recovered{left_over}.")
    shutil.rmtree(data / "tmp", ignore_errors=True)
    (data / "tmp").mkdir(exist_ok=True)


def _fetch_jvm_parts() -> None:
    """Fetch missing jars first; their time is reported separately from the start's."""
    began = time.monotonic()
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        print_safely(line)

    with _interruptible():
        artifacts.fetch_jars("all", tell)
    if told:
        print_safely(f"JVM parts fetched in {time.monotonic() - began:.0f} s.")


def _supervise(options: UpOptions, plan: RunPlan, run: RunFile, guard: Guard) -> Supervisor:
    supervisor = Supervisor(
        options.data,
        run,
        guard,
        plan.specs,
        stop_order=plan.stop_order,
        log_max_bytes=plan.settings.embedded.log_max_bytes,
        notes=plan.notes,
    )
    supervisor.start()
    return supervisor


@dataclass(frozen=True)
class _Shown:
    """Announcement when the run is ready."""

    settings: Settings
    run: RunFile
    options: UpOptions
    began: float

    def announce(self) -> None:
        print_safely(f"Ready after {time.monotonic() - self.began:.1f} s.")
        told = announcement(self.settings, self.options.data, self.run.ports)
        print_safely(render_announcement(told, as_json=self.options.as_json), err=False)


def _watch(supervisor: Supervisor, shown: _Shown, stop: threading.Event) -> None:
    checklist = Checklist(sys.stderr)
    while not stop.wait(DRAW_SECONDS) and not supervisor.ready:
        supervisor.tick()
        checklist.show(supervisor.parts())
    if stop.is_set():
        return
    supervisor.tick()
    checklist.show(supervisor.parts())
    shown.announce()
    # From here on only changes are printed, line by line.
    changes = Checklist(sys.stderr, tty=False, silence_seconds=15.0)
    changes.skip(supervisor.parts())
    while not stop.wait(DRAW_SECONDS):
        supervisor.tick()
        changes.show(supervisor.parts())

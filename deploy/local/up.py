"""`tidegate up`: check the machine, start the parts, show when they are ready, watch and stop them; or do so in the background.

The person may close the terminal at any time: output to a closed terminal never ends a run.
"""

import os
import shutil
import signal
import subprocess
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
from deploy.local.logs import last_lines
from deploy.local.ports import PortClaims
from deploy.local.preflight import preflight
from deploy.local.run_plan import RunPlan, make_plan
from deploy.local.runfile import CREDENTIALS, DataLock, RunFile, is_locked, read_run, read_state, require_run
from deploy.local.supervisor import Supervisor
from deploy.process_signals import keep_files_private
from deploy.settings import Settings, load_settings
from ingest.contract.errors import FatalError, UnavailableError

__all__ = ["UpOptions", "make_folders", "print_safely", "run_detached", "run_foreground"]

DRAW_SECONDS: Final = 0.2
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def print_safely(text: str, *, err: bool = True) -> None:
    """Print a line. A closed terminal, or a reader that has stopped reading, is not an error of the run."""
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
    secure: bool = False
    as_json: bool


def run_foreground(options: UpOptions, settings: Settings) -> int:
    """Run until a signal asks to stop; return the exit code."""
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
    """Write the run file of this run and start its guard. Call it with the lock held: it replaces files of an older run."""
    (data / "state.json").unlink(missing_ok=True)
    run = RunFile(run_id=uuid.uuid4().hex, pid=os.getpid(), started_at=time.time())
    # Ids of runs whose processes were not cleared up stay until they are.
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
        secure=options.secure,
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
        # nohup ignores the end of the terminal; keep it ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, ask)
    return stop


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let a signal end the block at once, as long as no part runs that must be stopped in order.

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
    """Create the run's folder and the folder of its logs, and keep other users out of what this process and its children write.

    A folder of a run of an earlier version becomes private too.

    Raises:
        UnavailableError: a folder cannot be created.
    """
    umask = keep_files_private()
    try:
        (data / "logs").mkdir(parents=True, exist_ok=True)
        # mosquitto writes the client ids of all clients into its log, and the gateway's is a secret.
        (data / "logs").chmod(0o700)
        if (data / CREDENTIALS).exists():
            with suppress(PermissionError):  # a folder of another user, who gave us the right to write
                data.chmod(data.stat().st_mode & 0o7777 & ~umask)
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
    """Fetch missing jars; the output reports this time separately from the time of the start."""
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
    parts = supervisor.parts()
    checklist.show(parts)
    shown.announce()
    # From here on only changes are printed, line by line.
    changes = Checklist(sys.stderr, tty=False, silence_seconds=15.0)
    changes.skip(parts)
    while not stop.wait(DRAW_SECONDS):
        supervisor.tick()
        changes.show(supervisor.parts())


def run_detached(options: UpOptions, settings: Settings, *, wait: bool) -> int:
    """Start the supervisor in the background; return the exit code of the command, with `wait` when all parts are ready.

    Raises:
        FatalError: a part has wrong settings, or the run is not ready in time.
        typer.Exit: the supervisor ended, with its exit code.
    """
    make_folders(options.data)
    lock = DataLock(options.data)
    # Remove the last state of a killed run, so that nobody takes it for the state of the new one.
    (options.data / "state.json").unlink(missing_ok=True)
    lock.release()
    log = options.data / "logs" / "supervisor.log"
    log.write_bytes(b"")
    # Appending, so that the log can be cut while it is written.
    with log.open("ab") as out:
        child = subprocess.Popen(
            _own_command(options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=out,
            start_new_session=True,
        )
    deadline = time.monotonic() + settings.embedded.ready_timeout_seconds
    checklist = Checklist(sys.stderr)
    while not _is_up(options.data, child.pid, wait=wait):
        _check_alive(child, log)
        _check_parts(options.data)
        if time.monotonic() > deadline:
            raise FatalError(_late(settings))
        if wait and (parts := read_state(options.data).get("parts")):
            checklist.show(parts)
        time.sleep(DRAW_SECONDS)
    return _tell_detached(options, wait=wait, checklist=checklist)


def _late(settings: Settings) -> str:
    seconds = settings.embedded.ready_timeout_seconds
    return f"The run is not ready after {seconds:g} s and keeps trying. See `tidegate status`."


def _own_command(options: UpOptions) -> list[str]:
    command = [sys.executable, "-P", "-m", "deploy.cli", "up", "--data", str(options.data)]
    command += ["--port-offset", str(options.port_offset)]
    if options.config is not None:
        command += ["--config", str(options.config.absolute())]
    command += [] if options.fleet else ["--no-fleet"]
    command += ["--secure"] if options.secure else []
    return command if options.prometheus else [*command, "--no-prometheus"]


def _is_up(data: Path, pid: int, *, wait: bool) -> bool:
    """Return whether the new supervisor runs; with `wait`, whether it reports ready."""
    run = read_run(data) if is_locked(data) else None
    if run is None or run.pid != pid:
        return False
    state = read_state(data)
    return bool(state.get("ready")) if wait else bool(state)


def _check_parts(data: Path) -> None:
    """Raise the error of a part with wrong settings at once: it would never become ready."""
    for name, part in read_state(data).get("parts", {}).items():
        if part["state"] == "failed":
            msg = f"{name} cannot run: {part['detail']}. Fix the cause, then run `tidegate down` and `tidegate up`."
            raise FatalError(msg)


def _check_alive(child: "subprocess.Popen[bytes]", log: Path) -> None:
    if child.poll() is not None:
        # Use the sentence and the exit code of the supervisor.
        typer.echo("\n".join(last_lines(log, 1)), err=True)
        raise typer.Exit(child.returncode or 1)


def _tell_detached(options: UpOptions, *, wait: bool, checklist: Checklist) -> int:
    state, run = read_state(options.data), require_run(options.data)
    if wait:
        checklist.show(state["parts"])
        typer.echo(f"Ready after {time.time() - run.started_at:.1f} s.", err=True)
    settings = load_settings(options.data / run.config, environ={})
    told = announcement(settings, options.data, run.ports)
    typer.echo(render_announcement(told, as_json=options.as_json, ready=wait))
    return 0

"""`tidegate up`: checks, starts, shows, says ready, watches, stops."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from deploy.local import artifacts
from deploy.local.announce import announcement, render_announcement
from deploy.local.checklist import Checklist
from deploy.local.guard import kill_marked
from deploy.local.logs import last_lines
from deploy.local.plan import Plan, make_plan
from deploy.local.preflight import preflight
from deploy.local.runfile import DataLock, RunFile, is_locked, read_run, read_state, require_run
from deploy.local.supervisor import Supervisor
from deploy.settings import Settings, load_settings
from ingest.contract.errors import FatalError, UnavailableError

__all__ = ["UpOptions", "run_detached", "run_foreground"]

DRAW_SECONDS: Final = 0.2


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """The flags of `tidegate up`."""

    data: Path
    config: Path | None
    port_offset: int
    fleet: bool
    as_json: bool


def run_foreground(options: UpOptions, settings: Settings) -> int:
    """Run until a signal asks to stop; the exit code."""
    stop = _stop_on_signals()
    for folder in (options.data, options.data / "logs"):
        _make_folder(folder)
    lock = DataLock(options.data)
    try:
        _recover(options.data)
        _fetch_jvm_parts()
        began = time.monotonic()
        for line in preflight(settings, options.data):
            typer.echo(line, err=True)
        run = RunFile(run_id=uuid.uuid4().hex, pid=os.getpid(), started_at=time.time())
        run.write(options.data)
        plan = make_plan(settings, options.data, run, port_offset=options.port_offset, fleet=options.fleet)
        for line in plan.remarks:
            typer.echo(line, err=True)
        supervisor = _supervise(options, plan, run)
        try:
            _watch(supervisor, _Shown(plan.settings, run, options, began), stop)
        finally:
            typer.echo("Stopping …", err=True)
            supervisor.stop(lambda name: typer.echo(f"  stopping {name}", err=True))
            typer.echo("Stopped. Data stays in " + str(options.data), err=True)
    finally:
        (options.data / "run.json").unlink(missing_ok=True)
        lock.release()
    return 0


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask)
    return stop


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{folder} cannot be made ({error.strerror}). Name a folder that you may write to with --data."
        raise UnavailableError(msg) from error
    if not os.access(folder, os.W_OK):
        msg = f"{folder} is not writable. Name a folder that you may write to with --data."
        raise UnavailableError(msg)


def _recover(data: Path) -> None:
    """Clear up after a run that was killed together with its guard."""
    if (left := read_run(data)) is not None:
        count = kill_marked(left.run_id)
        left_over = f", {count} of its processes were stopped" if count else ""
        typer.echo(f"The last run here (pid {left.pid}) was killed; it is recovered{left_over}.", err=True)


def _fetch_jvm_parts() -> None:
    """What is not in the cache yet is fetched first, and its time is told apart from the start's."""
    began = time.monotonic()
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        typer.echo(line, err=True)

    artifacts.ensure("all", tell)
    if told:
        typer.echo(f"JVM parts fetched in {time.monotonic() - began:.0f} s.", err=True)


def _supervise(options: UpOptions, plan: Plan, run: RunFile) -> Supervisor:
    supervisor = Supervisor(
        options.data,
        run,
        plan.specs,
        stop_order=plan.stop_order,
        metrics_urls=plan.metrics_urls,
        log_max_bytes=plan.settings.embedded.log_max_bytes,
        notes=plan.notes,
    )
    supervisor.start()
    return supervisor


@dataclass(frozen=True)
class _Shown:
    """What is told when the run is ready."""

    settings: Settings
    run: RunFile
    options: UpOptions
    began: float

    def announce(self) -> None:
        typer.echo(f"Ready after {time.monotonic() - self.began:.1f} s.", err=True)
        told = announcement(self.settings, self.options.data, self.run.ports)
        typer.echo(render_announcement(told, as_json=self.options.as_json))
        sys.stdout.flush()


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
    # From here on only what changes is told, line by line.
    changes = Checklist(sys.stderr, tty=False)
    while not stop.wait(DRAW_SECONDS):
        supervisor.tick()
        changes.show(
            {name: part for name, part in supervisor.parts().items() if part["restarts"] or part["state"] != "ready"}
        )


def run_detached(options: UpOptions, settings: Settings, *, wait: bool) -> int:
    """Start the supervisor in the background; with `wait` return when it is ready."""
    for folder in (options.data, options.data / "logs"):
        _make_folder(folder)
    DataLock(options.data).release()
    log = options.data / "logs" / "supervisor.log"
    with log.open("wb") as out:
        child = subprocess.Popen(
            _own_command(options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=out,
            start_new_session=True,
        )
    deadline = time.monotonic() + settings.embedded.ready_timeout_seconds
    checklist = Checklist(sys.stderr)
    while not _up(options.data, wait=wait):
        _check_alive(child, log)
        if time.monotonic() > deadline:
            raise FatalError(_late(settings))
        if wait and (parts := read_state(options.data).get("parts")):
            checklist.show(parts)
        time.sleep(DRAW_SECONDS)
    return _tell_detached(options, wait=wait, checklist=checklist)


def _late(settings: Settings) -> str:
    seconds = settings.embedded.ready_timeout_seconds
    return f"Not ready within {seconds:g} s; it goes on trying. See `tidegate status`."


def _own_command(options: UpOptions) -> list[str]:
    command = [sys.executable, "-P", "-m", "deploy.cli", "up", "--data", str(options.data)]
    command += ["--port-offset", str(options.port_offset)]
    if options.config is not None:
        command += ["--config", str(options.config.absolute())]
    return command if options.fleet else [*command, "--no-fleet"]


def _up(data: Path, *, wait: bool) -> bool:
    state = read_state(data) if is_locked(data) else {}
    return bool(state.get("ready")) if wait else bool(state)


def _check_alive(child: "subprocess.Popen[bytes]", log: Path) -> None:
    if child.poll() is None:
        return
    said = "\n".join(last_lines(log, 12))
    error = UnavailableError(said) if child.returncode == UnavailableError.exit_code else FatalError(said)
    raise error


def _tell_detached(options: UpOptions, *, wait: bool, checklist: Checklist) -> int:
    state, run = read_state(options.data), require_run(options.data)
    if wait:
        checklist.show(state["parts"])
        typer.echo(f"Ready after {time.time() - run.started_at:.1f} s.", err=True)
    settings = load_settings(options.data / run.config, environ={})
    told = announcement(settings, options.data, run.ports)
    typer.echo(render_announcement(told, as_json=options.as_json, ready=wait))
    return 0

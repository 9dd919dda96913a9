"""`tidegate up`: checks, starts, shows, says ready, watches, stops."""

import os
import signal
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
from deploy.local.plan import Plan, make_plan
from deploy.local.preflight import preflight
from deploy.local.runfile import DataLock, RunFile, read_run
from deploy.local.supervisor import Supervisor
from deploy.settings import Settings
from ingest.contract.errors import UnavailableError

__all__ = ["UpOptions", "make_folders", "run_foreground"]

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
    make_folders(options.data)
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
        # nohup asks to ignore the end of the terminal; that wish stands.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, ask)
    return stop


def make_folders(data: Path) -> None:
    """Make the run's folder and that of its logs.

    Raises:
        UnavailableError: not possible there.
    """
    try:
        (data / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{data} cannot be made ({error.strerror}). Name a folder that you may write to with --data."
        raise UnavailableError(msg) from error
    if not os.access(data, os.W_OK):
        msg = f"{data} is not writable. Name a folder that you may write to with --data."
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
    changes = Checklist(sys.stderr, tty=False, silence_seconds=15.0)
    changes.skip(supervisor.parts())
    while not stop.wait(DRAW_SECONDS):
        supervisor.tick()
        changes.show(supervisor.parts())

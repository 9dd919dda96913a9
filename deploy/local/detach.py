"""`tidegate up --detach`: starts the supervisor in the background, and waits for it where asked."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import typer

from deploy.local.announce import announcement, render_announcement
from deploy.local.checklist import Checklist
from deploy.local.logs import last_lines
from deploy.local.runfile import DataLock, is_locked, read_run, read_state, require_run
from deploy.local.up import UpOptions, make_folders
from deploy.settings import Settings, load_settings
from ingest.contract.errors import FatalError

__all__ = ["run_detached"]

DRAW_SECONDS: Final = 0.2


def run_detached(options: UpOptions, settings: Settings, *, wait: bool) -> int:
    """Start the supervisor in the background; with `wait` return when it is ready."""
    make_folders(options.data)
    lock = DataLock(options.data)
    # The last state of a killed run must not be taken for the state of the new one.
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
    while not _up(options.data, child.pid, wait=wait):
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
    return command if options.prometheus else [*command, "--no-prometheus"]


def _up(data: Path, pid: int, *, wait: bool) -> bool:
    """Return whether the new supervisor is at work; with `wait`, whether it says ready."""
    run = read_run(data) if is_locked(data) else None
    if run is None or run.pid != pid:
        return False
    state = read_state(data)
    return bool(state.get("ready")) if wait else bool(state)


def _check_parts(data: Path) -> None:
    """A part whose settings are wrong never becomes ready: say so at once."""
    for name, part in read_state(data).get("parts", {}).items():
        if part["state"] == "failed":
            msg = f"{name} cannot run: {part['detail']}. Fix the cause, then run `tidegate down` and `tidegate up`."
            raise FatalError(msg)


def _check_alive(child: "subprocess.Popen[bytes]", log: Path) -> None:
    if child.poll() is not None:
        # The supervisor's own sentence and exit code are the answer.
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

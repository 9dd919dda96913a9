"""Choose the pipeline of a benchmark: the one of --config, a running embedded run, or one started for it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import typer

from deploy.bench.temporary import own_folder
from deploy.local.locate_settings import locate_settings
from deploy.local.runfile import is_locked, read_run
from deploy.settings import Settings, data_dir, load_settings
from ingest.contract.errors import FatalError

__all__ = ["bench_target", "own_run", "with_device_port"]

_LOCK_SECONDS: Final = 30.0


@contextmanager
def bench_target(config: Path | None, data: Path | None) -> Iterator[Settings]:
    """Settings of a running pipeline; what was started for the benchmark is stopped and removed afterwards."""
    if config is not None:
        yield load_settings(config)
    elif is_locked(data_dir(data)):
        yield with_device_port(locate_settings(None, data, needs_run=True), data_dir(data))
    else:
        with _started() as settings:
            yield settings


@contextmanager
def _started() -> Iterator[Settings]:
    with own_folder() as folder:
        data = folder / "data"
        data.mkdir()
        typer.echo(f"No pipeline runs here; starting one in {data}.", err=True)
        with own_run(data, port_offset=2000) as settings:
            yield settings


@contextmanager
def own_run(folder: Path, *, port_offset: int, config: Path | None = None) -> Iterator[Settings]:
    """An embedded run without the simulated fleet in a folder of its own, while the block runs; the folder stays.

    Args:
        folder: its data.
        port_offset: added to every port.
        config: settings to begin with; without it the defaults.

    Raises:
        FatalError: it does not start; its words are on stderr.
    """
    try:
        given = [] if config is None else ["--config", str(config)]
        offset = ("--port-offset", str(port_offset))
        _tidegate("up", "--detach", "--wait", "--no-fleet", *offset, "--data", str(folder), *given)
        yield with_device_port(locate_settings(None, folder, needs_run=True), folder)
    finally:
        # An interrupt in the first second finds a supervisor that has not locked its folder yet.
        deadline = time.monotonic() + _LOCK_SECONDS
        while not is_locked(folder) and _starts(folder) and time.monotonic() < deadline:
            time.sleep(0.1)
        if is_locked(folder):
            _tidegate("down", "--data", str(folder))


def _starts(folder: Path) -> bool:
    """Return whether a process has this folder as its --data; its name is random, so no other run has it."""
    wanted = {"--data", str(folder)}
    return any(wanted <= set(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]))


def with_device_port(settings: Settings, data: Path) -> Settings:
    """Return the settings with port and user of the devices: iotcore has another port for MQTT 5; the publisher speaks 3.1.1."""
    run = read_run(data)
    port = run.ports["mqtt"] if run else settings.mqtt.port
    mqtt = settings.mqtt.with_login("devices").model_copy(update={"port": port})
    return settings.model_copy(update={"mqtt": mqtt})


def _tidegate(*arguments: str) -> None:
    command = [sys.executable, "-P", "-m", "deploy.cli", *arguments]
    if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
        msg = f"`tidegate {json.dumps(arguments)[1:-1]}` failed; see its output above."
        raise FatalError(msg)

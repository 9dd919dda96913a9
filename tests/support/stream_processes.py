"""Processes of `tidegate stream` on one settings file; `from tests.support.stream_processes import stream_processes`."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

COMMAND = [sys.executable, "-c", "from deploy.cli import main; main()", "stream"]


@contextmanager
def stream_processes(
    folder: Path, settings: str, environment: Mapping[str, str] | None = None
) -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    """Yield a function that starts one more stream, in a process group of its own; what still runs is killed at the end.

    `settings` is the text of the settings file. A stream's words go to `stream.N.log` in the folder, Spark's into `logs.N`.
    """
    config = folder / "config.toml"
    config.write_text(settings, encoding="utf-8")
    config.chmod(0o600)
    started: list[subprocess.Popen[bytes]] = []

    def start() -> "subprocess.Popen[bytes]":
        number = len(started)
        arguments = [*COMMAND, "--config", str(config), "--log-dir", str(folder / f"logs.{number}")]
        with (folder / f"stream.{number}.log").open("wb") as out:
            started.append(subprocess.Popen(arguments, stdout=out, stderr=out, start_new_session=True, env=environment))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

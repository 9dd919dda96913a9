"""Runs the unit and contract tests and prints the share of lines that they run, for `make coverage`.

Code that runs only in a process of its own (a gateway, a Spark driver, a command) is tested by the other folders of tests and
counts as not run here. So the share is a lower bound, and it is compared with a floor: new code without a unit test lowers it.
"""

import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("gateway", "ingest", "streaming", "lakehouse", "monitoring", "deploy")
TESTS = ("tests/unit", "tests/contract")
FLOOR_PERCENT = 80.0
"""Of all lines. Measured: 82.5 %; some tests run only on some machines."""


def main(arguments: Sequence[str]) -> int:
    """Return pytest's exit code, or 1 if the share is below the floor."""
    with tempfile.TemporaryDirectory(prefix="tidegate-coverage-") as folder:
        data = Path(folder) / "data"
        command = [sys.executable, "-m", "coverage", "run", f"--data-file={data}", f"--source={','.join(FOLDERS)}"]
        code = subprocess.run([*command, "-m", "pytest", "-q", *(arguments or TESTS)], cwd=ROOT, check=False).returncode
        lines = _lines(data)
    total = [sum(counts) for counts in zip(*lines.values(), strict=True)]
    for name, (run, known) in {**lines, "all": (total[0], total[1])}.items():
        sys.stdout.write(f"{name:11} {run:6} of {known:6} lines  {_percent(run, known):5.1f} %\n")
    if code or arguments or _percent(*total) >= FLOOR_PERCENT:
        return code
    sys.stdout.write(
        f"Below the floor of {FLOOR_PERCENT} %. Add unit tests for the new code, or explain a lower floor.\n"
    )
    return 1


def _lines(data: Path) -> dict[str, tuple[int, int]]:
    """Return the lines that ran and all lines of code, by folder."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    measured = coverage.Coverage(data_file=str(data), source=list(FOLDERS))
    measured.load()
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            _, known, _, missing, _ = measured.analysis2(str(file))
            found[folder][0] += len(known) - len(missing)
            found[folder][1] += len(known)
    return {name: (run, known) for name, (run, known) in found.items()}


def _percent(run: int, known: int) -> float:
    return 100 * run / known if known else 100.0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tests.fuzz.run`: atheris (libFuzzer) on every decoder and preset, one process each.

The corpus is the example payloads and the JSON test suite; what was found lies in a folder, each with its input.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ingest.contract.errors import TidegateError, UnavailableError
from tests.fuzz.seeds import FuzzTarget, targets

__all__ = ["find_atheris", "fuzz_target", "main", "provide_atheris"]

ROOT: Final = Path(__file__).resolve().parents[2]
DATA: Final = ROOT / "tests" / "data"
OWN_FOLDER: Final = ROOT / ".venv-fuzz"
CONSTRAINTS: Final = Path(__file__).with_name("constraints.txt")
START_SECONDS: Final = 240
"""Time for imports and the corpus, before libFuzzer's own clock starts; a busy machine takes minutes."""
_PROGRESS = re.compile(r"^#\d+\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)", re.MULTILINE)
_STATISTIC = re.compile(r"^stat::(\w+):\s+(\d+)", re.MULTILINE)


def find_atheris(folder: Path = OWN_FOLDER) -> list[str]:
    """Return the entries for sys.path that make atheris importable: nothing, or the fuzzer's own folder.

    Raises:
        UnavailableError: atheris is in neither place.
    """
    if importlib.util.find_spec("atheris") is not None:
        return []
    if (folder / "atheris").is_dir():
        return [str(folder)]
    message = (
        "Fuzzing needs atheris, which is not installed. `python -m tests.fuzz.run --provide` puts it into "
        f"{folder.name} (there are wheels for CPython 3.11 to 3.13 on Linux x86-64 only)."
    )
    raise UnavailableError(message)


def provide_atheris(folder: Path = OWN_FOLDER) -> None:
    """Install the pinned atheris into its own folder: it is not part of the product.

    Raises:
        UnavailableError: pip could not; its last words are in the message.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "--target", str(folder), "--upgrade", "-r", str(CONSTRAINTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"pip could not install atheris for this Python and machine: {done.stderr.strip()[-400:]}"
        raise UnavailableError(message)


def fuzz_target(
    target: FuzzTarget, seconds: int, folder: Path, path: Sequence[str], data: Path = DATA
) -> dict[str, Any]:
    """Fuzz one target in a process of its own.

    Returns:
        `{target, seconds, executions, coverage, features, corpus, accepted, findings: [{fault, file}]}`; coverage is
        libFuzzer's count of edges, None if it printed none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.child", target.name, str(folder), str(data)]
    command += [f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=8192"]
    command += ["-print_final_stats=1", f"-artifact_prefix={folder}/", str(folder / "corpus")]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={"PYTHONPATH": ":".join([*path, str(ROOT)]), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            capture_output=True,
            timeout=seconds + START_SECONDS,
            check=False,
        )
        said, code = done.stderr.decode("utf-8", "replace"), done.returncode
    except subprocess.TimeoutExpired as late:
        said, code = (late.stderr or b"").decode("utf-8", "replace"), 124
    (folder / "fuzzer.log").write_text(said, "utf-8")
    return {"target": target.name, "seconds": seconds, **_figures(said), **_findings(folder, code, said)}


def _figures(said: str) -> dict[str, Any]:
    statistics = dict(_STATISTIC.findall(said))
    seen = _PROGRESS.findall(said)
    coverage, features, corpus = map(int, seen[-1]) if seen else (None, None, None)
    executions = int(statistics.get("number_of_executed_units", 0))
    peak_mb = int(statistics.get("peak_rss_mb", 0))
    return {"executions": executions, "coverage": coverage, "features": features, "corpus": corpus, "peak_mb": peak_mb}


def _findings(folder: Path, code: int, said: str) -> dict[str, Any]:
    """Return findings of the checks, stops of libFuzzer (crash, timeout, memory), and a run that failed otherwise."""
    found = [
        json.loads(file.read_text("utf-8")) | {"file": str(file)} for file in sorted(folder.glob("finding-*.json"))
    ]
    for file in sorted(folder.glob("*-*")):
        if file.name.split("-")[0] in ("crash", "timeout", "oom", "leak"):
            found.append({"fault": f"libFuzzer stopped: {file.name.split('-')[0]}", "file": str(file)})
    if code and not found:
        found.append(
            {"fault": f"the fuzzer ended with {code}: {said.strip()[-300:]}", "file": str(folder / "fuzzer.log")}
        )
    counts = folder / "counts.json"
    accepted = json.loads(counts.read_text("utf-8"))["accepted"] if counts.exists() else 0
    return {"accepted": accepted, "findings": found}


def main(arguments: list[str] | None = None) -> int:
    """Fuzz and print the summary as JSON; 0 nothing found, 1 something, 2 usage, 69 no atheris."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="DECODER", help="a decoder, or 'preset NAME'; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument("--out", type=Path, default=ROOT / "tidegate-data" / "fuzz", help="folder for the findings")
    parser.add_argument("--provide", action="store_true", help="install atheris into .venv-fuzz and exit")
    given = parser.parse_args(arguments)
    known = {target.name: target for target in targets()}
    unknown = [name for name in given.targets if name not in known]
    if unknown:
        parser.error(f"{unknown[0]!r} is neither a decoder nor a preset; known: {', '.join(known)}")
    try:
        if given.provide:
            provide_atheris()
            return 0
        path = find_atheris()
    except TidegateError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    runs = []
    for target in map(known.__getitem__, given.targets or known):
        run = fuzz_target(target, given.seconds, given.out / target.name.replace(" ", "-"), path)
        told = f"{len(run['findings'])} findings" if run["findings"] else "nothing found"
        sys.stderr.write(f"{target.name}: {run['executions']} executions, coverage {run['coverage']}, {told}\n")
        runs.append(run)
    sys.stdout.write(json.dumps({"runs": runs, "findings": sum(len(run["findings"]) for run in runs)}, indent=2) + "\n")
    return 1 if any(run["findings"] for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())

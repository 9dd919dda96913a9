"""Runs all tests in two pytest processes at once, for `make test`.

Much of the time of these tests is waiting for servers, so two processes on two cores take little more than half the time of one.
The output of each goes to a file and is printed at the end, that of a process with failures last. Then come the slowest tests and
files of each process, with its whole time, and one summary of all: if one process takes longer, move a folder, or shorten a test.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
LANES = {"tables": ("guards", "spark", "e2e"), "rest": ("unit", "contract", "integration")}
"""Folders of each process, in the order that conftest.py gives them; both take about as long."""
BOTH_NEED_BYTES = 9_000_000_000
"""Below so much free memory the processes run one after the other: a whole `up` and Spark tests are large."""
RUN_ID = "TESTS_RUN_ID"
"""Environment variable that all processes of a run inherit, also those that leave their parent."""
PROGRESS_SECONDS = 60.0
LOOK_SECONDS = 5.0
SLOWEST_TESTS, SLOWEST_FILES = 25, 15
SLOW_SECONDS = 5.0
"""Least time of a test in the list of the slowest ones."""
COUNTED_SECONDS = 0.5
"""Least time of a phase of a test that counts for its file: pytest lists the phases (setup, call, teardown) one by one."""
_SUMMARY = re.compile(r"^=+ short test summary info =+$", re.MULTILINE)
_ENTRY = re.compile(r"^(?:FAILED|ERROR|SKIPPED|XFAIL|XPASS|PASSED|RERUN)\b")
_LAST = re.compile(r"^=+ (.*) in [\d.]+s.*=+$", re.MULTILINE)
_SLOWEST = re.compile(r"^=+ slowest durations =+$\n(?P<lines>(?:^(?!=).*$\n?)*)", re.MULTILINE)
_PHASE = re.compile(r"^([\d.]+)s (?:setup|call|teardown) +(.+)$", re.MULTILINE)
_SIGNALLED = 128
"""Exit codes above are of a signal."""
_OUTCOMES = re.compile(r"^(?:tests/\S+ )?([.FEsxX]+)(?: +\[ *(\d+)%\])?$", re.MULTILINE)
_ORDER = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error")
"""In which pytest counts outcomes; the last two have a plural."""


class Lane:
    """One pytest process whose output goes to a file."""

    def __init__(self, name: str, paths: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.name, self.output, self._environment = name, folder / f"{name}.txt", environment
        durations = ("--durations=0", f"--durations-min={COUNTED_SECONDS}")
        # Both would write the same cache.
        self._command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *durations, *paths]
        self.process: subprocess.Popen[bytes] | None = None
        self._began, self.seconds = 0.0, 0.0

    def start(self) -> None:
        self._began = time.monotonic()
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # Ctrl-C comes from us alone, once
            )

    @property
    def code(self) -> int | None:
        """Exit code; 128 and the signal where one ended it; None while it runs or waits."""
        found = None if self.process is None else self.process.poll()
        if found is not None and not self.seconds:
            self.seconds = time.monotonic() - self._began
        return found if found is None or found >= 0 else 128 - found

    def stop(self) -> None:
        """As Ctrl-C: conftest.py takes it so, and the services that the tests started end too."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def join(self) -> None:
        """Wait for its end."""
        if self.process is not None:
            self.process.wait()

    def text(self) -> str:
        return self.output.read_text("utf-8", "replace") if self.output.exists() else ""

    def progress(self) -> str:
        if self.process is None:
            return f"{self.name} waits"
        found = _OUTCOMES.findall(self.text())
        percent = next((share for _, share in reversed(found) if share), "0")
        failed = sum(len(re.findall("[FE]", marks)) for marks, _ in found)
        return f"{self.name} {percent} %" + (f" ({failed} failed)" if failed else "")

    def slowest(self) -> list[str]:
        """Lines that name the tests and the files that took the most time, with the time of all."""
        tests, files = Counter[str](), Counter[str]()
        for section in _SLOWEST.finditer(self.text()):
            for seconds, test in _PHASE.findall(section["lines"]):
                tests[test] += float(seconds)
                files[test.partition("::")[0]] += float(seconds)
        slow = [(test, seconds) for test, seconds in tests.most_common(SLOWEST_TESTS) if seconds >= SLOW_SECONDS]
        return [
            f" {self.name}: {self.seconds / 60:.1f} min; its slowest tests and files ".center(80, "-"),
            *(f"{seconds:7.1f} s  {name}" for name, seconds in (*slow, *files.most_common(SLOWEST_FILES))),
        ]

    def parts(self) -> tuple[str, list[str], Counter[str]]:
        """Output before the summary, lines of the summary, and the counts in the last line."""
        text = _SLOWEST.sub("", self.text()).rstrip()
        last = list(_LAST.finditer(text))[-1:]  # clients of a Kafka that has stopped may write behind it
        if not last or (self.code or 0) > _SIGNALLED:
            return text, [f"ERROR {self.name}: pytest ended with {self.code} and no summary"], Counter(error=1)
        found = re.findall(r"(\d+) (warning(?=s)|error(?=s)|\w+)", last[0][1])
        counts = Counter({word: int(count) for count, word in found})
        body = text[: last[0].start()].rstrip()
        begin = list(_SUMMARY.finditer(body))
        if not begin:
            return body, [], counts
        return body[: begin[-1].start()].rstrip(), body[begin[-1].end() :].strip().splitlines(), counts


def _counted(counts: Counter[str]) -> str:
    found = [(counts[word], f"{word}s" if word in _ORDER[-2:] and counts[word] > 1 else word) for word in _ORDER]
    return ", ".join(f"{count} {word}" for count, word in found if count) or "no tests ran"


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def marked(run_id: str) -> list[psutil.Process]:
    """All processes of a run, wherever they are in the tree."""

    def carries(process: psutil.Process) -> bool:
        try:
            return bool(process.environ().get(RUN_ID) == run_id and process.status() != psutil.STATUS_ZOMBIE)
        except (psutil.Error, OSError):
            return False

    return [process for process in psutil.process_iter() if carries(process)]


def end_leftovers(run_id: str) -> None:
    """End what tests left behind, as they do when their own process is killed."""
    for process in marked(run_id):
        with suppress(psutil.Error):
            say(f"left behind and ended: {process.pid} {' '.join(process.cmdline())[:100]}")
            process.kill()


class Memory:
    """The most memory that all processes of a run had at once; what several share counts for each."""

    def __init__(self, run_id: str) -> None:
        self._run_id, self.peak_bytes, self._over = run_id, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.peak_bytes = max(self.peak_bytes, sum(map(_resident_bytes, marked(self._run_id))))

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def busy_share(before: Any) -> float:
    """Share of the machine's time since `before` (`psutil.cpu_times()`) in which its cores did something."""
    grown = {name: now - then for name, now, then in zip(before._fields, psutil.cpu_times(), before, strict=True)}
    idle = sum(grown.pop(name, 0.0) for name in ("idle", "iowait"))
    busy = sum(grown.values()) - grown.get("guest", 0.0) - grown.get("guest_nice", 0.0)  # those are in user and nice
    return busy / max(busy + idle, 1e-9)


def wait(lanes: Sequence[Lane], *, at_once: bool, started: float) -> None:
    """Start the lanes and return when all have ended; shows from time to time how far they are."""
    waiting, shown = list(lanes), started
    while waiting or any(lane.code is None for lane in lanes):
        if waiting and (at_once or all(lane.code is not None for lane in lanes if lane not in waiting)):
            waiting.pop(0).start()
            continue
        time.sleep(0.2)
        if time.monotonic() - shown >= PROGRESS_SECONDS:
            shown = time.monotonic()
            say(f"{(shown - started) / 60:3.0f} min  {', '.join(lane.progress() for lane in lanes)}")


def report(lanes: Sequence[Lane], seconds: float, cost: str) -> None:
    """Print what each lane said, then one summary of all."""
    summary: list[str] = []
    counts: Counter[str] = Counter()
    for lane in sorted(lanes, key=lambda lane: lane.code != 0):
        body, lines, found = lane.parts()
        say("", f" {lane.name} ".center(80, "#"), body)
        summary += lines
        counts += found
    say("", *(line for lane in lanes for line in lane.slowest()))
    say("", cost)
    if summary:
        say(" short test summary info ".center(80, "="), *_failures_last(summary))
    say(f" {_counted(counts)} in {seconds:.2f}s ({timedelta(seconds=int(seconds))}) ".center(80, "="))


def _failures_last(summary: Sequence[str]) -> list[str]:
    """The others keep their order; a reason of several lines, as pytest shows it in CI, stays with its test."""
    entries: list[list[str]] = []
    for line in summary:
        if not entries or _ENTRY.match(line):
            entries.append([])
        entries[-1].append(line)
    entries.sort(key=lambda entry: entry[0].startswith(("FAILED", "ERROR")))
    return [line for entry in entries for line in entry]


def run(lanes: Mapping[str, Sequence[str]], *, needed_bytes: int = BOTH_NEED_BYTES) -> int:
    """Run pytest on the paths of each lane.

    Returns:
        The first exit code that is not 0; 130 after Ctrl-C or another signal to stop.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, signal.default_int_handler)
    run_id, started, cores = uuid.uuid4().hex, time.monotonic(), psutil.cpu_times()
    at_once = psutil.virtual_memory().available >= needed_bytes
    with tempfile.TemporaryDirectory(prefix="tidegate-tests-") as folder:
        made = [Lane(name, paths, Path(folder), {**os.environ, RUN_ID: run_id}) for name, paths in lanes.items()]
        how = (
            "at once"
            if at_once
            else f"one after the other, for less than {needed_bytes / 1e9:.0f} GB of memory is free"
        )
        say(f"{len(made)} test processes {how}; output until the end: {folder}")
        memory, interrupted = Memory(run_id), False
        try:
            wait(made, at_once=at_once, started=started)
        except KeyboardInterrupt:
            interrupted = True
            for lane in made:
                lane.stop()
            for lane in made:
                lane.join()
        finally:
            memory.close()
            end_leftovers(run_id)
        seconds = time.monotonic() - started
        cost = f"{memory.peak_bytes / 1e9:.1f} GB of memory at most; the cores were busy {busy_share(cores):.0%} of the time"
        report(made, seconds, f"Interrupted; {cost}" if interrupted else cost)
        return 130 if interrupted else next((lane.code for lane in made if lane.code), 0)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(run({name: [f"tests/{folder}" for folder in folders] for name, folders in LANES.items()}))

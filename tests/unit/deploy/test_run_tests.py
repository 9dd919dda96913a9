"""`make test` runs the tests in two processes, and says at the end what one process would have said."""

import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import runs

TESTS = Path(__file__).parents[2]
CONFTEST = """
import signal, subprocess, sys
from pathlib import Path
import pytest

def pytest_configure(config):
    signal.signal(signal.SIGTERM, signal.default_int_handler)

@pytest.fixture(scope="session")
def service():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield process
    process.kill()
    Path(f"ended-{process.pid}").touch()

def pytest_unconfigure(config):
    print("a client writes behind the summary", file=sys.__stderr__)
"""
LONG = """
import time
from pathlib import Path

def test_long(service):
    Path(f"begun-{service.pid}").touch()
    time.sleep(600)
"""
MIXED = """
import pytest
@pytest.mark.parametrize("n", [1, 2])
def test_one(n):
    assert n == 1, "wanted"
@pytest.mark.skip(reason="not here")
def test_other(): pass
"""
KILLED = """
import os
from pathlib import Path
def test_killed(service):
    Path("service").write_text(str(service.pid))
    os.kill(os.getpid(), 9)
"""
CODE = """
import runpy, sys
run = runpy.run_path(sys.argv[1])['run']
run.__globals__.update(SLOW_SECONDS=1.2)
sys.exit(run({lanes!r}, needed_bytes={needed}))
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., "subprocess.Popen[str]"]:
    """`start(needed_bytes, a="text of a test module", …)` runs each in a process of its own."""

    def run(needed_bytes: int = 0, **modules: str) -> "subprocess.Popen[str]":
        (tmp_path / "conftest.py").write_text(CONFTEST, "utf-8")
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra\n", "utf-8")
        for name, text in modules.items():
            (tmp_path / f"test_{name}.py").write_text(text, "utf-8")
        code = CODE.format(lanes={name: [f"test_{name}.py"] for name in modules}, needed=needed_bytes)
        command = [sys.executable, "-c", code, str(TESTS / "run.py")]
        plain = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=plain)

    return run


def test_each_folder_of_tests_is_in_one_process() -> None:
    lanes = runpy.run_path(str(TESTS / "run.py"))["LANES"]
    folders = [folder for lane in lanes.values() for folder in lane]
    assert sorted(folders) == sorted({path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")})


@pytest.mark.parametrize("ci", ["", "true"])
def test_failing_tests_and_the_sum_come_last_and_give_the_exit_code(
    start: Any, tmp_path: Path, wait_until: Any, monkeypatch: pytest.MonkeyPatch, ci: str
) -> None:
    for name in ("CI", "BUILD_NUMBER"):  # with either of them pytest shows reasons whole
        monkeypatch.delenv(name, raising=False)
    if ci:
        monkeypatch.setenv("CI", ci)
    good = "import time\ndef test_good():\n    time.sleep(1.3)\ndef test_quick():\n    time.sleep(0.6)\n"
    process = start(mixed=MIXED, killed=KILLED, good=good)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 1
    assert said.index("# good #") < said.index("# mixed #"), "what failed comes last"
    times = re.split(r"^-+ (\w+): [\d.]+ min; its slowest tests and files -+$", said, flags=re.MULTILINE)
    assert times[1::2] == ["mixed", "killed", "good"]
    of_test, of_file = (line.split() for line in times[-1].split("\n\n")[0].split("\n")[1:])
    assert (of_test[1:], of_file[1:]) == (["s", "test_good.py::test_good"], ["s", "test_good.py"])
    assert 1.3 <= float(of_test[0]) < float(of_file[0]), "the sum of a file, also of its quick tests"
    assert "slowest durations" not in said, "pytest's own list of all of them"
    head = max(number for number, line in enumerate(said.splitlines()) if "= short test summary info =" in line)
    skipped, failed, *more, killed, last = said.splitlines()[head + 1 :]
    assert bool(more) == bool(ci), "a reason of several lines stays with its test"
    assert skipped.startswith("SKIPPED [1] test_mixed.py")
    assert failed.startswith("FAILED test_mixed.py::test_one[2] - AssertionError: wanted")
    assert killed == "ERROR killed: pytest ended with 137 and no summary"
    assert re.fullmatch(r"=+ 1 failed, 3 passed, 1 skipped, 1 error in [\d.]+s \(0:\d\d:\d\d\) =+", last)
    pid = int((tmp_path / "service").read_text())
    assert f"left behind and ended: {pid} " in said, "its test process could not end it"
    wait_until(lambda: not runs(pid), what="its end")


def test_a_signal_ends_all_processes_and_their_services(start: Any, tmp_path: Path, wait_until: Any) -> None:
    process = start(a=LONG, b=LONG)
    wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 2, what="both processes' tests")
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 130
    assert "\nInterrupted; " in said
    begun = {path.name.partition("-")[2] for path in tmp_path.glob("begun-*")}
    assert {path.name.partition("-")[2] for path in tmp_path.glob("ended-*")} == begun, said
    wait_until(lambda: not any(map(runs, map(int, begun))), what="the end of their services")


def test_with_too_little_memory_one_process_waits_for_the_other(start: Any, tmp_path: Path) -> None:
    order = "from pathlib import Path\ndef test_order():\n    assert Path('second').exists() == {}\n"
    first = "import time\n" + order.format("False") + "    time.sleep(1)\n    Path('second').touch()\n"
    process = start(2**62, first=first, then=order.format("True"))
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 0, said
    assert "one after the other" in said.splitlines()[0]

"""`make setup`: when the environment is made anew, what it is made from, and what a person sees meanwhile."""

import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.local import environment
from ingest.contract.errors import UnavailableError

REPOSITORY = Path(environment.__file__).parents[2]
PINS = """\
pip==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
pip-tools==2.0 \\
    --hash=sha256:cc
wheel==3.0 \\
    --hash=sha256:dd
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "constraints.txt").write_text(PINS, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces venv and pip; the list tells in which order they were called."""
    calls: list[str] = []

    def venv(command: Sequence[str], doing: str, progress: Any) -> tuple[int, list[str]]:
        assert doing.startswith("creating the environment")
        python = Path(command[-1]) / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.unlink(missing_ok=True)
        prefix = command[-1]
        answer = "\n".join([sys.version, sys.base_prefix, prefix])
        python.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n", encoding="utf-8")
        python.chmod(0o755)
        calls.append("venv")
        return 0, []

    def pip(python: Path, arguments: Sequence[str], progress: Any) -> None:
        calls.append(f"pip {Path(arguments[-1]).name}")

    monkeypatch.setattr(environment, "_run_shown", venv)
    monkeypatch.setattr(environment, "pip_install", pip)
    return calls


def make(root: Path) -> bool:
    return environment.make_environment(root, environment.ProgressLine(io.StringIO()))


def test_pins_are_cut_out_with_their_hashes() -> None:
    assert environment.pins(PINS, ["pip", "wheel"]) == (
        "pip==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\nwheel==3.0 \\\n    --hash=sha256:dd\n"
    )


def test_the_environment_is_made_once(root: Path, made: list[str]) -> None:
    assert make(root) is True
    assert made == ["venv", "pip tidegate-build-tools.txt", "pip constraints.txt", f"pip {root.name}"]
    assert make(root) is False
    assert len(made) == 4


def test_changed_pins_are_installed_into_the_same_environment(root: Path, made: list[str]) -> None:
    make(root)
    (root / "constraints.txt").write_text(PINS.replace("3.0", "3.1"), encoding="utf-8")
    assert make(root) is True
    assert made.count("venv") == 1
    assert made.count("pip constraints.txt") == 2


def test_other_readers_are_added_once_for_each_set_of_pins(root: Path, made: list[str]) -> None:
    make(root)
    made.clear()
    pins = root / "constraints-readers.txt"
    pins.write_text(PINS, encoding="utf-8")

    def provide() -> bool:
        return environment.provide_readers(root, environment.ProgressLine(io.StringIO()))

    assert [provide(), provide()] == [True, False]
    pins.write_text(PINS.replace("3.0", "3.1"), encoding="utf-8")
    assert provide() is True
    assert made == ["pip constraints-readers.txt"] * 2


def test_a_run_that_was_cut_off_is_started_anew(root: Path, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(python: Path, arguments: Sequence[str], progress: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(environment, "pip_install", cut)
        with pytest.raises(KeyboardInterrupt):
            make(root)
    assert make(root) is True
    assert made.count("venv") == 2
    assert make(root) is False


def test_after_a_failure_of_pip_the_next_run_goes_on(
    root: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(python: Path, arguments: Sequence[str], progress: Any) -> None:
        raise UnavailableError("no network")

    with monkeypatch.context() as patch:
        patch.setattr(environment, "pip_install", fail)
        with pytest.raises(UnavailableError):
            make(root)
    assert make(root) is True
    assert made.count("venv") == 1


def test_an_environment_whose_python_is_gone_is_made_anew(root: Path, made: list[str]) -> None:
    make(root)
    (root / ".venv" / "bin" / "python").unlink()
    assert make(root) is True
    assert made.count("venv") == 2


def test_a_moved_clone_gets_a_new_environment(root: Path, made: list[str], tmp_path: Path) -> None:
    make(root)
    moved = tmp_path.with_name(tmp_path.name + "-moved")
    root.rename(moved)
    assert make(moved) is True
    assert made.count("venv") == 2


def test_a_failure_of_pip_ends_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_run_shown", lambda *_: (1, ["ERROR: no matching distribution\n"]))
    with pytest.raises(UnavailableError, match=r"run `make setup` again\.\nERROR: no matching distribution"):
        environment.pip_install(Path("python"), [], environment.ProgressLine(io.StringIO()))


def test_a_command_is_shown_while_it_runs_and_its_output_kept(tmp_path: Path) -> None:
    shown = io.StringIO()
    command = [sys.executable, "-c", "print('Collecting alpha'); print('noise')"]
    assert environment._run_shown(command, "doing", environment.ProgressLine(shown)) == (
        0,
        ["Collecting alpha\n", "noise\n"],
    )
    assert "Collecting alpha" in shown.getvalue()


def test_progress_rewrites_its_line_on_a_terminal_and_appends_elsewhere() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        progress = environment.ProgressLine(stream)
        progress.show("one")
        progress.show("two", last=True)
    assert terminal.getvalue().count("\n") == 1
    assert re.findall(r"s  (\w+)\n", file.getvalue()) == ["one", "two"]


@pytest.mark.parametrize(
    "name", ["constraints.txt", "constraints-jdk.txt", "constraints-readers.txt", "deploy/local/jars.lock"]
)
def test_no_lock_file_names_a_host_and_every_pin_has_a_hash(name: str) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--(extra-)?index-url|--find-links|--trusted-host)\b", text, re.MULTILINE)
    if name.endswith(".txt"):
        pinned = re.findall(r"^[A-Za-z0-9_.-]+==.*$", text, re.MULTILINE)
        assert pinned
        assert all(line.endswith("\\") for line in pinned)


def test_every_dependency_of_the_project_is_pinned() -> None:
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["embedded"]]
    wanted += [name for group in project["dependency-groups"].values() for name in group]
    pinned = set()
    for name in ("constraints.txt", "constraints-jdk.txt", "constraints-readers.txt"):
        pinned |= set(
            re.findall(r"^([A-Za-z0-9_.-]+)==", (REPOSITORY / name).read_text(encoding="utf-8"), re.MULTILINE)
        )
    missing = {re.split(r"[\[<>=~! ]", line)[0].lower().replace("_", "-") for line in wanted} - pinned
    assert not missing

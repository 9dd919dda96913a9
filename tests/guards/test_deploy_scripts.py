"""The scripts at the root: what a person types first."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with a space in its name that holds the scripts and an environment that prints what it was asked."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("tidegate", "Makefile"):
        shutil.copy(REPOSITORY / name, folder)
    return folder


def give_environment(clone: Path) -> None:
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s|" "$PWD" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    (clone / ".venv" / "tidegate-stamp").touch()


def test_the_command_without_an_environment_says_what_to_do(clone: Path) -> None:
    result = subprocess.run([str(clone / "tidegate"), "status"], capture_output=True, text=True, check=False)
    assert result.returncode == 69
    assert result.stderr == f"tidegate: the environment is not there yet; run `make setup` in {clone} first.\n"


def test_the_command_runs_from_anywhere_through_links_and_keeps_the_folder(clone: Path, tmp_path: Path) -> None:
    give_environment(clone)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tide").symlink_to("../a clone/tidegate")
    (tmp_path / "tg").symlink_to(tmp_path / "bin" / "tide")
    shown = subprocess.check_output([str(tmp_path / "tg"), "sql", "select 1"], cwd=tmp_path / "bin", text=True)
    folder, *words = shown.split("|")[:-1]
    assert folder == str(tmp_path / "bin")
    assert words[-2:] == ["sql", "select 1"]
    assert "deploy.cli" in words


def test_help_lists_every_target_that_a_person_needs(clone: Path) -> None:
    shown = subprocess.check_output(["make", "-s", "help"], cwd=clone, text=True)
    listed = {line.split()[1] for line in shown.splitlines()}
    assert {"help", "setup", "up", "down", "test", "check", "bench"} <= listed


def test_setup_without_a_python_is_one_sentence(clone: Path) -> None:
    environment = {**os.environ, "MAKEFLAGS": ""}
    result = subprocess.run(
        ["make", "-s", "setup", "PYTHON="], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "Python 3.11 or newer is needed" in result.stderr

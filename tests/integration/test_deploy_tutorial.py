"""`KAFKA.md`, run as a reader runs it: every command, in order, in one shell, against a real cluster of three brokers."""

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.testbed.cluster import KafkaCluster
from deploy.testbed.cluster_layout import LAYOUT_FILE

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|text)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DONE = "== done "
BLOCK_SECONDS = 120.0


class Reader:
    """A shell that is given one block after the other."""

    def __init__(self, folder: Path) -> None:
        (folder / "tidegate").write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m deploy.cli "$@"\n')
        (folder / "tidegate").chmod(0o755)
        self._shell = subprocess.Popen(
            ["bash"], cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def run(self, commands: str) -> tuple[str, int]:
        """What they print, and the exit code of the last one."""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        self._shell.stdin.write(f"{commands}\necho '{DONE}'$?\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        timer = threading.Timer(BLOCK_SECONDS, self._shell.kill)  # a command that waits for ever
        timer.start()
        try:
            for line in self._shell.stdout:
                if line.startswith(DONE):
                    return "".join(lines), int(line.removeprefix(DONE))
                lines.append(line)
        finally:
            timer.cancel()
        pytest.fail(f"the shell ended in:\n{commands}\nafter:\n{''.join(lines)}")

    def close(self) -> None:
        self._shell.communicate("kill $(jobs -p) 2>/dev/null; wait", timeout=60)


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Commands, the word behind `sh`, and the output that the file shows, empty where it shows none."""
    found = BLOCK.findall(text)
    for number, (kind, word, content) in enumerate(found):
        shown = found[number + 1][2] if number + 1 < len(found) and found[number + 1][0] == "text" else ""
        if kind == "sh":
            yield content.rstrip("\n"), word.strip(), shown


def pattern(shown: str) -> str:
    """`…` is any text of its line, a line of it alone any lines, or none; columns are as wide as their longest value."""
    lines = []
    for line in shown.rstrip("\n").splitlines():
        words = re.sub(r"\s*…\s*", "…", line).split("…")
        text = re.sub(r"(?:\\ ){2,}", " +", r"[^\n]*".join(map(re.escape, words)))
        lines.append(r"(?:.*\n)*?" if line == "…" else f"{text}\n")
    return "".join(lines)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    found = Reader(tmp_path)
    yield found
    found.close()
    if (tmp_path / "tidegate-cluster" / LAYOUT_FILE).exists():
        KafkaCluster.attach(tmp_path / "tidegate-cluster").stop(0)


def test_the_tutorial_does_what_it_shows(reader: Reader, wait_until: Callable[..., Any], tmp_path: Path) -> None:
    for commands, word, shown in blocks((ROOT / "KAFKA.md").read_text("utf-8")):
        seen: list[tuple[str, int]] = []

        def as_shown(commands: str = commands, shown: str = shown, seen: Any = seen, word: str = word) -> bool:
            seen.append(reader.run(commands))
            text, code = seen[-1]
            return (code == 0) != (word == "fails") and (not shown or re.fullmatch(pattern(shown), text) is not None)

        if word == "again":
            wait_until(as_shown, seconds=90, what=f"as shown after {commands}")
        else:
            assert as_shown(), f"{commands}\nshown:\n{shown}\nseen (exit {seen[-1][1]}):\n{seen[-1][0]}"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["tidegate"], "the last commands clean up"


@pytest.mark.parametrize(
    ("shown", "text", "fits"),
    [
        ("a … c", "a b c\n", True), ("a … c", "a b d\n", False), ("a\n…\nb", "a\nb\n", True), ("a\n…", "a\nx\ny\n", True),
        ("a\n…\nb", "a\nx\nc\n", False), ("a", "a\nb\n", False), ("1.0", "120\n", False),
    ],
)  # fmt: skip
def test_what_the_file_shows_is_compared_line_by_line(shown: str, text: str, fits: bool) -> None:
    assert (re.fullmatch(pattern(shown), text) is not None) == fits

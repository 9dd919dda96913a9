"""A page whose commands a test runs as a reader runs them: every block, in order, in one shell."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|text)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DONE = "== done "


class Reader:
    """A shell that is given one block after the other; in its folder is `./tidegate`."""

    def __init__(self, folder: Path, *, block_seconds: float = 120.0) -> None:
        self._block_seconds = block_seconds
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
        timer = threading.Timer(self._block_seconds, self._shell.kill)  # a command that waits for ever
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


def run_page(text: str, reader: Reader, wait_until: Callable[..., Any], *, again_seconds: float = 90.0) -> list[float]:
    """Run all blocks of a page; returns the seconds of each. The word behind `sh` may be `fails`, or `again`: until it is so."""
    seconds = []
    for commands, word, shown in blocks(text):
        seen: list[tuple[str, int]] = []

        def as_shown(commands: str = commands, shown: str = shown, seen: Any = seen, word: str = word) -> bool:
            seen.append(reader.run(commands))
            text, code = seen[-1]
            return (code == 0) != (word == "fails") and (not shown or re.fullmatch(pattern(shown), text) is not None)

        began = time.monotonic()
        if word == "again":
            wait_until(as_shown, seconds=again_seconds, what=f"as shown after {commands}")
        else:
            assert as_shown(), f"{commands}\nshown:\n{shown}\nseen (exit {seen[-1][1]}):\n{seen[-1][0]}"
        seconds.append(time.monotonic() - began)
    return seconds

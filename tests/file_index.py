"""Writes FILES.md for `make index`: every module with the first sentence of its docstring, every promise with its tests.

A guard test compares the file with what this writes.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INDEX = "FILES.md"
PROMISES = {
    "P1": "Accepted means stored once",
    "P2": "PUBACK means in Kafka",
    "P3": "Order per device",
    "P4": "One bad message costs one message",
    "P5": "Each rejection says why",
    "P6": "No time is made up",
    "P7": "Late is not lost",
    "P8": "Operators see it",
    "P9": "It runs for months",
}
"""The promises of README.md by the names that the marker `promise` has."""
_PACKAGES = ("gateway", "ingest", "streaming", "lakehouse", "monitoring", "deploy")
_HEAD = """# Files

`make index` writes this page: the promises with the tests that carry their marker, then every module with the first
sentence of its docstring. ARCHITECTURE.md explains how they work together.
"""


def tracked(*patterns: str) -> list[str]:
    """Paths that git knows, sorted."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(name for name in found if (ROOT / name).is_file())


def first_sentence(text: str | None) -> str:
    """The first paragraph of a docstring on one line, without what a table of Markdown would take for its own."""
    paragraph = " ".join((text or "").strip().split("\n\n")[0].split())
    return paragraph.replace("|", "\\|")


def marked(tree: ast.Module) -> Iterator[str]:
    """Names of the promises that a test module is marked with, as a whole or in one test."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.promise":
            yield from (
                each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


def render() -> str:
    """The whole file."""
    lines = [_HEAD, "## Promises and their tests", "", "| promise | tests |", "|---|---|"]
    by_promise: dict[str, list[str]] = {name: [] for name in PROMISES}
    for name in tracked("tests/*.py"):
        for promise in sorted({*marked(ast.parse((ROOT / name).read_text("utf-8")))}):
            by_promise[promise].append(f"[{re.sub('^test_|[.]py$', '', Path(name).name)}]({name})")
    lines += [f"| {name} {PROMISES[name]} | {', '.join(tests)} |" for name, tests in by_promise.items()]
    for package in _PACKAGES:
        lines += ["", f"## {package}/", ""]
        folder = ""
        # A package's own modules first: behind a folder they would stand below its heading.
        for name in sorted(tracked(f"{package}/*.py"), key=lambda name: (Path(name).parent.parts, name)):
            path = Path(name)
            if path.parent.as_posix() != folder:
                folder = path.parent.as_posix()
                lines += ["", f"### {folder}/", ""] if folder != package else []
                lines += ["| module | what it does |", "|---|---|"]
            docstring = ast.get_docstring(ast.parse((ROOT / name).read_text("utf-8")))
            lines.append(f"| [{path.name}]({name}) | {first_sentence(docstring)} |")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


if __name__ == "__main__":
    (ROOT / INDEX).write_text(render(), "utf-8")
    sys.stdout.write(f"{INDEX} is written.\n")

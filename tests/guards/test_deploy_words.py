"""Words that CONTRIBUTING's rules for prose forbid, in the texts that people read: messages, pages, docstrings and comments."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = re.compile(
    r"\b(?:anew|mend|mends|mended|reckon\w*|seldom|lest|beside|heeded|naught|told)\b"
    r"|(?<!there )\b(?:is|are|was|were) no (?!longer|more\b|other)\w",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"`[^`]*`|^ +\w+: ", re.MULTILINE)
"""Code in a docstring or comment, and the name of an argument: these are names, not prose."""
TEXTS = (".md", ".js", ".html", ".toml", ".yml", ".sql")
APART = {"CONTRIBUTING.md", "FILES.md"}
"""The first lists the forbidden words; the second is generated and names modules."""


def _names() -> list[str]:
    command = ["git", "-C", str(ROOT), "ls-files"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [name for name in done.stdout.splitlines() if not name.startswith("tests/") and name not in APART]


def _sentences(source: str) -> Iterator[tuple[int, str]]:
    """String literals with a blank: what a program prints, logs or raises, and docstrings without identifiers."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and " " in node.value:
            yield node.lineno, _IDENTIFIER.sub("", node.value) if id(node) in docstrings else node.value


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], _IDENTIFIER.sub("", token.string)


def _read_texts() -> Iterator[tuple[str, int, str]]:
    for name in _names():
        path = ROOT / name
        if name.endswith(".py"):
            source = path.read_text("utf-8")
            yield from ((name, line, text) for line, text in (*_sentences(source), *_comments(source)))
        elif name.endswith(TEXTS):
            yield from ((name, number, text) for number, text in enumerate(path.read_text("utf-8").splitlines(), 1))


def test_no_text_for_people_has_a_forbidden_word() -> None:
    found = [
        f"{name}:{line}: {match[0]!r} in {text.strip()[:80]!r}"
        for name, line, text in _read_texts()
        if (match := FORBIDDEN.search(text)) and not (name.endswith(".js") and match[0] == "told")  # a variable
    ]
    assert not found, "see CONTRIBUTING.md, Prose:\n" + "\n".join(found)


@pytest.mark.parametrize("text", ["is made anew", "x is no topic", "What was told", "Seldom"])
def test_a_forbidden_word_is_found(text: str) -> None:
    assert FORBIDDEN.search(text)


@pytest.mark.parametrize("text", ["there is no table", "is no longer there", "recommended", "understands"])
def test_other_words_are_not(text: str) -> None:
    assert not FORBIDDEN.search(text)

"""Patterns of names: `*` is any text (including slashes and no text), `?` one character, anything else matches itself.

Devices choose the matched text, so a match must take time in proportion to the text.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["compile_glob", "compile_globs", "glob_pattern", "glob_sort_key", "is_glob"]


def is_glob(pattern: str) -> bool:
    """Return whether it can match more than itself."""
    return "*" in pattern or "?" in pattern


def glob_sort_key(pattern: str) -> tuple[bool, int, int, str]:
    """Return a sort key, the most specific first: no wildcard, then more literal characters, then fewer `*`."""
    stars, marks = pattern.count("*"), pattern.count("?")
    return is_glob(pattern), stars + marks - len(pattern), stars, pattern


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for `fullmatch`; case counts, as in MQTT topics."""
    return re.compile(glob_pattern(pattern), re.DOTALL)


def compile_globs(patterns: Iterable[str]) -> Callable[[str], Any] | None:
    """Compile one test for all patterns; None if there are none."""
    texts = list(patterns)
    if not texts:
        return None
    return re.compile("|".join(map(glob_pattern, texts)), re.DOTALL).fullmatch


def glob_pattern(text: str) -> str:
    """Return the regular expression of a glob; brackets are literal, because metric names contain them.

    It takes time in proportion to the text: the part between two stars matches at its first occurrence, and is never
    searched again (an atomic group).
    """
    head, *pieces = text.split("*")
    middle = "".join(f"(?>.*?{_literally(piece)})" for piece in pieces[:-1] if piece)
    return _literally(head) + (f"{middle}.*{_literally(pieces[-1])}" if pieces else "")


def _literally(text: str) -> str:
    return "".join("." if char == "?" else re.escape(char) for char in text)

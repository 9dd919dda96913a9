"""Patterns of names: `*` is any text (slashes too, also none), `?` one character, all else stands for itself.

Devices choose the text that is matched, so a match takes time in proportion to the text.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["compile_glob", "glob", "glob_pattern", "is_glob", "specificity"]


def is_glob(pattern: str) -> bool:
    """Whether it can match more than itself."""
    return "*" in pattern or "?" in pattern


def specificity(pattern: str) -> tuple[bool, int, int, str]:
    """Sorts the most specific first: no wildcard, then more characters that stand for themselves, then fewer `*`."""
    stars, marks = pattern.count("*"), pattern.count("?")
    return is_glob(pattern), stars + marks - len(pattern), stars, pattern


def compile_glob(pattern: str) -> re.Pattern[str]:
    """A pattern for `fullmatch`; upper and lower case differ, as they do in MQTT topics."""
    return re.compile(glob_pattern(pattern), re.DOTALL)


def glob(patterns: Iterable[str]) -> Callable[[str], Any] | None:
    """One compiled test for all patterns; None where there are none."""
    texts = list(patterns)
    if not texts:
        return None
    return re.compile("|".join(map(glob_pattern, texts)), re.DOTALL).fullmatch


def glob_pattern(text: str) -> str:
    """The regular expression of a glob; brackets stand for themselves, since metric names hold them.

    It takes time in proportion to the text: what stands between two stars is taken where it first occurs, and never
    looked for again (an atomic group).
    """
    head, *pieces = text.split("*")
    middle = "".join(f"(?>.*?{_literally(piece)})" for piece in pieces[:-1] if piece)
    return _literally(head) + (f"{middle}.*{_literally(pieces[-1])}" if pieces else "")


def _literally(text: str) -> str:
    return "".join("." if char == "?" else re.escape(char) for char in text)

"""Patterns of device ids and metric names: `*` is any text (slashes too, also none), `?` one character, all else itself."""

import re

__all__ = ["compile_glob", "is_glob", "specificity"]


def is_glob(pattern: str) -> bool:
    """Whether it can match more than itself."""
    return "*" in pattern or "?" in pattern


def compile_glob(pattern: str) -> re.Pattern[str]:
    """A pattern for `fullmatch`; upper and lower case differ, as they do in MQTT topics."""
    parts = {"*": ".*", "?": "."}
    # `**` is `*`: two of them side by side would only cost time.
    text = re.sub(r"\*+", "*", pattern)
    return re.compile("".join(parts.get(char) or re.escape(char) for char in text), re.DOTALL)


def specificity(pattern: str) -> tuple[bool, int, int, str]:
    """Sorts the most specific first: no wildcard, then more characters that stand for themselves, then fewer `*`."""
    stars, marks = pattern.count("*"), pattern.count("?")
    return is_glob(pattern), stars + marks - len(pattern), stars, pattern

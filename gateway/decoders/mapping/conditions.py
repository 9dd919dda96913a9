"""Conditions on the shape of a message, of a mapping or one of its cases."""

from collections.abc import Mapping
from typing import Literal

from gateway.decoders.mapping.paths import parse_path
from gateway.glob_patterns import compile_globs

__all__ = ["MatchConditions", "as_text"]


class MatchConditions:
    """Set of conditions: each path must hold its value."""

    __slots__ = ("_members", "_tests", "texts")

    def __init__(self, wanted: Mapping[str, bool | tuple[str, ...]]) -> None:
        """Compile.

        Raises:
            BadPath: a path cannot be read.
        """
        self.texts = [f"{path} = {_show(value)}" for path, value in wanted.items()]
        self._tests = [
            (parse_path(path), value if isinstance(value, bool) else compile_globs(value))
            for path, value in wanted.items()
        ]

        # The usual condition, that a member is present or absent, costs no call.
        plain = [
            len(path.steps) == 1 and type(path.steps[0]) is str and isinstance(test, bool) for path, test in self._tests
        ]
        self._members = [(path.steps[0], test) for (path, test), one in zip(self._tests, plain, strict=True) if one]
        self._tests = [pair for pair, one in zip(self._tests, plain, strict=True) if not one]

    def hold(self, root: object) -> bool:
        """Return whether all hold for this message."""
        if type(root) is dict:
            for name, wanted in self._members:
                if (root.get(name) is not None) is not wanted:
                    return False
        elif any(wanted for _name, wanted in self._members):
            return False
        for path, test in self._tests:
            value = path.look(root, root)
            if isinstance(test, bool):
                if (value is not None) is not test:
                    return False
            elif value is None or test is None or not test(as_text(value)):
                return False
        return True


def as_text(value: object) -> str:
    """Return a value as a glob sees it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "object" if isinstance(value, dict) else "array"
    return value if isinstance(value, str) else repr(value)[:400]


def _show(value: bool | tuple[str, ...]) -> Literal["present", "absent"] | str:
    if isinstance(value, bool):
        return "present" if value else "absent"
    return " or ".join(value)

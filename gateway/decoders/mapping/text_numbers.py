"""Numbers of a mapping: taken from text and scaled. Exact: the result is the double nearest to the decimal result."""

import re
from fractions import Fraction
from typing import Any, Final

from gateway.decoders.mapping.value_settings import NUMBER, NumberSettings
from gateway.safe_text import show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["NumberRule"]

_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_COMMA_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:,\d{0,40})?|,\d{1,40})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_GOES_ON = re.compile(r"[.,]?\d", re.ASCII)
_BEFORE: Final = frozenset("0123456789.,")
_MAX_TEXT: Final = 1000
"""Most characters of a text in which a number is looked for, so that each place may be tried."""


class NumberRule:
    """One entry of `numbers`, compiled."""

    __slots__ = ("_after", "_before", "_offset", "_open_end", "_open_start", "_pattern", "_scale", "_text")

    def __init__(self, settings: NumberSettings) -> None:
        self._text = settings.text
        self._pattern = _NUMBER if settings.decimal == "." else _COMMA_NUMBER
        whole = self._text or NUMBER
        self._open_start, self._open_end = whole.startswith("*"), whole.endswith("*")
        self._before, _, self._after = whole.removeprefix("*").removesuffix("*").partition(NUMBER)
        self._scale = None if settings.scale == 1 and settings.offset == 0 else settings.scale
        self._offset = settings.offset

    @property
    def reads_text(self) -> bool:
        """Return whether it says how texts are read; else they are read by the rule of plain values."""
        return self._text is not None or self._pattern is _COMMA_NUMBER

    def take(self, text: str) -> float | int | Reject:
        """Return the number inside a text."""
        found = self._find(text) if len(text) <= _MAX_TEXT else None
        if found is None:
            return Reject(Reason.BAD_NUMBER, got=show_value(text), wanted=f"text like {self._text or NUMBER}")
        return float(found) if set(found) & set(".eE") else int(found)

    def _find(self, text: str) -> str | None:
        text = text.strip()
        at = 0
        while True:
            at = text.find(self._before, at)
            if at < 0 or (at > 0 and not self._open_start):
                return None
            start = at + len(self._before)
            found = self._pattern.match(text, start)
            # Do not start in the middle of another number.
            whole = found is not None and _GOES_ON.match(text, found.end()) is None
            if self._open_start and not self._before and start > 0 and text[start - 1] in _BEFORE:
                whole = False
            if found is not None and whole and text.startswith(self._after, found.end()):
                end = found.end() + len(self._after)
                if self._open_end or end == len(text):
                    return found[0].replace(",", ".")
            at += 1
            if at > len(text):
                return None

    def scaled(self, value: Any) -> Any:
        """Return the value times the factor; a value that is not a number stays unchanged."""
        if self._scale is None or type(value) not in (int, float):
            return value
        # repr: the shortest decimals that give this double are the written ones.
        exact = Fraction(repr(value) if type(value) is float else value) * self._scale + self._offset
        try:
            return float(exact)
        except OverflowError:
            return Reject(
                Reason.BAD_NUMBER, got=show_value(value), wanted="a number that stays in the range of a double"
            )

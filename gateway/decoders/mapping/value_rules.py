"""Compiled rules of a mapping for values, whatever their names: numbers, qualities and quantities.

Numbers are taken from text and scaled; the result is the double nearest to the exact decimal result. A quality next to a value
keeps good values, rejects bad ones and flags the rest. A quantity is an inner object that is one reading.
"""

import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from gateway.decoders.mapping.conditions import as_text
from gateway.decoders.mapping.paths import ValuePath, parse_path
from gateway.decoders.mapping.value_settings import NOT_BY_QUALITY, NUMBER, NumberSettings, QualitySettings
from gateway.decoders.mapping.value_times import AUTO, TimeFormat
from gateway.decoders.values import NO_VALUE
from gateway.glob_patterns import compile_globs
from gateway.safe_text import show_text, show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["NumberRule", "QualityRule", "QuantityKeys", "ValueRules"]

UNCERTAIN: Final = "quality_uncertain"
_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_COMMA_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:,\d{0,40})?|,\d{1,40})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_GOES_ON = re.compile(r"[.,]?\d", re.ASCII)
_BEFORE: Final = frozenset("0123456789.,")
_MAX_TEXT: Final = 1000
"""Most characters of a text in which a number is looked for, so that each place may be tried."""
_MAX_WORD: Final = 32
_MAX_WORDS: Final = 1000


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


class QualityRule:
    """One `quality`, compiled."""

    def __init__(self, settings: QualitySettings) -> None:
        """Compile.

        Raises:
            BadPath: the path cannot be read.
        """
        self.path = parse_path(settings.path)
        self._good, self._bad = compile_globs(settings.good), compile_globs(settings.bad)

    def judge(self, item: object, root: object) -> str | Reject | None:
        """Return None for a good value; a flag; or why it is not a value, without its path."""
        value: Any = self.path.look(item, root)
        if value is None:
            return None
        text = as_text(value)
        if self._good is not None and self._good(text):
            return None
        if self._bad is None or not self._bad(text):
            return UNCERTAIN
        return Reject(Reason.BAD_NUMBER, None, show_text(f"{self.path.text} = {text}"), NOT_BY_QUALITY)


@dataclass(frozen=True, slots=True)
class QuantityKeys:
    """Keys of inner objects that are one reading. `exact`: these keys and no others, and the unit is text."""

    value: str
    unit: str | None = None
    time: ValuePath | None = None
    time_format: TimeFormat = AUTO
    exact: bool = False
    status: tuple[ValuePath, ...] = ()
    bad_from: int = 1
    uncertain_from: int = 1
    quality: QualityRule | None = None

    def judge(self, body: dict[str, Any], root: object) -> str | Reject | None:
        """Return a flag if the value is doubtful, or a rejection (without its path) if status or quality call it bad."""
        found = next((code for path in self.status if type(code := path.look(body, body)) is int), 0)
        if self.status and found >= self.bad_from:
            wanted = "a measurement; the status says that this value is not one"
            return Reject(Reason.BAD_NUMBER, None, f"status {found}", wanted)
        if self.status and found >= self.uncertain_from:
            return UNCERTAIN
        return None if self.quality is None else self.quality.judge(body, root)


@dataclass(frozen=True, slots=True)
class ValueRules:
    """Rules of a case for values, whatever their names."""

    quantity: QuantityKeys = QuantityKeys("value", "unit", exact=True)
    no_values: frozenset[str] = NO_VALUE
    unit_names: dict[str, str] | None = None
    times: ValuePath | None = None
    times_leaf: str = ""
    times_format: TimeFormat = AUTO
    units: ValuePath | None = None
    units_leaf: str | None = None
    words: set[str] = field(default_factory=set, compare=False)
    """Texts of only letters that are values, like states: they recur with every message. Bounded."""

    def remember(self, text: str) -> None:
        """Add a text that is a value to `words`, if it is of that kind."""
        if len(text) <= _MAX_WORD and text.replace("_", "a").isalpha():
            if len(self.words) >= _MAX_WORDS:
                self.words.clear()
            self.words.add(text)

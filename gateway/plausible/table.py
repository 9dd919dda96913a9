"""The table of numbers that no sensor measured, compiled: what is asked of each metric and unit."""

import struct
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.plausible.quantity import Quantity, QuantityWords, find_quantity
from gateway.profiles.units import conversion
from ingest.contract.errors import FatalError

__all__ = ["CALM_HIGH", "CALM_LOW", "Entry", "Table", "Watch", "Watches", "load_table"]

Action = Literal["refuse", "flag", "keep"]
_STRENGTH: Final = {"refuse": 2, "flag": 1, "keep": 0}
_INFINITE: Final = float("inf")
CALM_LOW: Final = 0.0
CALM_HIGH: Final = 32.0
"""Between these, without the ends, no entry finds anything, whatever the quantity."""


class Entry(BaseModel):
    """One `[[entries]]` of entries.toml, where the keys are explained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9-]{1,64}$")
    of: str | None = None
    unit: str | None = None
    codes: tuple[float, ...] = ()
    integers: tuple[int, ...] = ()
    scales: tuple[int, ...] = (1,)
    below: float | None = None
    above: float | None = None
    between: tuple[float, float] | None = None
    not_in: tuple[str, ...] = ()
    sure: Action
    by_name: Action
    by_letter: Action = "keep"
    means: str
    source: str

    @property
    def is_range(self) -> bool:
        """Whether it holds a range, not exact codes."""
        return not self.codes and not self.integers

    def action(self, quantity: Quantity) -> Action:
        """What happens to a reading of the quantity that meets this entry."""
        return {"unit": self.sure, "name": self.by_name, "letter": self.by_letter}[quantity.sign]

    def numbers(self) -> list[float]:
        """Each code as a double and as the double that a 32-bit float of it becomes."""
        exact = [float(Decimal(whole) / scale) for whole in self.integers for scale in self.scales]
        return [number for code in (*self.codes, *exact) for number in (code, _single(code))]


def _single(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return number


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    quantities: dict[str, QuantityWords]
    entries: tuple[Entry, ...]


class _Rule(NamedTuple):
    """An entry in the unit of a watch."""

    entry: Entry
    action: Action
    codes: frozenset[float]
    low: float
    high: float
    inside: bool

    def meets(self, value: float) -> bool:
        """Whether the number is one of the entry's."""
        return value in self.codes or (self.low <= value <= self.high) is self.inside


class Watch:
    """What is asked of the numbers of one metric in one unit: none of `codes`, and from `low` to `high`.

    `calm` are the ends of a range in which, without its ends, every number passes that is no code of
    any quantity.

    A number that fails is judged by `judge`, which may still find nothing.
    """

    __slots__ = ("_rules", "calm", "codes", "high", "low")

    def __init__(self, rules: Iterable[_Rule]) -> None:
        # A code says more than a range that it is outside of.
        self._rules = sorted(rules, key=lambda rule: (-_STRENGTH[rule.action], rule.entry.is_range))
        self.codes = frozenset(code for rule in self._rules for code in rule.codes)
        self.low, self.high = -_INFINITE, _INFINITE
        for rule in self._rules:
            if not rule.inside:
                self.low, self.high = max(self.low, rule.low), min(self.high, rule.high)
            elif rule.low <= rule.high:
                self.high = min(self.high, rule.low)
        ends = {self.low, self.high, *(code for rule in self._rules if rule.entry.of for code in rule.codes)}
        self.calm = (
            max([end for end in ends if end <= CALM_LOW], default=-_INFINITE),
            min([end for end in ends if end >= CALM_HIGH], default=_INFINITE),
        )

    def within(self, low: float, high: float) -> "Watch":
        """The same without the codes outside of a range: somebody else refuses these."""
        codes = [(rule, frozenset(code for code in rule.codes if low <= code <= high)) for rule in self._rules]
        return Watch([rule._replace(codes=kept) for rule, kept in codes])

    def passes(self, value: float) -> bool:
        """Whether the number is no code and in the range."""
        return self.low <= value <= self.high and value not in self.codes

    def judge(self, value: float) -> tuple[Entry, Action] | None:
        """The entry that this number meets, and what is to be done; refuse comes before flag."""
        return next(((rule.entry, rule.action) for rule in self._rules if rule.meets(value)), None)


class Watches(ABC):
    """What is asked of each number, as a device's profile changes it or not. Remembers metrics, bounded.

    Attributes:
        known: answers of `watch` that are remembered, by unit and metric.
    """

    def __init__(self) -> None:
        self.known: dict[str | None, dict[str, Watch]] = {}
        self._kept = 0

    def watch(self, metric: str, unit: str | None) -> Watch:
        """What is asked of the numbers of this metric and unit."""
        try:
            return self.known[unit][metric]
        except KeyError:
            pass
        found = self._find(metric, unit)
        if len(metric) <= _MOST_CHARACTERS and len(unit or "") <= _MOST_CHARACTERS:
            if self._kept >= _MOST_METRICS:
                self.known.clear()
                self._kept = 0
            self.known.setdefault(unit, {})[metric] = found
            self._kept += 1
        return found

    @abstractmethod
    def _find(self, metric: str, unit: str | None) -> Watch:
        """The same, worked out."""


class Table(Watches):
    """The entries without those that are switched off. Remembers metrics, bounded.

    Attributes:
        usual: what is asked of numbers whose quantity is not known; `watch` gives the same object for all of them.
    """

    def __init__(self, content: _File, accepted: frozenset[str] = frozenset(), *, ranges: bool = True) -> None:
        """`accepted` are names of entries that do not count; without `ranges` only codes do."""
        super().__init__()
        self._content = content
        self._entries = [
            entry for entry in content.entries if not accepted & {"*", entry.name} and (ranges or not entry.is_range)
        ]
        self.usual = Watch(_rules(self._entries, None))
        self._by_quantity: dict[Quantity, Watch] = {}

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, in the order of the file; those that are switched off too."""
        return self._content.entries

    @property
    def quantities(self) -> dict[str, QuantityWords]:
        """How each quantity is recognised."""
        return self._content.quantities

    @property
    def names(self) -> list[str]:
        """Names of the entries, in the order of the file."""
        return [entry.name for entry in self._content.entries]

    def without(self, accepted: Iterable[str], *, ranges: bool = True) -> "Table":
        """The same table with more entries switched off."""
        return Table(self._content, frozenset(accepted), ranges=ranges)

    def _find(self, metric: str, unit: str | None) -> Watch:
        quantity = find_quantity(metric, unit, self._content.quantities)
        if quantity is None:
            return self.usual
        found = self._by_quantity.get(quantity)
        if found is None:
            # Few: a unit that is not listed with its quantity is none of it.
            found = self._by_quantity[quantity] = Watch(_rules(self._entries, quantity))
        return found


_MOST_METRICS: Final = 10_000
_MOST_CHARACTERS: Final = 200
"""Of a metric or unit that is remembered."""


def _rules(entries: Iterable[Entry], quantity: Quantity | None) -> list[_Rule]:
    found = []
    for entry in entries:
        if entry.of is not None and (quantity is None or entry.of != quantity.name):
            continue
        if quantity is not None and quantity.unit in entry.not_in:
            continue
        action = entry.by_name if quantity is None or entry.of is None else entry.action(quantity)
        if action != "keep":
            found.append(_in_unit(entry, action, None if quantity is None else quantity.unit))
    return found


def _in_unit(entry: Entry, action: Action, unit: str | None) -> _Rule:
    convert = None if entry.of is None or unit is None or unit == entry.unit else conversion(entry.unit or "", unit)

    def settle(number: float) -> float:
        return number if convert is None else convert(number)

    codes = [settle(number) for number in entry.numbers()]
    # A device that converts a code rounds it, mostly to hundredths.
    codes += [] if convert is None else [round(code, 2) for code in codes]
    if entry.between is not None:
        low, high = map(settle, entry.between)
        return _Rule(entry, action, frozenset(codes), low, high, inside=True)
    if entry.below is None and entry.above is None:
        return _Rule(entry, action, frozenset(codes), _INFINITE, -_INFINITE, inside=True)
    low = -_INFINITE if entry.below is None else settle(entry.below)
    high = _INFINITE if entry.above is None else settle(entry.above)
    return _Rule(entry, action, frozenset(codes), low, high, inside=False)


@cache
def load_table() -> Table:
    """The shipped table.

    Raises:
        FatalError: the shipped file is broken: the installation is.
    """
    try:
        text = files("gateway.plausible").joinpath("entries.toml").read_text("utf-8")
        return Table(_File.model_validate(tomllib.loads(text)))
    except (ValueError, ValidationError) as error:
        message = f"the shipped table gateway/plausible/entries.toml is broken: {error}; install tidegate again"
        raise FatalError(message) from error

"""Compiled table of numbers that no sensor measured: the checks of each metric and unit."""

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

__all__ = [
    "CALM_HIGH",
    "CALM_LOW",
    "PlausibilityCheck",
    "PlausibilityChecks",
    "PlausibilityEntry",
    "PlausibilityTable",
    "load_table",
]

Action = Literal["refuse", "flag", "keep"]
_STRENGTH: Final = {"refuse": 2, "flag": 1, "keep": 0}
_INFINITE: Final = float("inf")
CALM_LOW: Final = 0.0
CALM_HIGH: Final = 32.0
"""Between these two, without the ends, no entry finds anything, whatever the quantity."""


class PlausibilityEntry(BaseModel):
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
        """Return whether it holds a range, not exact codes."""
        return not self.codes and not self.integers

    def action(self, quantity: Quantity) -> Action:
        """Return the reaction to a reading of the quantity that meets this entry."""
        return {"unit": self.sure, "name": self.by_name, "letter": self.by_letter}[quantity.sign]

    def numbers(self) -> list[float]:
        """Return each code as a double, and as the double of its 32-bit float."""
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
    entries: tuple[PlausibilityEntry, ...]


class _Rule(NamedTuple):
    """An entry in the unit of a watch."""

    entry: PlausibilityEntry
    action: Action
    codes: frozenset[float]
    low: float
    high: float
    inside: bool

    def meets(self, value: float) -> bool:
        """Return whether the number is one of the entry's."""
        return value in self.codes or (self.low <= value <= self.high) is self.inside


class PlausibilityCheck:
    """Checks of the numbers of one metric in one unit: none of `codes`, and from `low` to `high`.

    `calm` holds the ends of a range in which, without its ends, every number passes that is not a code of any quantity.

    `judge` decides about a number that fails, and may still find nothing.
    """

    __slots__ = ("_rules", "calm", "codes", "high", "low")

    def __init__(self, rules: Iterable[_Rule]) -> None:
        # A code says more than a range around it.
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

    def within(self, low: float, high: float) -> "PlausibilityCheck":
        """Return the same without the codes outside of a range, which another check rejects."""
        codes = [(rule, frozenset(code for code in rule.codes if low <= code <= high)) for rule in self._rules]
        return PlausibilityCheck([rule._replace(codes=kept) for rule, kept in codes])

    def passes(self, value: float) -> bool:
        """Return whether the number is not a code and is in the range."""
        return self.low <= value <= self.high and value not in self.codes

    def judge(self, value: float) -> tuple[PlausibilityEntry, Action] | None:
        """Return the entry that this number meets, and the reaction; rejecting comes before flagging."""
        return next(((rule.entry, rule.action) for rule in self._rules if rule.meets(value)), None)


class PlausibilityChecks(ABC):
    """Checks of each number, possibly changed by a device's profile. Remembers metrics, bounded.

    Attributes:
        known: remembered results of `watch`, by unit and metric.
    """

    def __init__(self) -> None:
        self.known: dict[str | None, dict[str, PlausibilityCheck]] = {}
        self._kept = 0

    def watch(self, metric: str, unit: str | None) -> PlausibilityCheck:
        """Return the checks of the numbers of this metric and unit."""
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
    def _find(self, metric: str, unit: str | None) -> PlausibilityCheck:
        """Find the same without the cache."""


class PlausibilityTable(PlausibilityChecks):
    """Entries without those that are switched off. Remembers metrics, bounded.

    Attributes:
        usual: checks of numbers of an unknown quantity; `watch` returns the same object for all of them.
    """

    def __init__(self, content: _File, accepted: frozenset[str] = frozenset(), *, ranges: bool = True) -> None:
        """Take the entries; `accepted` names entries that do not count; without `ranges` only codes count."""
        super().__init__()
        self._content = content
        self._entries = [
            entry for entry in content.entries if not accepted & {"*", entry.name} and (ranges or not entry.is_range)
        ]
        self.usual = PlausibilityCheck(_rules(self._entries, None))
        self._by_quantity: dict[Quantity, PlausibilityCheck] = {}

    @property
    def entries(self) -> tuple[PlausibilityEntry, ...]:
        """All entries, in the order of the file, including those that are switched off."""
        return self._content.entries

    @property
    def quantities(self) -> dict[str, QuantityWords]:
        """Signs by which each quantity is recognised."""
        return self._content.quantities

    @property
    def names(self) -> list[str]:
        """Names of the entries, in the order of the file."""
        return [entry.name for entry in self._content.entries]

    def without(self, accepted: Iterable[str], *, ranges: bool = True) -> "PlausibilityTable":
        """Return the same table with more entries switched off."""
        return PlausibilityTable(self._content, frozenset(accepted), ranges=ranges)

    def _find(self, metric: str, unit: str | None) -> PlausibilityCheck:
        quantity = find_quantity(metric, unit, self._content.quantities)
        if quantity is None:
            return self.usual
        found = self._by_quantity.get(quantity)
        if found is None:
            # Few: a unit that is not listed with its quantity does not count.
            found = self._by_quantity[quantity] = PlausibilityCheck(_rules(self._entries, quantity))
        return found


_MOST_METRICS: Final = 10_000
_MOST_CHARACTERS: Final = 200
"""Most characters of a remembered metric or unit."""


def _rules(entries: Iterable[PlausibilityEntry], quantity: Quantity | None) -> list[_Rule]:
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


def _in_unit(entry: PlausibilityEntry, action: Action, unit: str | None) -> _Rule:
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
def load_table() -> PlausibilityTable:
    """Load the shipped table.

    Raises:
        FatalError: the shipped file is broken, and so is the installation.
    """
    try:
        text = files("gateway.plausible").joinpath("entries.toml").read_text("utf-8")
        return PlausibilityTable(_File.model_validate(tomllib.loads(text)))
    except (ValueError, ValidationError) as error:
        message = f"the shipped table gateway/plausible/entries.toml is broken: {error}; reinstall tidegate"
        raise FatalError(message) from error

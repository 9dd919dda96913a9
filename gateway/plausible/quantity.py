"""Quantity of a reading: from its unit, or from the words of its metric's name."""

import re
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from gateway.profiles.units import canonical_spelling

__all__ = ["Quantity", "QuantityWords", "find_quantity"]

_WORD: Final = re.compile(r"[A-ZÀ-ÖØ-Þ]+(?![a-zß-öø-ÿ])|[A-ZÀ-ÖØ-Þ]?[a-zß-öø-ÿ]+")
Sign = Literal["unit", "name", "letter"]
_LAST: Final = re.compile(r"[./]")
_RELATIVE_HUMIDITY: Final = frozenset({"%RH", "% RH", "RH%", "%R.H."})
_TEMPERATURES: Final = {"C": "°C", "F": "°F"}
"""Units that mean a temperature only together with a word of the name."""
_NO_SCALE: Final = frozenset({"deg", "degrees", "°"})
"""Units that do not name a scale; for a position they do."""
_FAHRENHEIT: Final = frozenset({"f", "tempf", "dewptf", "fahrenheit"})
_KELVIN: Final = frozenset({"k", "kelvin"})
_MOST_CHARACTERS: Final = 200
"""Most characters of a name that are examined; its end says what it is."""


class QuantityWords(BaseModel):
    """Signs by which one quantity is recognised; see entries.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    units: tuple[str, ...] = ()
    named_units: tuple[str, ...] = ()
    words: frozenset[str]
    together: tuple[frozenset[str], ...] = ()
    letter: str | None = None
    places: frozenset[str] = frozenset()
    stems: tuple[str, ...] = ()
    without: frozenset[str] = Field(frozenset(), alias="not")


class Quantity(NamedTuple):
    """Quantity of a reading. `unit` is the one to compare in (None: unknown), `sign` what shows the quantity."""

    name: str
    unit: str | None
    sign: Sign


def find_quantity(metric: str, unit: str | None, known: dict[str, QuantityWords]) -> Quantity | None:
    """Return the quantity of readings of this metric and unit; None if neither shows one of `known`.

    The last part of the name counts first: `time.temperature` is a temperature, `temperature.time` is not.
    """
    name = metric[-_MOST_CHARACTERS:]
    parts = _LAST.split(name)
    for part in dict.fromkeys((parts[-1], ".".join(parts[-2:]), name)):
        words = frozenset(word.lower() for word in _WORD.findall(part))
        for quantity, signs in known.items():
            found = _recognise(quantity, signs, words, unit)
            if found is not None:
                return found
    return None


def _recognise(quantity: str, signs: QuantityWords, words: frozenset[str], unit: str | None) -> Quantity | None:
    if words & signs.without:
        return None
    if unit is not None:
        spelled = canonical_spelling(unit)
        relative = unit.strip().upper() in _RELATIVE_HUMIDITY
        if spelled in signs.units or (relative and "%RH" in signs.units):
            return Quantity(quantity, spelled, "unit")
        if spelled not in signs.named_units:
            return None
    named = (
        bool(words & signs.words)
        or any(both <= words for both in signs.together)
        or any(stem in word for stem in signs.stems for word in words)
    )
    if not named and (signs.letter is None or signs.letter not in words or not words <= signs.places | {signs.letter}):
        return None
    if unit is None or (quantity == "temperature" and spelled in _NO_SCALE):
        scale = _unit_of_name(words) if quantity == "temperature" else None
        return Quantity(quantity, scale, "name" if named else "letter")
    return Quantity(quantity, _TEMPERATURES.get(spelled, spelled), "unit")


def _unit_of_name(words: frozenset[str]) -> str | None:
    if words & _FAHRENHEIT:
        return "°F"
    return "K" if words & _KELVIN else None

"""Conversions between units, as three numbers that any engine can apply."""

from collections.abc import Iterable
from decimal import Context, Decimal
from typing import Final

from gateway.profiles.units import DIMENSIONS, Unit, canonical_spelling, same_dimension

__all__ = ["conversions_to"]

_ARITHMETIC: Final = Context(prec=40, traps=[])


def conversions_to(wanted: str, given: Iterable[str]) -> dict[str, tuple[float, float, float]]:
    """Return (f, d, s) for each given unit that can be converted: `value * f / d + s` is a number of the wanted unit.

    Units keep the spelling that they are given in. Without a shift the result is at most one rounding away from the exact
    one, and exact where f or d is 1.
    """
    target = _unit(wanted)
    if target is None:
        return {}
    fitting = {unit: _unit(unit) for unit in given if canonical_spelling(unit) in same_dimension(wanted)}
    return {unit: _numbers(source, target) for unit, source in fitting.items() if source is not None}


def _unit(text: str) -> Unit | None:
    spelled = canonical_spelling(text)
    return next((units[spelled] for units in DIMENSIONS.values() if spelled in units), None)


def _numbers(source: Unit, target: Unit) -> tuple[float, float, float]:
    factor = _ARITHMETIC.multiply(source.numerator, target.denominator)
    divisor = _ARITHMETIC.multiply(source.denominator, target.numerator)
    # A power of ten below one is not a double; its inverse is.
    if factor < 1 and (inverse := _ARITHMETIC.divide(Decimal(1), factor)) == inverse.to_integral_value():
        factor, divisor = Decimal(1), _ARITHMETIC.multiply(divisor, inverse)
    elif divisor < 1 and (inverse := _ARITHMETIC.divide(Decimal(1), divisor)) == inverse.to_integral_value():
        factor, divisor = _ARITHMETIC.multiply(factor, inverse), Decimal(1)
    scaled = _ARITHMETIC.divide(_ARITHMETIC.multiply(source.offset, factor), divisor)
    return float(factor), float(divisor), float(_ARITHMETIC.subtract(scaled, target.offset))

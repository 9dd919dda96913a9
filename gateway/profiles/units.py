"""Units between which a profile may convert, each exact by definition, and the spellings of each unit.

A spelling is listed only if it cannot mean anything else: `C` is coulomb and `F` is farad in SenML, so neither is a
temperature here; a profile may define it for its devices (`spellings`).

Source: SI Brochure (9th ed.); NIST SP 811 appendix B (exact factors); RFC 8428 section 12.1 and RFC 8798 (spellings).
"""

from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from functools import cache
from typing import Final, NamedTuple

__all__ = ["DIMENSIONS", "Unit", "canonical_spelling", "conversion", "conversions_to", "known_unit", "same_dimension"]

_ARITHMETIC: Final = Context(prec=40, traps=[])
"""Decimal digits of every step; a double has 17. No trap: a result beyond every double becomes infinite and is rejected."""


class Unit(NamedTuple):
    """`base = (value + offset) * numerator / denominator`, where base is the first unit of the dimension."""

    numerator: Decimal
    denominator: Decimal = Decimal(1)
    offset: Decimal = Decimal(0)


def _by(factor: str, divisor: str = "1") -> Unit:
    return Unit(Decimal(factor), Decimal(divisor))


def _scale(symbol: str, prefixes: str) -> dict[str, Unit]:
    """Return the symbol with each of these SI prefixes; `.` means without a prefix."""
    sizes = {"M": "1e6", "k": "1e3", "h": "1e2", ".": "1", "d": "1e-1", "c": "1e-2", "m": "1e-3", "µ": "1e-6"}
    return {prefix.strip(".") + symbol: _by(sizes[prefix]) for prefix in prefixes}


DIMENSIONS: Final[dict[str, dict[str, Unit]]] = {
    "temperature": {
        "K": _by("1"),
        "°C": Unit(Decimal(1), offset=Decimal("273.15")),
        "°F": Unit(Decimal(5), Decimal(9), Decimal("459.67")),
    },
    "voltage": _scale("V", ".kmµ"),
    "current": _scale("A", ".kmµ"),
    "power": _scale("W", ".Mkmµ"),
    "apparent power": _scale("VA", ".Mk"),
    "reactive power": _scale("var", ".Mk"),
    "energy": {
        **_scale("J", ".Mk"),
        "Wh": _by("3600"),
        "kWh": _by("3.6e6"),
        "MWh": _by("3.6e9"),
        "W·min": _by("60"),
    },
    "pressure": {
        **_scale("Pa", ".Mkh"),
        "bar": _by("1e5"),
        "mbar": _by("1e2"),
        "atm": _by("101325"),
        "mmHg": _by("133.322387415"),
        "inHg": _by("3386.388640341"),
        "psi": _by("4.4482216152605", "0.00064516"),
    },
    "length": {**_scale("m", ".kcmµ"), "in": _by("0.0254"), "ft": _by("0.3048"), "mi": _by("1609.344")},
    "speed": {
        "m/s": _by("1"),
        "km/h": _by("1", "3.6"),
        "mph": _by("0.44704"),
        "kn": _by("1852", "3600"),
        "ft/s": _by("0.3048"),
    },
    "mass": {"kg": _by("1"), "g": _by("1e-3"), "mg": _by("1e-6"), "t": _by("1e3"), "lb": _by("0.45359237")},
    "volume": {
        "m³": _by("1"),
        "L": _by("1e-3"),
        "mL": _by("1e-6"),
        "ft³": _by("0.028316846592"),
        "gal": _by("0.003785411784"),
    },
    "flow": {
        "m³/s": _by("1"),
        "m³/h": _by("1", "3600"),
        "L/s": _by("1e-3"),
        "L/min": _by("1", "60000"),
        "L/h": _by("1", "3.6e6"),
    },
    "frequency": _scale("Hz", ".Mk"),
    "time": {**_scale("s", ".mµ"), "min": _by("60"), "h": _by("3600"), "d": _by("86400")},
    "ratio": {"1": _by("1"), "%": _by("1e-2"), "‰": _by("1e-3"), "ppm": _by("1e-6"), "ppb": _by("1e-9")},
    "illuminance": _scale("lx", ".k"),
    "conductivity": {"S/m": _by("1"), "mS/cm": _by("1e-1"), "µS/cm": _by("1e-4"), "dS/m": _by("1e-1")},
    "mass concentration": {"g/m³": _by("1"), "mg/m³": _by("1e-3"), "µg/m³": _by("1e-6")},
}
"""Units per dimension. Gallons are US ones; mmHg and inHg the conventional ones; psi is lbf/in²."""

_SPELLINGS: Final = {
    "Cel": "°C", "degC": "°C", "deg C": "°C", "ºC": "°C", "℃": "°C", "celsius": "°C", "Celsius": "°C",
    "degF": "°F", "deg F": "°F", "ºF": "°F", "℉": "°F", "fahrenheit": "°F", "Fahrenheit": "°F", "kelvin": "K", "Kelvin": "K",
    "uV": "µV", "uA": "µA", "uW": "µW", "um": "µm", "us": "µs",
    "kwh": "kWh", "KWh": "kWh", "Wmin": "W·min", "W*min": "W·min", "Wmn": "W·min", "Ws": "J",
    "VAr": "var", "VAR": "var", "kVAr": "kvar", "kVAR": "kvar",
    "l": "L", "l/s": "L/s", "l/min": "L/min", "l/h": "L/h", "lpm": "L/min", "ml": "mL",
    "m3": "m³", "m^3": "m³", "m3/s": "m³/s", "m3/h": "m³/h", "m^3/h": "m³/h", "ft3": "ft³", "ft^3": "ft³",
    "kph": "km/h", "kmh": "km/h", "mi/h": "mph", "kt": "kn", "knots": "kn", "mps": "m/s",
    "%RH": "%", "percent": "%", "/": "1",
    "lux": "lx", "uS/cm": "µS/cm",
    "ug/m3": "µg/m³", "ug/m³": "µg/m³", "ug/m^3": "µg/m³", "µg/m3": "µg/m³", "µg/m^3": "µg/m³", "mg/m3": "mg/m³", "g/m3": "g/m³",
}  # fmt: skip
_DIMENSION_OF: Final = {unit: name for name, units in DIMENSIONS.items() for unit in units}
_LONGEST: Final = max(map(len, (*_SPELLINGS, *_DIMENSION_OF)))
_known: dict[str, str] = {}


def canonical_spelling(text: str) -> str:
    """Return our spelling of this unit; text that is not a listed unit stays, without blanks around it."""
    text = text.strip()
    # Longer text is not a listed unit, and invented units are not remembered.
    return text if len(text) > _LONGEST else _lookup(text)


def _lookup(text: str) -> str:
    found = _known.get(text)
    if found is None:
        plain = text.replace("\u03bc", "\u00b5")  # the Greek letter and the micro sign look alike
        found = _SPELLINGS.get(plain, plain)
        if found in _DIMENSION_OF:
            _known[text] = found
    return found


def known_unit(text: str) -> bool:
    """Return whether a profile may convert from or to it."""
    return canonical_spelling(text) in _DIMENSION_OF


def same_dimension(unit: str) -> list[str]:
    """Return the units that convert to this unit, including itself; empty if it is not a listed unit."""
    return list(DIMENSIONS.get(_DIMENSION_OF.get(canonical_spelling(unit), ""), {}))


def conversion(given: str, wanted: str) -> Callable[[float], float] | None:
    """Return a function from one unit to another; None if there is none (unknown, or of another dimension).

    The decimal number as written (`98.6`) is converted in 40 digits and rounded once to the nearest double, so 98.6 °F
    is 37 °C and 988.6 hPa is 98860 Pa. A result beyond every double becomes infinite: the caller rejects it.
    """
    given, wanted = canonical_spelling(given), canonical_spelling(wanted)
    if _DIMENSION_OF.get(given, "") != _DIMENSION_OF.get(wanted):
        return None
    return _conversion(given, wanted)


@cache
def _conversion(given: str, wanted: str) -> Callable[[float], float]:
    units = DIMENSIONS[_DIMENSION_OF[given]]
    source, target = units[given], units[wanted]
    factor = source.numerator * target.denominator
    divisor = source.denominator * target.numerator
    before, after = source.offset, target.offset
    add, multiply, divide, subtract = _ARITHMETIC.add, _ARITHMETIC.multiply, _ARITHMETIC.divide, _ARITHMETIC.subtract
    if given == wanted:
        return float
    if not before and not after:
        return lambda value: float(divide(multiply(Decimal(repr(value)), factor), divisor))
    return lambda value: float(subtract(divide(multiply(add(Decimal(repr(value)), before), factor), divisor), after))


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

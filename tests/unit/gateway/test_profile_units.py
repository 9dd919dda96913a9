"""Units: what converts into what, exactly, and which spellings mean the same."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.profiles.units import DIMENSIONS, canonical_spelling, conversion, known_unit, same_dimension

PAIRS = [(a, b) for units in DIMENSIONS.values() for a in units for b in units]


@pytest.mark.parametrize(
    ("value", "given_unit", "wanted_unit", "expected"),
    [
        (98.6, "°F", "°C", 37.0),
        (-40.0, "degF", "Cel", -40.0),
        (0.0, "K", "°C", -273.15),
        (21.5, "°C", "K", 294.65),
        (32.0, "°F", "K", 273.15),
        (3005.0, "mV", "V", 3.005),
        (60_000.0, "W·min", "kWh", 1.0),
        (1.0, "Wh", "J", 3600.0),
        (988.6, "hPa", "Pa", 98860.0),
        (1.01325, "bar", "hPa", 1013.25),
        (1.0, "atm", "mbar", 1013.25),
        (0.07, "m", "cm", 7.0),
        (29.92, "inHg", "hPa", 1013.2074811900272),
        (1.0, "psi", "kPa", 6.894757293168361),
        (36.0, "km/h", "m/s", 10.0),
        (1.0, "kn", "km/h", 1.852),
        (0.42, "1", "%", 42.0),
        (1500.0, "ppm", "%", 0.15),
        (2.5, "L/min", "m³/h", 0.15),
        (1.0, "gal", "L", 3.785411784),
        (1.5, "h", "min", 90.0),
        (12.0, "µS/cm", "dS/m", 0.012),
        (0.05, "mg/m³", "µg/m³", 50.0),
    ],
)
def test_documented_conversions_are_exact(value: float, given_unit: str, wanted_unit: str, expected: float) -> None:
    convert = conversion(given_unit, wanted_unit)
    assert convert is not None
    assert convert(value) == expected


@pytest.mark.parametrize(
    ("given_unit", "wanted_unit"),
    [
        ("°C", "hPa"),
        ("C", "°C"),
        ("F", "°C"),
        ("m", "min"),
        ("W", "Wh"),
        ("", "V"),
        ("nope", "nope"),
        ("v", "V"),
        ("MV", ""),
    ],
)
def test_what_is_no_conversion_is_none(given_unit: str, wanted_unit: str) -> None:
    assert conversion(given_unit, wanted_unit) is None


@pytest.mark.parametrize(
    ("spelled", "unit"),
    [
        ("Cel", "°C"),
        (" degC ", "°C"),
        ("℃", "°C"),
        ("ug/m3", "µg/m³"),
        ("μg/m³", "µg/m³"),
        ("%RH", "%"),
        ("m3/h", "m³/h"),
    ],
)
def test_spellings_mean_one_unit(spelled: str, unit: str) -> None:
    assert canonical_spelling(spelled) == unit
    assert known_unit(spelled)


def test_megavolt_is_no_millivolt_and_text_stays() -> None:
    assert not known_unit("MV")
    assert canonical_spelling("widgets per fortnight") == "widgets per fortnight"
    assert same_dimension("degF") == ["K", "°C", "°F"]
    assert same_dimension("lqi") == []


def test_what_passes_every_double_is_infinite() -> None:
    convert = conversion("kWh", "J")
    assert convert is not None
    assert math.isinf(convert(1.7e308))


@given(st.sampled_from(PAIRS), st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
def test_there_and_back_is_the_same_within_a_rounding(pair: tuple[str, str], value: float) -> None:
    there, back = conversion(*pair), conversion(*reversed(pair))  # type: ignore[arg-type]
    assert there is not None
    assert back is not None
    middle = there(value)
    # A value that is tiny beside the offset of its scale (273.15 K) keeps the offset's digits, not its own; and one
    # that the other unit makes smaller than every double comes back as nothing.
    spread = 1e-12 if pair[0] in DIMENSIONS["temperature"] else 1e-300
    assert math.isinf(middle) or back(middle) == pytest.approx(value, rel=1e-15 * 4, abs=spread)


@given(st.sampled_from(PAIRS), st.floats(min_value=-1e12, max_value=1e12), st.floats(min_value=-1e12, max_value=1e12))
def test_what_is_larger_stays_so(pair: tuple[str, str], one: float, other: float) -> None:
    convert = conversion(*pair)
    assert convert is not None
    low, high = sorted((one, other))
    assert convert(low) <= convert(high)

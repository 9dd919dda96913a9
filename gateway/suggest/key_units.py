"""Units from the suffix of a key: `temp_f`, `outTemp_C`, `powerW`. A unit never comes from the quantity alone."""

import re
from typing import Final

__all__ = ["UNIT_NAMES", "split_unit", "unit_of_key"]

UNIT_NAMES: Final = {
    "C": "°C", "F": "°F", "c": "°C", "f": "°F", "degC": "°C", "Celsius": "°C", "celsius": "°C", "Cel": "°C", "degF": "°F",
    "l/min": "L/min", "lpm": "L/min", "pct": "%", "percent": "%", "Grad": "°",
}  # fmt: skip
"""Names of units in payloads to their names in readings."""

_SUFFIXES: Final = {
    "c": "°C", "degc": "°C", "celsius": "°C", "f": "°F", "degf": "°F", "fahrenheit": "°F", "kelvin": "K",
    "pct": "%", "percent": "%", "percentage": "%", "hpa": "hPa", "kpa": "kPa", "mbar": "mbar", "pa": "Pa", "bar": "bar",
    "psi": "psi", "inhg": "inHg", "v": "V", "mv": "mV", "kv": "kV", "volt": "V", "volts": "V", "a": "A", "ma": "mA",
    "amps": "A", "w": "W", "kw": "kW", "watt": "W", "watts": "W", "wh": "Wh", "kwh": "kWh",
    "va": "VA", "kva": "kVA", "hz": "Hz", "khz": "kHz", "mhz": "MHz", "lx": "lx", "lux": "lx",
    "ms": "ms", "lmin": "L/min", "ppm": "ppm", "ppb": "ppb", "ugm3": "µg/m³", "mgm3": "mg/m³", "db": "dB", "dbm": "dBm",
    "dba": "dB", "mm": "mm", "cm": "cm", "km": "km", "mmh": "mm/h", "kmh": "km/h", "kph": "km/h", "mph": "mph",
    "mps": "m/s", "ms2": "m/s²", "knots": "kn", "kn": "kn", "kg": "kg", "l": "L", "liter": "L", "liters": "L", "litre": "L",
    "litres": "L", "m3": "m³", "m3h": "m³/h", "lpm": "L/min", "rpm": "rpm", "deg": "°", "degrees": "°", "wm2": "W/m²",
    "uscm": "µS/cm", "ohm": "Ω",
    "sec": "s", "secs": "s", "seconds": "s", "minutes": "min", "hours": "h", "gpm": "gal/min", "inch": "in",
}  # fmt: skip
"""Suffixes after a separator: `temp_c`, `wind_km_h`. Those of one letter only after a quantity."""

_COMPOUND: Final = frozenset({"ugm3", "mgm3", "mmh", "kmh", "ms", "ms2", "m3h", "lmin", "wm2", "uscm"})
_CAMEL: Final = {
    "C": "°C", "F": "°F", "V": "V", "mV": "mV", "MV": "mV", "A": "A", "mA": "mA", "W": "W", "kW": "kW", "KW": "kW", "Wh": "Wh",
    "kWh": "kWh", "KWh": "kWh", "Hz": "Hz", "Pct": "%", "Percent": "%", "Hpa": "hPa", "HPa": "hPa", "Lux": "lx", "Ppm": "ppm",
    "Kmh": "km/h", "Kph": "km/h", "Mph": "mph", "Mm": "mm", "Cm": "cm", "Seconds": "s", "Celsius": "°C", "Fahrenheit": "°F",
    "Deg": "°", "Dbm": "dBm", "Bar": "bar", "Mbar": "mbar", "Ms": "ms",
}  # fmt: skip
_SINGLE: Final = {
    "c": "temp dew heat chill point probe ambient inside outside indoor outdoor water boiler oil coolant",
    "f": "temp dew heat chill point probe ambient inside outside indoor outdoor water boiler oil coolant",
    "v": "volt bat vcc vdd supply",
    "a": "curr amp",
    "w": "power load pv grid watt solar ac dc",
    "l": "vol water flow fuel total tank level consumption",
}
"""A suffix of one letter counts only after one of these words, because it may also be a phase or a channel."""
_JOINED: Final = (
    (re.compile(r"(?:(?:in|out)door)?(?:temp|dewpt|dewpoint|windchill|heatindex|feelslike)(?:in|out|\d{0,2})f"), "°F"),
    (re.compile(r"barom(?:abs|rel)?in"), "inHg"),
    (re.compile(r"barom(?:abs|rel)?hpa"), "hPa"),
    (re.compile(r"(?:max)?(?:daily)?(?:wind)(?:speed|gust)mph"), "mph"),
)
"""Names of weather stations (Ecowitt, Ambient, Wunderground) that join quantity, place and unit."""
_BRACKETS = re.compile(r"([^\[\]()]*[^\[\]()\s])\s*[\[(]([^\[\]()\s]{1,12})[\])]")
_KNOWN: Final = (
    frozenset(_SUFFIXES.values())
    | UNIT_NAMES.keys()
    | {"hPa", "mb", "m", "g", "s", "h", "min", "J", "N", "W/m2", "m3/h", "mm/h", "kvar", "var", "Nm", "bar", "t"}
)
_SIGNS = re.compile(r"[_\-. /]+")


def split_unit(key: str) -> tuple[str, str] | None:
    """Return name and unit of a key that ends with its unit in brackets: `Temperatur [°C]`; None for all others."""
    found = _BRACKETS.fullmatch(key)
    if found is None or not (found[2] in _KNOWN or set(found[2]) & set("%°/")):
        return None
    return found[1], UNIT_NAMES.get(found[2], found[2])


def unit_of_key(key: str) -> str | None:
    """Return the unit in the suffix of a key, None if there is none."""
    in_brackets = split_unit(key)
    whole = in_brackets[1] if in_brackets is not None else None
    whole = whole or (_SUFFIXES[key.lower()] if key.lower() in ("celsius", "fahrenheit", "kelvin") else None)
    whole = whole or next((unit for sign, unit in _JOINED if sign.fullmatch(key)), None)
    if whole is not None:
        return whole
    parts = _SIGNS.split(key)
    if len(parts) > 1:
        # `wind_km_h` before `h`: the second half of another unit is not a unit.
        for length in (2, 1):
            tail, head = "".join(parts[-length:]).lower(), "_".join(parts[:-length])
            if head and tail in _SUFFIXES and (length == 1 or tail in _COMPOUND):
                if length == 2 and tail == "ms":
                    return "m/s"
                return _SUFFIXES[tail] if _counts(tail, head) else None
        return None
    for length in (10, 9, 8, 7, 6, 5, 4, 3, 2, 1):
        tail = key[-length:]
        if len(key) > length and key[-length - 1].islower() and tail in _CAMEL and _counts(tail.lower(), key[:-length]):
            return _CAMEL[tail]
    return None


def _counts(tail: str, head: str) -> bool:
    beginnings = _SINGLE.get(tail)
    return beginnings is None or any(word in head.lower() for word in beginnings.split())

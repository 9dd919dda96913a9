"""Numbers as people and devices write them in text: read, rejected, or real text.

The rule: a point is the decimal sign. Blanks of any kind around the number, digits of any script and a `;` or `,` at the
end do not matter. Commas, apostrophes or blanks may separate groups of three digits if a decimal point follows
(`1,016.76`); apostrophes or no-break blanks also without one (`1'000`). Text that looks like a number but is not one by
this rule (`21,5`, `1,016`, `0x1F`, `<5`) is rejected: it has two meanings or none. Anything else is text.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from gateway.decoders.values import NOT_FINITE
from gateway.profiles.units import known_unit
from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["NUMERIC_TEXT", "Number", "guess_number", "is_blank", "read_number"]

NUMERIC_TEXT: Final = "numeric_text"
"""Flag of a number that was text in JSON."""

Number = tuple[float | int, str | None]
"""The value, and the unit that the text itself names."""

_NUMBER: Final = re.compile(r"([+-]?)(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d{1,9})?(\s*)(.*)", re.ASCII | re.DOTALL)
_USUAL: Final = re.compile(r"-?(?:0|[1-9]\d{0,13})(?:\.\d{1,17})?", re.ASCII)
"""Numbers that every reader reads the same."""
_GROUPED: Final = re.compile(
    r"([+-]?[1-9]\d{0,2}(?:(?P<with_point>,\d{3}(?:,\d{3})*| \d{3}(?: \d{3})*)(?=\.\d)|(?:'\d{3})+))(.*)",
    re.ASCII | re.DOTALL,
)
_UNIT: Final = re.compile(r"(?:[^\W\d_]|[°%‰€$£¥])(?:[^\W\d_]|[°%‰·/*^⁻¹.-]|(?<=[a-z^])[23])*|% ?[^\W\d_.]{1,6}")
_GLUED_UNITS: Final = frozenset(
    """
    °C °F °K ° C F K % ‰ V mV kV A mA µA W mW kW MW Wh kWh MWh Ω kΩ Hz kHz MHz dB dBm lx lm
    Pa hPa kPa bar mbar ppm ppb g kg mg µg L l m cm mm µm km m² m³ s ms min h
    m/s km/h m³/h l/min l/h µg/m³ mg/m³ g/m³ µV
    m2 m3 m3/h ug/m3 mg/m3 W/m2 W/m² VA kVA var kvar VAC VDC Vac Vdc mAh Ah lux rpm mph psi uS/cm µS/cm mS/cm
    """.split()  # noqa: SIM905 - a table of units reads better than quotes and commas
)
_DIGIT: Final = re.compile(r"\d")
_NO_NUMBERS: Final = ("na", "in")
"""Beginnings of texts for NaN and infinity."""
_PLAIN: Final = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
_TAIL: Final = r"\s*(?:[°%‰€$£]?[^\W\d_]{0,8}(?:/[^\W\d_]{1,3}[²³]?)?)"
_COMMA: Final = r"\d*,\d+(?:[eE][+-]?\d+)?|[1-9]\d{0,2}(?:[.,' ]\d{3})+,\d+|[1-9]\d{0,2}(?:,\d{3}){2,}"
_LIKE_A_NUMBER: Final = re.compile(
    rf"[+-]?(?:{_COMMA}){_TAIL}"
    rf"|[<>≤≥~≈±=]{{1,2}}\s*[+-]?\d+(?:[.,]\d+)?{_TAIL}"
    rf"|[+-]{{2,}}\s*{_PLAIN}{_TAIL}|{_PLAIN}\s*-|{_PLAIN}[.!?]+|[+-]?\d*\.\.+\d+"
    rf"|[+-]?{_PLAIN}\s*[x\u00d7*]\s*10\^?[+-]?\d+{_TAIL}"
    rf"|\({_PLAIN}\)|[+-]?{_PLAIN}\s*(?:±|\+/-)\s*{_PLAIN}{_TAIL}|[+-]?\d*[\u00bc-\u00be\u2150-\u215e]{_TAIL}"
    r"|-?1\.#(?:QNAN|SNAN|IND|INF)\d*"
)
_LIKE_A_PLAIN_NUMBER: Final = re.compile(
    rf"[+-]?0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|[+-]?[1-9]\d{{0,2}}(?: \d{{3}})+{_TAIL}|[+-]?[$€£¥]\s*{_PLAIN}"
)
"""Alone on a topic this is a number in an unusual spelling; inside JSON rather an address, a phone number or a price."""
_IGNORED: Final = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u200e\u200f\u061c\u2060\ufeff"))
_SAME: Final = {
    "\u2212": "-", "\uff0d": "-", "\ufe63": "-", "\uff0b": "+", "\uff0e": ".", "\u066b": ".", "\uff0c": ",", "\u060c": ",",
    "\u066c": "'", "\u2019": "'", "\uff05": "%", "\u066a": "%", "\u2103": "°C", "\u2109": "°F", "\u00ba": "°", "\u02da": "°",
    "\uff1b": ";",
}  # fmt: skip
_QUOTES: Final = ("'", '"')
_SPACED_SIGN: Final = re.compile(r"^([+-])\s+(?=[\d.])")
_NO_BREAK: Final = frozenset("\u00a0\u202f\u2009\u2007")
_LEADING_ZERO: Final = re.compile(r"[+-]?0\d(?!\d+\.\d|\.\d{3})")
"""Digits of a name; but a meter's display of 001234.567 is a number."""
_OBIS: Final = re.compile(r"\(?([+-]?\d{1,15}(?:\.\d{1,9})?)\*([A-Za-z][A-Za-z0-9]{0,5})\)?", re.ASCII)
"""A value in the notation of meters (IEC 62056-21): `001234.567*kWh`."""
_TEXT_DIGITS: Final = 15
"""Integers with this many digits are names: an IMEI has 15. A measurement has fewer."""
_PHONE_DIGITS: Final = 7
_MOST_CHARACTERS: Final = 64
_ONE_LETTER: Final = re.compile(r"([+-]?(?:0|[1-9]\d{0,8}))([VAWCFKmsgLl])", re.ASCII)
_LETTERS: Final = {
    "V": ("volt", "spannung"), "A": ("current", "amp", "strom"), "W": ("power", "watt", "leistung"),
    "C": ("temp",), "F": ("temp",), "K": ("temp",), "m": ("dist", "height", "depth", "altitude", "level"),
    "s": ("uptime", "duration", "interval", "delay"), "g": ("weight", "mass"), "L": ("volume",), "l": ("volume",),
}  # fmt: skip
"""Units of one letter, and parts of names for such a quantity: `voltage` of `230V`."""
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_TEXT_WORDS: Final = frozenset(
    """
    id uid uuid guid eui mac imei imsi iccid msisdn serial serialnumber sn phone tel mobile ssid bssid ip ipv4 address addr host
    hostname version ver firmware fw sw hw release build revision rev model sku pin code barcode ean zip postcode plate name label
    title key token hash md5 sha date datetime timestamp number
    """.split()  # noqa: SIM905 - as above
)
"""Words in names of fields whose values are names too."""


def is_blank(text: str) -> bool:
    """Return whether a text only says that there is no value: `--`, `???`."""
    signs = text.strip(" \t\r\n")
    return bool(signs) and not signs.strip("?-\u2013\u2014\u2212")


def read_number(text: str) -> Number | Reject | None:
    """Return the number of a text that stands alone; why it is not one; None if it is real text."""
    found = _parse_usual(text)
    if found is None:
        if ":" in text or (_DIGIT.search(text) is None and not text[:4].lower().lstrip("+-").startswith(_NO_NUMBERS)):
            return None
        tidy = _tidy(text)
        found = _parse(tidy)
    if found is None:
        return _refuse(text) if _LIKE_A_PLAIN_NUMBER.fullmatch(tidy) or _looks_like_one(tidy) else None
    return found if isinstance(found, Reject) else (found[0], found[1])


def guess_number(text: str, name: str) -> Number | Reject | None:
    """Return the same for a text in JSON, where numbers need no quotes: more of them stay text.

    Leading zeros, integers of 15 digits and more, phone numbers, and the values of fields such as `serial` or `version` are
    names. A unit counts only if it is known, and is not a letter that makes an integer a name (`24h`, `4K`), unless the
    field's name says the quantity.
    """
    if text.isalpha() or len(text) > _MOST_CHARACTERS or not any(map(str.isdecimal, text)) or _holds_names(name):
        return None
    if _USUAL.fullmatch(text):
        return float(text) if "." in text else int(text), None
    found = _guess(text)
    return _one_letter(text, name) if found is None else found


def _one_letter(text: str, name: str) -> Number | None:
    """Return an integer with a unit of one letter, in a field whose name says that quantity."""
    found = _ONE_LETTER.fullmatch(text.strip())
    if found is None or not any(part in name.lower() for part in _LETTERS[found[2]]):
        return None
    return int(found[1]), found[2]


@lru_cache(maxsize=2048)
def _holds_names(name: str) -> bool:
    """Return whether a field such as `serial` or `version` holds names, not numbers."""
    last = re.split(r"[./\[]", name)[-1]
    return not _TEXT_WORDS.isdisjoint(word.lower() for word in _WORD.findall(last))


@lru_cache(maxsize=2048)
def _guess(text: str) -> Number | Reject | None:
    """Guess like `guess_number`, for a text in any field. The same few texts recur with every message."""
    tidy = _tidy(text)
    if _LEADING_ZERO.match(tidy):
        return None
    found = _parse(tidy)
    if found is None:
        return _refuse(text) if _looks_like_one(tidy) else None
    if isinstance(found, Reject):
        return found
    value, unit, digits = found
    is_name = digits >= _TEXT_DIGITS or (tidy.startswith("+") and digits >= _PHONE_DIGITS)
    return None if is_name or (unit is not None and not _is_sure(unit, tidy)) else (value, unit)


def _is_sure(unit: str, tidy: str) -> bool:
    """Return whether the unit is known, and not a single letter right after an integer: `24h` and `4K` are names."""
    number = tidy.removesuffix(unit)
    may_be_name = number[-1:].isdecimal() and "." not in number and len(unit) == 1 and unit not in "°%‰"
    return (known_unit(unit) or unit in _GLUED_UNITS) and not may_be_name


def _tidy(text: str) -> str:
    if not text.isascii():
        text = text.translate(_IGNORED).strip()
        text = (
            "".join(_plain_sign(text, place) for place in range(len(text))) if len(text) <= _MOST_CHARACTERS else text
        )
    text = text.replace("&deg;", "°").strip().rstrip(";, ")
    if text[:1] in _QUOTES and text[-1:] == text[:1]:
        text = text[1:-1].strip()
    if "*" in text and (found := _OBIS.fullmatch(text)) is not None:
        text = f"{found[1]} {found[2].replace('m3', 'm³')}"
    return _SPACED_SIGN.sub(r"\1", text)


def _plain_sign(text: str, place: int) -> str:
    sign = text[place]
    if sign in _NO_BREAK:
        between = text[place - 1 : place].isdecimal() and text[place + 1 : place + 2].isdecimal()
        return "'" if between else " "
    digit = unicodedata.decimal(sign, None)
    return _SAME.get(sign, sign) if digit is None else str(digit)


def _parse(tidy: str) -> tuple[float | int, str | None, int] | Reject | None:
    """Return the value, its unit, and the digits of an integer (0 for another number)."""
    grouped = _GROUPED.fullmatch(tidy)
    return _parse_usual(tidy if grouped is None else re.sub("[,' ]", "", grouped[1]) + grouped[3])


def _parse_usual(tidy: str) -> tuple[float | int, str | None, int] | Reject | None:
    """Return the same without groups of three."""
    found = _NUMBER.fullmatch(tidy)
    if found is None or not _is_unit(found[5], spaced=bool(found[4])):
        return None
    value = _value(found)
    digits = len(found[2]) if found[2].isdigit() and not found[3] else 0
    return value if isinstance(value, Reject) else (value, found[5] or None, digits)


def _is_unit(text: str, *, spaced: bool) -> bool:
    """Return whether a text is a unit: after a space any short word, right after digits only a known one (`511AA` is an id)."""
    if not text:
        return True
    if text in _GLUED_UNITS or (len(text) > 2 and not text[0].isspace() and known_unit(text)):
        return True
    return spaced and len(text) <= 12 and _UNIT.fullmatch(text) is not None


def _value(found: re.Match[str]) -> float | int | Reject:
    refused = Reject(Reason.BAD_NUMBER, got=show_text(found[0]), wanted="a number in the range of a double")
    sign, digits, exponent = found[1], found[2], found[3] or ""
    if digits.isdigit() and not exponent:
        significant = digits.lstrip("0") or "0"
        return refused if len(significant) > 308 else int(sign + significant)
    number = float(sign + digits + exponent)
    return refused if abs(number) == float("inf") else number


def _looks_like_one(tidy: str) -> bool:
    if len(tidy) > _MOST_CHARACTERS:
        return False
    word, _, unit = tidy.partition(" ")
    if word.lstrip("+-").lower() in NOT_FINITE:
        return not unit or known_unit(unit)
    return _LIKE_A_NUMBER.fullmatch(tidy) is not None


def _refuse(text: str) -> Reject:
    wanted = "digits with a decimal point, such as 12.5: a comma may separate thousands, decimals or list items"
    if "," not in text:
        wanted = "digits with a decimal point, such as 12.5"
    return Reject(Reason.BAD_NUMBER, got=show_text(text), wanted=wanted)

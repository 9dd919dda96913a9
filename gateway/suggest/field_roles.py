"""Role of each field of a message: a value, or why it is not one."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.decoders.plain_value import read_scalar
from gateway.decoders.values import NO_VALUE
from gateway.suggest.fields import SampleField, key_words
from gateway.suggest.time_fields import FoundTime, may_be_time
from gateway.suggest.topic import is_sure_id
from gateway.suggest.vocabulary import (
    CONSTANT,
    DEVICE,
    ENCODED,
    IDENTITY,
    NAME,
    QUALITY,
    RADIO,
    SIDE,
    SINGLE,
    UNIT,
    normalize_key,
)

__all__ = [
    "QUALITY_SAYS",
    "FieldRoles",
    "LeftOutField",
    "comma_number_suffix",
    "find_roles",
    "is_empty",
    "is_numeric_text",
]

_NUMBER_OF_A_THING = re.compile(r"0\d{2,}")
"""Whole numbers with leading zeros, like serial numbers."""
_ENDS_AS_ID = re.compile(
    r"(?:^|[._@ -])(?:id|ids|sn|serial|addr|address|uuid|guid|token|secret|sequence_?id)$|^id[_-]"
    r"|[a-z](?:Id|ID|Ids|Sn|SN|Serial|Addr|Address|Uuid|Token|Secret)$",
)
"""Ends of names of ids; `humid` and `rapid` do not match, because a separator or a capital must begin them."""
_COMMA_NUMBER = re.compile(r"[+-]?(\d{1,9}),(\d{1,6})(\s?(?:[^\s\d.,;{}*]{1,8})?)")
_DESCRIBES = frozenset(
    {"ssid", "bssid", "model", "version", "firmware", "manufacturer", "vendor", "hostname", "callsign"}
)
_STATE = re.compile(r"[\w°%+.,:-]+(?: [\w°%+.,:-]+){0,3}")
_MOST_STATE = 24
"""Most characters of a text that may be a state; longer ones describe."""
_BYTES = re.compile(
    r"(?:0x)?(?:[0-9a-f]{2}){2,}|(?=.{8,}$)(?:[A-Za-z0-9+/]{4})+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII
)
_RADIO_HZ = 100
"""In Hz, kHz, MHz or GHz as decoders of radio write them, a channel has a larger number."""
_LONG_NUMBER = 11
"""Digits from which on a text is an id, not a measured number."""
QUALITY_SAYS = "says how good the value is"
_LETTER = "is a code of one letter"
_MANY = 5
"""Documents from which on a text that never changes is a constant."""


class LeftOutField(NamedTuple):
    """Field that is not a reading, and why."""

    name: str
    why: str


class FieldRoles(NamedTuple):
    """Fields by their role. `left_out` names those that are neither value, unit nor used by the draft."""

    values: list[SampleField]
    numeric: list[SampleField]
    units: list[SampleField]
    left_out: list[tuple[SampleField, str]]


def find_roles(fields: Iterable[SampleField], times: Iterable[FoundTime]) -> FieldRoles:
    """Judge each field that names neither device, time nor identity; `times` are other times."""
    roles = FieldRoles([], [], [], [])
    known = list(fields)
    other_times = {
        one.steps: "is the time of another event" if time.of_event else "is another time of the message"
        for time in times
        for one in time.fields
    }
    has_one_value = any(one.key in SINGLE for one in known)
    with_value = {one.steps[:-1] for one in known if one.key in SINGLE}
    short = any(len(one.key) == 1 and not isinstance(one.first, str) for one in known) or all(
        len(one.key) == 1 for one in known
    )
    for one in known:
        if isinstance(one.first, str) and (one.key in UNIT or (one.key == "u" and one.steps[:-1] in with_value)):
            roles.units.append(one)
            continue
        why = other_times.get(one.steps) or _why_none(one)
        if (why == QUALITY_SAYS and not has_one_value and not _is_opc_quality(one)) or (why == _LETTER and short):
            # A status among many values is a value; so is a letter among letters.
            why = None
        if why is not None:
            roles.left_out.append((one, why))
            continue
        roles.values.append(one)
        texts = [value for value in one.values.values() if isinstance(value, str)]
        if texts and all(map(is_numeric_text, texts)):
            roles.numeric.append(one)
    roles.numeric.extend(_padded(roles))
    return roles


def _padded(roles: FieldRoles) -> list[SampleField]:
    """Return numbers with leading zeros, if a number next to them has the same width without zeros: `"0044"` next to `"2950"`."""
    widths = {(one.steps[:-1], len(str(one.first))) for one in roles.numeric if str(one.first).isdigit()}
    return [
        one
        for one in roles.values
        if isinstance(one.first, str)
        and (one.steps[:-1], len(one.first)) in widths
        and one not in roles.numeric
        and all(isinstance(text, str) and text.isdigit() for text in one.values.values())
    ]


def is_numeric_text(value: Any) -> bool:
    """Return whether this is a number in quotes."""
    if not isinstance(value, str) or _NUMBER_OF_A_THING.fullmatch(value.strip()):
        return False
    read, _unit = read_scalar(value.strip())
    return isinstance(read, int | float) and not isinstance(read, bool)


def comma_number_suffix(values: Iterable[Any]) -> str | None:
    """Return the text after the number in texts such as `21,5 °C`, "" if there is none; None for other texts.

    A short one alone, such as `1,2`, may be a list, and `12,340` may have a comma between thousands.
    """
    found = [_COMMA_NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None for value in values]
    texts = {match[3] for match in found if match is not None}
    if None in found or len(texts) != 1:
        return None
    [behind] = texts
    if all(match is not None and len(match[2]) == 3 and match[1] != "0" for match in found):
        return None
    sure = behind.strip() or any(match is not None and len(match[1] + match[2]) > 2 for match in found)
    return str(behind) if sure else None


def is_empty(value: Any) -> bool:
    """Return whether this is a text that says there is no value."""
    return isinstance(value, str) and (not value.strip() or value.strip().lower() in NO_VALUE)


def _why_none(one: SampleField) -> str | None:
    """Return why a field is not a reading, None if it is one."""
    unknown = "has the name of a time but an unknown format" if may_be_time(one) else None
    why = _by_place(one) or unknown or _by_key(one)
    comma = why is None and comma_number_suffix(one.values.values()) is not None
    if (
        why is None
        and isinstance(one.first, str)
        and not comma
        and (not is_numeric_text(one.first) or _is_encoded(one))
    ):
        why = _by_text(one)
    return why


def _by_place(one: SampleField) -> str | None:
    parents = {normalize_key(step) for step in one.steps[:-1] if isinstance(step, str)}
    if parents & {"rxinfo", "rxmetadata", "txinfo", "gateways"}:
        return "describes the radio link"
    return "describes the message or its transport" if parents & SIDE else None


def _by_key(one: SampleField) -> str | None:
    described = (
        "describes the sender or the message" if one.key in CONSTANT or _is_kind(one) or _is_named_so(one) else None
    )
    if described is None and one.key not in SINGLE and not isinstance(one.first, bool | float):
        described = "is an id, not a measurement" if _ENDS_AS_ID.search(_last_key(one)) else None
    if isinstance(one.first, str) and len(one.first) >= _LONG_NUMBER and one.first.isdigit():
        return "is a number that identifies something"
    # A frequency may be that of a grid or a motor.
    slow = one.key == "freq" and isinstance(one.first, int | float) and one.first < _RADIO_HZ
    if (one.key in RADIO and not slow) or one.key in QUALITY:
        return "describes the radio link" if one.key in RADIO else QUALITY_SAYS
    if isinstance(one.first, bool):
        return described
    if one.key in IDENTITY and not isinstance(one.first, float):
        return "numbers the message"
    if any(word in DEVICE for word in one.words) and (isinstance(one.first, str) or "id" in one.key):
        return "names the sender"
    return described


def _is_opc_quality(one: SampleField) -> bool:
    """Return whether this is OPC's quality of the whole item, not one value among many."""
    shown = {str(value).lower() for value in one.values.values()}
    return one.key in ("q", "quality") and bool(shown & {"192", "good", "bad"}) and shown <= {"192", "good", "0", "bad"}


def _is_kind(one: SampleField) -> bool:
    """Return whether a text says what kind of thing it belongs to."""
    return (
        isinstance(one.first, str)
        and one.key not in NAME
        and _last_key(one).endswith(("Type", "_type", "Name", "_name"))
    )


def _is_named_so(one: SampleField) -> bool:
    """Return whether the last word of its key says that it describes the sender: `wifi_ssid`, `meter_model`."""
    return next(iter(key_words(one)[-1:]), "") in _DESCRIBES and not isinstance(one.first, bool | float)


def _last_key(one: SampleField) -> str:
    return next((step for step in reversed(one.steps) if isinstance(step, str)), "")


def _is_encoded(one: SampleField) -> bool:
    return one.key in ENCODED and _BYTES.fullmatch(one.first) is not None


def _by_text(one: SampleField) -> str | None:
    texts = set(one.values.values())
    first = one.first.strip()
    if _is_encoded(one):
        return "holds bytes that need their own decoder"
    if is_empty(first):
        return None
    if len(one.key) == 1 and len(one.steps) == 1:
        return _LETTER
    if is_sure_id(first) or len(first) > _MOST_STATE or not _STATE.fullmatch(first):
        return "is descriptive text, not a state"
    if len(one.values) >= _MANY and len(texts) == 1:
        return "is a text that never changes"
    return None

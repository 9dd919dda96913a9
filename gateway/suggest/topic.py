"""Meaning of topic levels: fixed words, the sender, the name of the value."""

import re
from collections.abc import Sequence
from typing import Final

from gateway.suggest.vocabulary import COLLECTIONS, KINDS, QUANTITIES, normalize_key

__all__ = [
    "find_varying_levels",
    "is_address",
    "is_collection",
    "is_id",
    "is_kind",
    "is_number",
    "is_quantity",
    "is_sure_id",
    "looks_like_id",
]

_SURE = re.compile(
    r"[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,7}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|!?(?:0x)?(?=[0-9a-f]*\d)[0-9a-f]{6,32}"
    r"|\d{5,}|(?=(?:[^\d]*\d){4})[\w.:-]{6,}",
    re.IGNORECASE,
)
"""A MAC, EUI, UUID, a long hexadecimal or decimal number, or a word with at least four digits."""
_ADDRESS = re.compile(
    r"[0-9a-f]{2}(?P<sign>[:-])(?:[0-9a-f]{2}(?P=sign)){4}(?:(?:[0-9a-f]{2}(?P=sign)){2})?[0-9a-f]{2}", re.IGNORECASE
)
"""A MAC or EUI with separators."""
_PART = re.compile(r"(?:tool|endpoint|ep|channel|ch|phase|port|slot|zone|register|line|l|p)[_-]?\d{1,3}", re.IGNORECASE)
_MOST_DIGITS: Final = 3


def is_sure_id(level: str) -> bool:
    """Return whether this alone can name one device among all."""
    return _SURE.fullmatch(level) is not None and not is_kind(level)


def is_address(text: str) -> bool:
    """Return whether this is a MAC or an EUI: the sender's in any field."""
    return _ADDRESS.fullmatch(text) is not None


def is_quantity(level: str) -> bool:
    """Return whether it says what is measured, such as temperature: devices rarely have such names."""
    return normalize_key(level) in QUANTITIES


def looks_like_id(level: str) -> bool:
    """Return whether it is a word with a number, such as nodeID_4; parts of a device, such as endpoint_0 and ch1, are not."""
    return (
        _PART.fullmatch(level) is None
        and not is_kind(level)
        and not is_number(level)
        and any(sign.isdigit() for sign in level)
    )


def is_number(level: str) -> bool:
    """Return whether it is a short number: one of a few of a kind."""
    return level.isdigit() and len(level) <= _MOST_DIGITS


def is_id(text: str) -> bool:
    """Return whether this may name one of many: not a plain word."""
    return is_sure_id(text) or looks_like_id(text)


def is_kind(level: str) -> bool:
    """Return whether it only says what kind of message comes there, or nothing at all."""
    return level == "" or normalize_key(level) in KINDS


def is_collection(level: str) -> bool:
    """Return whether the name of one of many follows."""
    return normalize_key(level) in COLLECTIONS


def find_varying_levels(topics: Sequence[str]) -> set[int]:
    """Return the places at which topics of one length differ."""
    split = [topic.split("/") for topic in topics]
    return {place for place in range(len(split[0])) if len({levels[place] for levels in split}) > 1}

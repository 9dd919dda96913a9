"""Readings for people: the place in the message, and the value with its unit."""

import re
from typing import Final

from gateway.decoders.shape import Decoded, RouteMatch
from gateway.safe_text import json_path, show_text, show_value
from ingest.contract.reading import Reading

__all__ = ["item_path", "member_path", "native_batch", "reading_path", "show_quantity", "show_reading"]

_DOTTED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*)*")


def reading_path(match: RouteMatch, reading: Reading, *, is_batch: bool = False) -> str:
    """Return the place of a reading in its message, as far as its name shows it.

    Native messages: exactly (an item with counters by these, else by its position). Others: the metric's name as a
    path, because metrics are named after their place in the document.
    """
    return member_path(item_path(match, reading, is_batch), reading.metric)


def native_batch(decoded: Decoded, match: RouteMatch) -> bool:
    """Return whether the readings come from an array of native items; an array of one item without counters looks like none."""
    return match.decoder == "native" and any(one.index or one.message_id is not None for one in decoded.readings)


def item_path(match: RouteMatch, reading: Reading, is_batch: bool) -> str:
    """Return the place of a reading's item."""
    if match.decoder != "native":
        return "$"
    if not is_batch:
        return "$.values"
    if reading.message_id is not None:
        return f"$[?@.boot=={reading.boot} && @.seq=={reading.seq}].values"
    return f"$[{reading.index}].values"


def member_path(root: str, metric: str) -> str:
    """Return the place of a metric below an item."""
    if root == "$" and _DOTTED.fullmatch(metric):
        return f"$.{metric}"
    return json_path(root, metric)


def show_reading(reading: Reading) -> str:
    """Return a reading's value and unit for people."""
    if reading.value is None or reading.text is not None:
        shown = show_value(reading.text) if reading.value is None else show_text(reading.text or "")
        return shown if reading.unit is None else f"{shown} {show_text(reading.unit)}"
    return show_quantity(reading.value, reading.unit)


def show_quantity(value: float | None, unit: str | None) -> str:
    """Return a number and its unit for people."""
    number = f"{value:.0f}" if value is not None and value.is_integer() and abs(value) < 1e15 else repr(value)
    return number if unit is None else f"{number} {show_text(unit)}"

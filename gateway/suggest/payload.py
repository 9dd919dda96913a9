"""Payload to document: JSON, lines of JSON, `key=value` text, rows; None for one bare value."""

import re
from typing import Any, Final, NamedTuple

from gateway.decoders.mapping.text_documents import TextReader
from gateway.decoders.mapping.text_settings import FormatSettings
from gateway.decoders.plain_value import read_scalar
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import Document
from gateway.suggest.time_fields import time_format
from gateway.suggest.topic import is_address, is_sure_id

__all__ = ["ParsedPayload", "read_payload"]

_KEY: Final = re.compile(r"[A-Za-z_][\w.\-/ #%()°]{0,60}")
_MOST_CELLS: Final = 200
_LINES: Final = 2
_MOST_LEADING: Final = 6
_MOST_TEXT: Final = 20_000
"""Most characters of a text that is searched for pairs in every way."""
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+")
_SOLID_TIME = re.compile(r"20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])T?(?:[01]\d|2[0-3])[0-5]\d[0-5]\dZ?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d\d)")
_CLOCK = re.compile(r"\d{1,2}:\d\d:\d\d")


class ParsedPayload(NamedTuple):
    """Document and the `format` of a mapping that makes it; {} is JSON."""

    document: Any
    format: dict[str, Any]


def read_payload(payload: bytes, limits: GatewaySettings) -> ParsedPayload | None:
    """Return the document of a payload, None if it is bytes or one bare value."""
    if payload[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        whole, lines = _parse(payload, {}, limits), {"kind": "ndjson"}
        if isinstance(whole, dict | list):
            return ParsedPayload(whole, {})
        documents = _parse(payload, lines, limits)
        return ParsedPayload(documents, lines) if isinstance(documents, list) else None
    if payload.lstrip()[:1] == b'"' and isinstance(whole := _parse(payload, {}, limits), dict | list):
        # Encoded as JSON twice.
        return ParsedPayload(whole, {})
    try:
        text = payload.decode("utf-8").strip()
    except UnicodeDecodeError:
        return None
    form = _pairs(text) or _rows(text)
    document = None if form is None else _parse(payload, form, limits)
    return (
        ParsedPayload(document, form) if form is not None and isinstance(document, dict | list) and document else None
    )


def _parse(payload: bytes, form: dict[str, Any], limits: GatewaySettings) -> Any:
    parsed = TextReader(FormatSettings.model_validate({"kind": "json"} | form)).parse(payload, limits)
    return parsed.value if isinstance(parsed, Document) else None


def _is_number(cell: str, *, comma: bool = False) -> bool:
    value, _unit = read_scalar(cell.strip())
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or (comma and _COMMA_NUMBER.fullmatch(cell.strip()) is not None)


def _pairs(text: str) -> dict[str, Any] | None:
    """Recognise `t=21.5,h=40`, `t:21.5;h:40`, `t: 21.5 h: 40`, `#dev-1#t:21.5#`, and `t|21.5|h|40` (alternating)."""
    for equals in ("=", ":"):
        for separator in (",", ";", "&", "|", "#", " ", "\n"):
            leading = None if len(text) > _MOST_TEXT else _keyed(text, equals, separator)
            if leading is not None:
                usual = separator if separator != "\n" else " "
                found = {"kind": "pairs", "separator": usual} | ({} if equals == "=" else {"equals": equals})
                return found | ({"columns": leading} if leading else {})
    if _is_key_by_line(text):
        return {"kind": "pairs", "separator": "\n", "equals": "\t"}
    for separator in ("|", ";", ","):
        cells = [cell.strip() for cell in text.partition("#")[0].split(separator)][: _MOST_CELLS + 1]
        keys, values = cells[::2], cells[1::2]
        if (
            len(cells) % 2
            or len(cells) > _MOST_CELLS
            or not all(map(_KEY.fullmatch, keys))
            or len(set(keys)) < len(keys)
        ):
            continue
        if any(map(_is_number, values)) and not any(map(_is_number, keys)):
            lines = {"lines": "#"} if "#" in text else {}
            return {"kind": "pairs", "separator": separator, "equals": separator} | lines
    return None


def _is_key_by_line(text: str) -> bool:
    """Return whether these are lines of a key, a tab and a value; two columns under a header are not."""
    cells = [line.strip().split("\t") for line in text.splitlines()[: _MOST_CELLS + 1] if line.strip()]
    if not _LINES <= len(cells) <= _MOST_CELLS or any(
        len(row) != _LINES or not _KEY.fullmatch(row[0]) for row in cells
    ):
        return False
    numbers = [_is_number(value) for _key, value in cells]
    return any(numbers) and (numbers[0] or not all(numbers[1:]))


def _keyed(text: str, equals: str, separator: str) -> list[str] | None:
    """Return names for the cells before the first pair, None if these are not pairs."""
    if separator == " ":
        text = re.sub(f" ?{equals} ?(?=[^ {equals}]+(?: |$))", equals, " ".join(text.split()))
    parts = [part.strip() for part in text.split(separator) if part.strip()][: _MOST_CELLS + 1]
    keyed = [_KEY.fullmatch(part.partition(equals)[0].strip()) is not None and equals in part for part in parts]
    leading = keyed.index(True) if True in keyed else len(parts)
    # Words before a sentence's colon are not cells.
    most = 0 if separator in (" ", "&", "\n") else _MOST_LEADING
    if (
        not all(keyed[leading:])
        or leading > most
        or len(parts) > _MOST_CELLS
        or len(parts) - leading < (2 if leading else 1)
    ):
        return None
    names = _names(parts[:leading])
    sender = next(
        (place for place, part in enumerate(parts[:leading]) if names[place][:6] == "column" and is_sure_id(part)), None
    )
    if sender is not None and not {"mac", "imei"} & set(names):
        names[sender] = "serial"
    return names if any(_is_number(part.partition(equals)[2]) for part in parts[leading:]) else None


def _rows(text: str) -> dict[str, Any] | None:
    """Recognise cells in a row; without a header their names are invented."""
    lines = [line for line in text.splitlines() if line.strip()]
    for separator in ("\t", ";", "|", ","):
        rows = [[cell.strip() for cell in line.split(separator)] for line in lines[:_MOST_CELLS]]
        width = len(rows[0]) if rows else 0
        if not 1 < width <= _MOST_CELLS or any(len(row) != width for row in rows):
            continue
        comma = separator != "," and any(_COMMA_NUMBER.fullmatch(cell) for row in rows[-1:] for cell in row)
        decimal = {"decimal": ","} if comma else {}
        body = [_is_number(cell, comma=comma) for cell in rows[-1]]
        if len(rows) >= _LINES and not any(_is_number(cell, comma=comma) for cell in rows[0]) and any(body):
            return {"kind": "rows", "separator": separator, "header": True} | decimal
        if any(body) and not (separator == "," and width == _LINES and _is_decimal(rows[-1])):
            return {"kind": "rows", "separator": separator, "columns": _names(rows[-1])} | decimal
    return None


def _is_decimal(cells: list[str]) -> bool:
    """Return whether two cells may also be one number with a decimal comma."""
    return all(cell.lstrip("+-").isdigit() for cell in cells)


def _names(cells: list[str]) -> list[str]:
    """Return names for unnamed cells: the time, the sender if that is certain, and the others by their place."""
    names: list[str] = []
    for place, cell in enumerate(cells, start=1):
        kind = _kind_of(cell)
        names.append(f"column{place}" if kind is None or kind in names else kind)
    return names


def _kind_of(cell: str) -> str | None:
    if time_format(cell) is not None or _SOLID_TIME.fullmatch(cell) or _CLOCK.fullmatch(cell):
        return "time"
    if _DAY.fullmatch(cell):
        return "date"
    if is_address(cell):
        return "mac"
    return "imei" if _is_imei(cell) else None


def _is_imei(cell: str) -> bool:
    """Return whether 15 digits have an IMEI's check digit."""
    if len(cell) != 15 or not (cell.isdigit() and cell.isascii()):
        return False
    digits = [int(digit) * (1 + place % 2) for place, digit in enumerate(cell)]
    return sum(digit // 10 + digit % 10 for digit in digits) % 10 == 0

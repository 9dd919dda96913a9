"""How a payload becomes a document: JSON, lines of JSON, `key=value` text, rows; None where it is one bare value."""

import re
from typing import Any, Final, NamedTuple

from gateway.decoders.mapping_text import TextReader
from gateway.decoders.plain import read_scalar
from gateway.decoders.text_settings import FormatSettings
from gateway.json_text import Document
from gateway.settings import GatewaySettings
from gateway.suggest.times import time_format

__all__ = ["Read", "read_payload"]

_KEY: Final = re.compile(r"[A-Za-z_][\w.\-/ ]{0,60}")
_MOST_CELLS: Final = 200
_LINES: Final = 2


class Read(NamedTuple):
    """A document and the `format` of a mapping that makes it; {} is JSON."""

    document: Any
    format: dict[str, Any]


def read_payload(payload: bytes, limits: GatewaySettings) -> Read | None:
    """The document of a payload, None where it is bytes or one bare value."""
    if payload[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        whole, lines = _parse(payload, {}, limits), {"kind": "ndjson"}
        if isinstance(whole, dict | list):
            return Read(whole, {})
        documents = _parse(payload, lines, limits)
        return Read(documents, lines) if isinstance(documents, list) else None
    try:
        text = payload.decode("utf-8").strip()
    except UnicodeDecodeError:
        return None
    form = _pairs(text) or _rows(text)
    document = None if form is None else _parse(payload, form, limits)
    return Read(document, form) if form is not None and isinstance(document, dict | list) and document else None


def _parse(payload: bytes, form: dict[str, Any], limits: GatewaySettings) -> Any:
    parsed = TextReader(FormatSettings.model_validate({"kind": "json"} | form)).parse(payload, limits)
    return parsed.value if isinstance(parsed, Document) else None


def _is_number(cell: str) -> bool:
    value, _unit = read_scalar(cell.strip())
    return isinstance(value, int | float) and not isinstance(value, bool)


def _pairs(text: str) -> dict[str, Any] | None:
    """`t=21.5,h=40`, `t:21.5;h:40`, and `t|21.5|h|40`, where keys and values alternate."""
    for equals in ("=", ":"):
        for separator in (",", ";", "&", "|", " ", "\n"):
            parts = [part.partition(equals) for part in text.split(separator) if part.strip()][: _MOST_CELLS + 1]
            keyed = all(mark and _KEY.fullmatch(key.strip()) for key, mark, _value in parts)
            if keyed and len(parts) <= _MOST_CELLS and any(_is_number(value) for *_key, value in parts):
                usual = separator if separator != "\n" else " "
                return {"kind": "pairs", "separator": usual} | ({} if equals == "=" else {"equals": equals})
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


def _rows(text: str) -> dict[str, Any] | None:
    """Cells in a row; without a header their names are made up."""
    lines = [line for line in text.splitlines() if line.strip()]
    for separator in ("\t", ";", "|", ","):
        rows = [[cell.strip() for cell in line.split(separator)] for line in lines[:_MOST_CELLS]]
        width = len(rows[0]) if rows else 0
        if not 1 < width <= _MOST_CELLS or any(len(row) != width for row in rows):
            continue
        if len(rows) >= _LINES and not any(map(_is_number, rows[0])) and any(map(_is_number, rows[1])):
            return {"kind": "rows", "separator": separator, "header": True}
        numbers = [_is_number(cell) for cell in rows[-1]]
        if any(numbers) and not (separator == "," and width == _LINES and _is_decimal(rows[-1])):
            return {"kind": "rows", "separator": separator, "columns": _names(rows[-1])}
    return None


def _is_decimal(cells: list[str]) -> bool:
    """Whether two cells may as well be one number with a decimal comma."""
    return all(cell.lstrip("+-").isdigit() for cell in cells)


def _names(cells: list[str]) -> list[str]:
    """Names for cells that nobody named: the time, and the others by their place."""
    names: list[str] = []
    for place, cell in enumerate(cells, start=1):
        is_time = time_format(cell) is not None and "time" not in names
        names.append("time" if is_time else f"column{place}")
    return names

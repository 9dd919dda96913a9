"""Documents inside messages: JSON as text or base64, and columns of values with their times."""

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Any, Final

from gateway.decoders.mapping.text_documents import NestedDocuments
from gateway.decoders.mapping.text_settings import FormatSettings
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import Document, parse_json
from gateway.suggest.fields import can_name, path_text
from gateway.suggest.vocabulary import OFFSETS, TIME, normalize_key

__all__ = ["find_nested_documents", "open_nested_documents"]

_DEEPEST: Final = 8
_MOST: Final = 8
_CELLS: Final = ("name", "value", "unit")
_SHORTEST: Final = 2
"""Items from which on an array may be a column."""


def find_nested_documents(documents: Iterable[Any], limits: GatewaySettings) -> dict[str, Any]:
    """Return paths to documents inside the documents, and how to read them: the `inside` of a mapping."""
    found: dict[str, Any] = {}
    for document in documents:
        for path, form in _search(document, "", 0, limits):
            if len(found) < _MOST:
                found.setdefault(path, form)
    return found


def open_nested_documents(document: Any, inside: dict[str, Any], limits: GatewaySettings) -> Any:
    """Return a document with its inner documents read as `inside` says."""
    forms = {
        path: FormatSettings.model_validate({"kind": form} if isinstance(form, str) else form)
        for path, form in inside.items()
    }
    opened = NestedDocuments(forms).open(Document(document), limits)
    return opened.value if isinstance(opened, Document) else document


def _search(value: Any, path: str, depth: int, limits: GatewaySettings) -> Iterator[tuple[str, Any]]:
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        if not path and _is_table(value) and (names := _cell_names(value)) is not None:
            yield "$", {"kind": "rows", "columns": names}
            return
        for item in value:
            yield from _search(item, f"{path}[]" if path else "$[]", depth + 1, limits)
    elif isinstance(value, dict):
        if path and _is_columns(value):
            yield path, "columns"
            return
        heads = [inner for inner in value.values() if _is_head(inner)]
        for key, inner in value.items():
            if not can_name(key):
                continue
            head = next((head for head in heads if _is_table(inner) and len(head) == len(inner[0])), None)
            if head is not None:
                name = path_text((key,))
                yield (f"{path}.{name}" if path else name), {"kind": "rows", "columns": head}
                continue
            name = path_text((key,))
            yield from _search(inner, f"{path}.{name}" if path else name, depth + 1, limits)
    elif isinstance(value, str) and path:
        form = _form_of(value, limits)
        if form is not None:
            yield path, form


def _is_table(value: Any) -> bool:
    """Return whether this is an array of rows of one length."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, list) and len(row) == len(value[0]) >= _SHORTEST for row in value)
        and not any(isinstance(cell, dict | list) for row in value for cell in row)
    )


def _is_head(value: Any) -> bool:
    """Return whether this names the cells of rows."""
    return (
        isinstance(value, list)
        and len(value) >= _SHORTEST
        and all(isinstance(name, str) and can_name(name) and not name.endswith("?") for name in value)
        and len(set(value)) == len(value)
    )


def _cell_names(rows: list[list[Any]]) -> list[str] | None:
    """Return names for rows that each hold the name of a value, the value, and possibly its unit."""
    names = [row[0] for row in rows]
    named = all(isinstance(name, str) for name in names) and len(set(map(str, names))) == len(names) >= _SHORTEST
    valued = all(isinstance(row[1], int | float) for row in rows)
    units = all(isinstance(row[2], str) or row[2] is None for row in rows) if len(rows[0]) == len(_CELLS) else True
    return list(_CELLS[: len(rows[0])]) if named and valued and units and len(rows[0]) <= len(_CELLS) else None


def _is_columns(value: dict[str, Any]) -> bool:
    """Return whether all arrays have one length and one of them holds times."""
    columns = {key: inner for key, inner in value.items() if isinstance(inner, list)}
    lengths = {len(inner) for inner in columns.values()}
    plain = all(not isinstance(item, dict | list) for inner in columns.values() for item in inner)
    timed = any(normalize_key(key) in TIME or normalize_key(key) in OFFSETS for key in columns)
    return len(columns) > 1 and len(lengths) == 1 and min(lengths) >= _SHORTEST and plain and timed


def _form_of(text: str, limits: GatewaySettings) -> Any:
    if text.lstrip()[:1] in ("{", "[") and _is_document(text.encode("utf-8", "replace"), limits):
        return "json"
    try:
        plain = base64.b64decode(text, validate=True) if len(text) % 4 == 0 and len(text) > _DEEPEST else b""
    except (binascii.Error, ValueError):
        return None
    if plain.lstrip()[:1] in (b"{", b"[") and _is_document(plain, limits):
        return {"kind": "json", "encoding": "base64"}
    return None


def _is_document(payload: bytes, limits: GatewaySettings) -> bool:
    parsed = parse_json(payload, max_bytes=limits.max_payload_bytes, max_depth=limits.max_json_depth)
    return isinstance(parsed, Document) and isinstance(parsed.value, dict | list) and bool(parsed.value)

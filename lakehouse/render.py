"""Output of an Arrow table: as text for people (`table`), or as csv, json or parquet for programs. Times are UTC."""

import base64
import csv
import io
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["cell_text", "json_value", "render_table"]

WIDEST: Final = 60
"""Characters of a cell in `table`; longer ones are cut, the other formats never cut."""


def render_table(table: "pa.Table", form: str) -> bytes:
    """The whole answer as bytes; text is UTF-8 and ends with a line break.

    Args:
        table: the answer to a query.
        form: `table`, `csv`, `json` (an array of objects) or `parquet`.
    """
    return FORMATS[form](table)


def _text_table(table: "pa.Table") -> bytes:
    names = table.column_names
    right = [_is_number(field.type) for field in table.schema]
    rows = [[cell_text(value) for value in row.values()] for row in _records(table)]
    widths = [max(len(cells[i]) for cells in [names, *rows]) for i in range(len(names))]

    def line(cells: list[str]) -> str:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
        return "  ".join(padded).rstrip()

    counted = f"({len(rows)} row{'' if len(rows) == 1 else 's'})"
    lines = [line(names), line(["-" * width for width in widths]), *map(line, rows), counted]
    return ("\n".join(lines) + "\n").encode()


def _csv(table: "pa.Table") -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in _records(table):
        writer.writerow([_scalar(value) for value in row.values()])
    return out.getvalue().encode()


def _json(table: "pa.Table") -> bytes:
    rows = ",\n ".join(json.dumps(json_value(row), ensure_ascii=False) for row in _records(table))
    return f"[{rows}]\n".encode()


def _parquet(table: "pa.Table") -> bytes:
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _records(table: "pa.Table") -> list[dict[str, Any]]:
    import pyarrow as pa

    unique = [f"{i}" for i in range(table.num_columns)]  # an answer may name two columns alike
    rows: list[dict[str, Any]] = pa.Table.from_arrays(table.columns, names=unique).to_pylist(maps_as_pydicts="lossy")
    if len(set(table.column_names)) == table.num_columns:
        return [dict(zip(table.column_names, row.values(), strict=True)) for row in rows]
    return rows


def _is_number(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def cell_text(value: Any) -> str:
    """A value in one line of a terminal: what cannot be printed is escaped, so that no data steers the terminal."""
    if value is None:
        return ""
    text = _bytes_text(value) if isinstance(value, bytes) else str(value if isinstance(value, str) else _scalar(value))
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return shown if len(shown) <= WIDEST else f"{shown[: WIDEST - 1]}…"


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def _scalar(value: Any) -> Any:
    """Return the text of one field of a line."""
    found = json_value(value)
    return json.dumps(found, ensure_ascii=False) if isinstance(found, (dict, list)) else "" if found is None else found


def json_value(value: Any) -> Any:  # noqa: PLR0911 - one answer per kind of value
    """The value in JSON's words: times as ISO 8601 with Z, bytes as base64, no NaN."""
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, datetime):
        text = (value.astimezone(UTC) if value.tzinfo else value).isoformat(timespec="microseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


FORMATS: Final[dict[str, Callable[["pa.Table"], bytes]]] = {
    "table": _text_table,
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
}

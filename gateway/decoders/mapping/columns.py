"""Columns: an object of arrays becomes an array of rows, so that each row has its own time and place.

`{"time": [0, 5], "t": [20.5, 21]}` becomes `{"rows": [{"time": 0, "t": 20.5}, {"time": 5, "t": 21}]}`.
"""

from collections import Counter
from typing import Any, Final

from gateway.decoders.mapping.text_settings import FormatSettings
from gateway.json_text import Document
from gateway.safe_text import show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["ROWS", "ColumnPivot"]

ROWS: Final = "rows"


class ColumnPivot:
    """Rule by which arrays become rows."""

    def __init__(self, settings: FormatSettings) -> None:
        self._named = [str(name).removesuffix("?") for name in settings.columns]
        self._by = settings.by

    def read(self, value: object, limit: int) -> Document | Reject | None:
        """Return the object with its rows; None if it has no column."""
        if type(value) is not dict:
            return None
        columns = {name: body for name, body in value.items() if type(body) is list and self._is_column(name)}
        if not columns:
            return None
        count = self._count(columns)
        if isinstance(count, Reject):
            return count
        if count * len(columns) > 10 * limit or count > limit:
            wanted = f"at most {limit} readings in a message"
            return Reject(Reason.TOO_LARGE, None, f"{len(columns)} columns of {count} rows", wanted)
        rows: list[dict[str, Any]] = [{} for _ in range(count)]
        for name, body in columns.items():
            if len(body) == count:
                for row, cell in zip(rows, body, strict=True):
                    row[name] = cell
            elif rows:
                # The rows of its values are unknown: reject it once, at its beginning.
                rows[0][name] = Reject(
                    Reason.UNDECODED, None, show_value(body), f"an array of {count} items, like the others"
                )
        rest = {name: body for name, body in value.items() if name not in columns}
        return Document({**rest, ROWS: rows})

    def _is_column(self, name: str) -> bool:
        return not self._named or name in self._named or name == self._by

    def _count(self, columns: dict[str, list[Any]]) -> int | Reject:
        if self._by is not None:
            if self._by not in columns:
                return Reject(Reason.MISSING_FIELD, None, show_value(columns), f"an array {self._by}")
            count = len(columns[self._by])
            if not count and any(columns.values()):
                return Reject(Reason.UNDECODED, None, f"an empty array {self._by}", "one item for each row")
            return count
        lengths = Counter(map(len, columns.values()))
        if len(lengths) > 1:
            got = "arrays of " + ", ".join(map(str, sorted(lengths)[:10])) + " items"
            return Reject(Reason.UNDECODED, None, got, "columns of one length, or `by` with the column that counts")
        return next(iter(lengths))

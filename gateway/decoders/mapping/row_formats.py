"""Readers of rows, `key=value` pairs and columns: they make documents by a mapping's `format` (see `text_settings`).

Columns are an object of arrays. It becomes an array of rows, so that each row has its own time and place:
`{"time": [0, 5], "t": [20.5, 21]}` becomes `{"rows": [{"time": 0, "t": 20.5}, {"time": 5, "t": 21}]}`.
Time and memory grow with the text, which the payload limit bounds. Numbers of rows and pairs have limits too.
"""

import csv
import re
from collections import Counter
from typing import Any, Final
from urllib.parse import unquote_plus

from gateway.decoders.mapping.text_settings import Columns, FormatSettings
from gateway.glob_patterns import compile_glob
from gateway.json_text import DUPLICATE_KEY, BadNumber, Document
from gateway.safe_text import show_text, show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["ColumnPivot", "PairFormat", "RowFormat"]

GROUP: Final = "group"
"""Member with the groups that repeat to the end of a row."""
ROWS: Final = "rows"
"""Member with the rows that were columns."""
_BLANK: Final = " \t\r\n"
_SHOWN: Final = 100
"""Most rows whose fault is described; a description takes longer than reading, and nobody reads more."""
_ONE_MORE: Final = Reject(Reason.UNDECODED, None, "one more row that cannot be read", "rows as the mapping names them")
_LINE_END = re.compile(r"\r\n|\n|\r")
_UNIT: Final = r"(\s?[^\s\d.,;][^\d.,;]{0,15})?"
_COMMA_NUMBER = re.compile(rf"([+-]?(?:\d+|\d{{1,3}}(?:\.\d{{3}})+)),(\d+){_UNIT}", re.ASCII)
_POINT_OF_THOUSANDS = re.compile(rf"[+-]?[1-9]\d{{0,2}}\.\d{{3}}{_UNIT}", re.ASCII)


class _BadText(ValueError):
    """The text as a whole cannot be read."""


def _with_point(cell: str) -> str | BadNumber:
    """Replace a decimal comma by a point. Other text stays unchanged, except a point that may separate thousands."""
    found = _COMMA_NUMBER.fullmatch(cell)
    if found is not None:
        return f"{found[1].replace('.', '')}.{found[2]}{found[3] or ''}"
    if _POINT_OF_THOUSANDS.fullmatch(cell):
        return BadNumber(cell, "a decimal comma, as the mapping says: this point may separate thousands")
    return cell


class _Row:
    """Column names of one kind of row."""

    def __init__(self, columns: Columns) -> None:
        self.names = [name.removesuffix("?") for name in columns if isinstance(name, str)]
        self.least = sum(isinstance(name, str) and not name.endswith("?") for name in columns)
        self.group = next((name for name in columns if isinstance(name, tuple)), None)
        self.left_out = not columns

    def read(self, cells: list[Any]) -> dict[str, Any] | Reject:
        """Return the row as an object; a row of another length is rejected, because its cells would get wrong names."""
        count, names = len(cells), self.names
        rest = count - len(names)
        if (
            count < self.least
            or (self.group is None and rest > 0)
            or (self.group and rest > 0 and rest % len(self.group))
        ):
            return Reject(Reason.UNDECODED, None, f"{count} cells: {_shown(cells)}", self._wanted())
        row: dict[str, Any] = {name: cell for name, cell in zip(names, cells, strict=False) if cell != "" and name}
        if self.group is not None:
            size = len(self.group)
            row[GROUP] = [
                {
                    name: cell
                    for name, cell in zip(self.group, cells[at : at + size], strict=True)
                    if cell != "" and name
                }
                for at in range(len(names), count, size)
            ]
        return row

    def _wanted(self) -> str:
        most = "" if self.least == len(self.names) else f" to {len(self.names)}"
        group = f", then groups of {len(self.group)}" if self.group else ""
        return show_text(f"{self.least}{most} cells{group}: {', '.join(self.names[:20])}")


def _shown(cells: list[Any]) -> str:
    return show_text(" ".join(str(cell)[:40] for cell in cells[:20]))


class RowFormat:
    """Reader of text to an array of objects; a row that cannot be read is in it as a `Reject`."""

    def __init__(self, settings: FormatSettings) -> None:
        self._separator, self._lines, self._comma = settings.separator, settings.lines, settings.decimal == ","
        columns = settings.columns
        self._fixed = None if settings.header or isinstance(columns, dict) else _Row(columns)
        by_kind = columns if isinstance(columns, dict) else {}
        self._kinds = [(compile_glob(first), _Row(names)) for first, names in by_kind.items()]
        self._known_kinds = show_text("a row that begins with " + ", ".join(by_kind))

    def read(self, text: str | list[Any], limit: int) -> list[Any] | Reject:
        """Return every row; an array of arrays (JSON) already consists of rows. `limit` is the most rows."""
        try:
            rows = self._split(text, limit) if isinstance(text, str) else _cells_of(text, limit)
            if rows is None:
                return Reject(Reason.TOO_LARGE, "$", "more rows", f"at most {limit} rows in a message")
            kind = self._fixed
            if kind is None and not self._kinds:
                kind, rows = _header(rows), rows[1:]
            if self._comma and isinstance(text, str):
                rows = [list(map(_with_point, cells)) for cells in rows]
        except (_BadText, csv.Error) as error:
            return Reject(Reason.UNDECODED, "$", show_text(str(error)), "delimited text as the mapping describes it")
        read: list[Any] = []
        faults = 0
        for cells in rows:
            row = self._read_row(cells, kind)
            if isinstance(row, Reject):
                faults += 1
                row = row if faults <= _SHOWN else _ONE_MORE
            if row is not None:
                read.append(row)
        return read

    def _read_row(self, cells: list[Any], kind: _Row | None) -> dict[str, Any] | Reject | None:
        if kind is None:
            first = cells[0] if isinstance(cells[0], str) else str(cells[0])[:200]
            kind = next((row for test, row in self._kinds if test.fullmatch(first)), None)
            if kind is None:
                return Reject(Reason.UNDECODED, None, show_text(first), self._known_kinds)
        return None if kind.left_out else kind.read(cells)

    def _split(self, text: str, limit: int) -> list[list[str]] | None:
        """Return the cells of each row that is not empty; None if there are too many."""
        lines = _LINE_END.split(text) if self._lines is None else text.split(self._lines)
        if len(lines) > 2 * limit + 2:
            return None
        quoted = '"' in text and len(self._separator) == 1 and self._separator != " "
        if quoted and self._lines is None:
            ended = [f"{line}\n" for line in lines]
            found = csv.reader(ended, delimiter=self._separator, strict=True, skipinitialspace=True)
            rows = [[cell.strip(_BLANK) for cell in cells] for cells in found]
        else:
            rows = [self._cells(line, quoted=quoted) for line in lines]
        rows = [cells for cells in rows if any(cells)]
        return rows if len(rows) <= limit else None

    def _cells(self, line: str, *, quoted: bool) -> list[str]:
        if self._separator == " ":
            return line.split()
        if quoted and '"' in line:
            line = line.strip(_BLANK)
            found = next(csv.reader([line], delimiter=self._separator, strict=True, skipinitialspace=True), [])
            return [cell.strip(_BLANK) for cell in found]
        return [cell.strip(_BLANK) for cell in line.split(self._separator)]


def _cells_of(rows: list[Any], limit: int) -> list[list[Any]] | None:
    """Return the cells of an array of arrays: their items; null is an empty cell."""
    if len(rows) > limit:
        return None
    for row in rows:
        if type(row) is not list:
            message = "an array with items that are not arrays"
            raise _BadText(message)
    return [["" if cell is None else cell for cell in row] for row in rows if row]


def _header(rows: list[list[Any]]) -> _Row:
    names = rows[0] if rows else []
    named = [name for name in names if name]
    if not all(isinstance(name, str) for name in names) or len(named) != len(set(named)) or len(names) > 1000:
        message = "a first row that does not name each column once"
        raise _BadText(message)
    # A `?` here is part of the name.
    row = _Row(())
    row.names, row.least, row.left_out = list(names), len(names), False
    return row


class PairFormat:
    """Reader of `key=value` text to an object, or of several rows to an array of objects."""

    def __init__(self, settings: FormatSettings) -> None:
        self._separator, self._lines, self._equals = settings.separator, settings.lines, settings.equals
        self._leading = [str(name).removesuffix("?") for name in settings.columns]
        self._least = sum(not str(name).endswith("?") for name in settings.columns)
        self._comma = settings.decimal == ","
        # `t: 21.5 h: 44`: blanks around the sign between key and value do not separate pairs, unless a pair without value ends.
        apart = rf" ?{re.escape(self._equals)} ?(?=[^ {re.escape(self._equals)}]+(?: |$))"
        is_sign = self._separator == " " and not self._equals.isspace()
        self._apart = re.compile(apart) if is_sign and len(self._equals) == 1 else None

    def read(self, text: str, limit: int) -> tuple[Any, tuple[str, ...]] | Reject:
        """Return the document and its flags. `limit` is the most pairs of a text."""
        lines = [text] if self._lines is None else [line for line in text.split(self._lines) if line.strip(_BLANK)]
        separators = len(text.split()) if self._separator == " " else text.count(self._separator)
        if separators > 2 * limit or len(lines) > limit:
            return Reject(Reason.TOO_LARGE, "$", "more pairs", f"at most {limit} pairs in a message")
        flags: dict[str, None] = {}
        found = [self._read_line(line, flags) for line in lines]
        if self._lines is None:
            only = found[0]
            return only if isinstance(only, Reject) else (only, tuple(flags))
        return found, tuple(flags)

    def _read_line(self, line: str, flags: dict[str, None]) -> dict[str, Any] | Reject:
        if self._apart is not None:
            line = self._apart.sub(self._equals, " ".join(line.split()))
        cells = line.split() if self._separator == " " else line.strip(_BLANK).split(self._separator)
        cells = [cell.strip(_BLANK) for cell in cells]
        pairs = self._alternating(cells) if self._separator == self._equals else self._joined(cells)
        if isinstance(pairs, Reject):
            return pairs
        row: dict[str, Any] = {}
        for key, value in pairs:
            if key in row:
                flags[DUPLICATE_KEY] = None
            if value:
                row[key] = _with_point(value) if self._comma else value
        return row

    def _alternating(self, cells: list[str]) -> list[tuple[str, str]] | Reject:
        lead = next((n for n in range(self._least, len(self._leading) + 1) if (len(cells) - n) % 2 == 0), None)
        if lead is None or lead > len(cells) or not all(cells[lead::2]):
            wanted = f"keys and values in turn, with {self._separator!r} between them"
            return Reject(Reason.UNDECODED, None, _shown(cells), wanted)
        leading = [(name, cell) for name, cell in zip(self._leading, cells[:lead], strict=False) if name]
        return leading + list(zip(cells[lead::2], cells[lead + 1 :: 2], strict=True))

    def _plain(self, text: str) -> str:
        """Return text of a form (`a=1&b=2`) without its escapes."""
        return unquote_plus(text) if self._separator == "&" else text

    def _joined(self, cells: list[str]) -> list[tuple[str, str]] | Reject:
        found: list[tuple[str, str]] = []
        names = iter(self._leading)
        for place, cell in enumerate(cells):
            key, equals, value = cell.partition(self._equals)
            if equals and key.strip(_BLANK):
                found.append((self._plain(key.strip(_BLANK)), self._plain(_unquoted(value.strip(_BLANK)))))
            elif cell and place < len(self._leading):
                found.append((next(names), cell))
            elif cell:
                wanted = f"key{self._equals}value, with {self._separator!r} between pairs"
                return Reject(Reason.UNDECODED, None, show_text(cell), wanted)
        return found


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


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

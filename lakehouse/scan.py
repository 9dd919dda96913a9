"""Scan of a table's files by DuckDB itself: the files of the log, with the table's columns and types, and the choice of files.

DuckDB opens a small file several times faster than Arrow, and skips row groups and whole days by itself. The choice of files
uses the times in the log, and the conditions on times that DuckDB's plan pushes down to a scan, with `now()` and arithmetic
already evaluated. A condition that is not understood here only opens a file for nothing, because DuckDB checks all conditions
itself.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from lakehouse.file_stats import STEP_US
from lakehouse.paths import is_local

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["FileScan", "local_path", "needed_files", "quote_identifier", "scan_of"]

_TYPES: Final = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
}

_COMPARISON: Final = (
    r'\(?"?(?P<column>\w+)"? (?P<sign>>=|<=|=|>|<) '
    r"'(?P<time>[0-9]{4}-[0-9: .+-]+)'::TIMESTAMP WITH TIME ZONE\)?"
)
_CONJUNCTION: Final = re.compile(r"\(*(?:{0})(?: AND (?:{0}))*\)*".format(re.sub(r"\?P<\w+>", "?:", _COMPARISON)))

_LEAVES: Final = frozenset(
    {"READ_PARQUET", "PYTHON_ARROW_SCAN", "DUMMY_SCAN", "CTE_SCAN", "REC_CTE_SCAN", "DELIM_SCAN", "RANGE"}
)
"""Known sources of rows in a plan. Others, such as `EMPTY_RESULT`, may be results that the planner took from the files in the
present list, so other files may give other results.
"""
_Condition = tuple[str, str, int]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FileScan:
    """The files of one version of a table.

    `folder` is their folder. `types` are DuckDB's types by column, in the table's order. `ranges` are the first and the last
    time of each file, by column, in epoch µs; None if the log has none.
    """

    folder: str
    types: dict[str, str]
    partitions: tuple[str, ...]
    files: tuple[str, ...]
    ranges: dict[str, tuple[list[int | None], list[int | None]]] = field(default_factory=dict)

    def select(self, variable: str, *, by_path: bool = True) -> str:
        """Return a query for all rows of the files that a DuckDB variable lists; it must list at least one.

        Args:
            variable: name of the variable.
            by_path: False leaves the partition columns null, so that DuckDB skips no file because of its path.
        """
        partitions = self.partitions if by_path else ()
        stored = {name: kind for name, kind in self.types.items() if name not in partitions}
        schema = ", ".join(
            f"{_text(name)}: {{name: {_text(name)}, type: {_text(kind)}, default_value: NULL}}"
            for name, kind in stored.items()
        )
        days = ", ".join(f"{_text(name)}: {self.types[name]}" for name in partitions)
        hive = f"hive_partitioning = true, hive_types = {{{days}}}" if days else "hive_partitioning = false"
        columns = ", ".join(map(quote_identifier, self.types))
        source = f"read_parquet(getvariable({_text(variable)}), schema = MAP {{{schema}}}, {hive})"
        return f"SELECT {columns} FROM {source}"  # noqa: S608 - quoted names

    def empty(self) -> str:
        """Return a query with the same columns and no rows."""
        columns = ", ".join(f"NULL::{kind} AS {quote_identifier(name)}" for name, kind in self.types.items())
        return f"SELECT {columns} WHERE false"


def scan_of(table: "DeltaTable") -> FileScan | None:
    """Return the files of the table's version, newest first; None if DuckDB cannot read them by their paths.

    That is the case on an object store, with a type that DuckDB does not know, or with an escaped partition value in a path.
    """
    import pyarrow as pa

    folder = local_path(table.table_uri)
    types = {each.name: _duckdb_type(each.type) for each in table.schema().fields}
    if folder is None or any(kind is None for kind in types.values()):
        return None
    listed = pa.table(table.get_add_actions(flatten=True))
    partitions = tuple(table.metadata().partition_columns)
    paths = [unquote(path) for path in listed["path"].to_pylist()]
    if not _in_path(paths, partitions, listed):
        return None
    ranges = _ranges(listed)
    order = _newest_first(ranges, len(paths))
    return FileScan(
        folder,
        {name: str(kind) for name, kind in types.items()},
        partitions,
        tuple(f"{folder}/{paths[i]}" for i in order),
        {name: ([lows[i] for i in order], [highs[i] for i in order]) for name, (lows, highs) in ranges.items()},
    )


def local_path(uri: str) -> str | None:
    """Return the folder of a table on this machine; None for other places, and if DuckDB would take the path for a pattern."""
    path = unquote(uri.removeprefix("file://")).rstrip("/")
    return path if is_local(uri) and not re.search(r"[*?\[\]{}]", path) else None


def quote_identifier(name: str) -> str:
    """Return a name as a quoted identifier of DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _duckdb_type(kind: Any) -> str | None:
    """Return DuckDB's name of a Delta type; None for an unsupported one (structs, times without zone)."""
    from deltalake.schema import ArrayType, MapType, PrimitiveType

    if isinstance(kind, ArrayType):
        element = _duckdb_type(kind.element_type)
        return element and f"{element}[]"
    if isinstance(kind, MapType):
        key, value = _duckdb_type(kind.key_type), _duckdb_type(kind.value_type)
        return f"MAP({key}, {value})" if key and value else None
    if not isinstance(kind, PrimitiveType):
        return None
    return kind.type.upper() if kind.type.startswith("decimal(") else _TYPES.get(kind.type)


def _in_path(paths: list[str], partitions: tuple[str, ...], listed: Any) -> bool:
    """Return whether every path begins with its partition's values (`date=2026-11-28/`)."""
    values = [listed[f"partition.{name}"].to_pylist() if paths else [] for name in partitions]
    wanted = ("".join(f"{name}={row[k]}/" for k, name in enumerate(partitions)) for row in zip(*values, strict=True))
    if not partitions:
        return not any("=" in path for path in paths)
    return all(path.startswith(prefix) and "%" not in path for path, prefix in zip(paths, wanted, strict=True))


def _ranges(listed: Any) -> dict[str, tuple[list[int | None], list[int | None]]]:
    import pyarrow as pa

    times = [
        field.name.removeprefix("min.")
        for field in listed.schema
        if field.name.startswith("min.") and pa.types.is_timestamp(field.type)
    ]

    def microseconds(column: str, more: int) -> list[int | None]:
        found = listed[column].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        return [None if time is None else time + more for time in found]

    return {name: (microseconds(f"min.{name}", 0), microseconds(f"max.{name}", STEP_US)) for name in times}


def _newest_first(ranges: dict[str, tuple[list[int | None], list[int | None]]], count: int) -> list[int]:
    """Return the order of the files, newest first, so that `ORDER BY landed_at DESC LIMIT 5` needs only the first ones."""
    highs = next((highs for _, highs in ranges.values()), [None] * count)
    return sorted(range(count), key=lambda i: (highs[i] is None, highs[i] or 0), reverse=True)


def needed_files(plan: str, scan: FileScan) -> list[str]:
    """Return the files that may have a row that the plan wants.

    Args:
        plan: output of `EXPLAIN (FORMAT json)`; each scan of Parquet files in it must be of this table. The plan may have been
            made with only some of the files.
        scan: the table's files.
    """
    nodes = json.loads(plan)
    if not _leaves(nodes) <= _LEAVES:
        return list(scan.files)
    wanted: set[int] = set()
    for conditions in _scans(nodes):
        wanted |= {i for i in range(len(scan.files)) if _may_hold(scan, i, conditions)}
    return [file for i, file in enumerate(scan.files) if i in wanted]


def _leaves(nodes: list[dict[str, Any]]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        found |= _leaves(node["children"]) if node.get("children") else {node["name"].strip()}
    return found


def _scans(nodes: list[dict[str, Any]]) -> Iterator[list[_Condition]]:
    for node in nodes:
        if node["name"].strip() == "READ_PARQUET":
            told = node.get("extra_info", {}).get("Filters", [])
            yield [found for text in ([told] if isinstance(told, str) else told) for found in _conditions(text)]
        yield from _scans(node.get("children", []))


def _conditions(text: str) -> Iterator[_Condition]:
    """Yield the comparisons of one condition of the plan; none unless the condition is comparisons joined by AND."""
    if _CONJUNCTION.fullmatch(text.removeprefix("optional: ")) is None:
        return
    for match in re.finditer(_COMPARISON, text):
        try:
            time = datetime.fromisoformat(match["time"])
        except ValueError:  # a year that Python does not know
            continue
        yield match["column"], match["sign"], (time - _EPOCH) // timedelta(microseconds=1)


def _may_hold(scan: FileScan, file: int, conditions: list[_Condition]) -> bool:
    for column, sign, time in conditions:
        lows, highs = scan.ranges.get(column, ((), ()))
        low, high = (lows[file], highs[file]) if lows and highs else (None, None)
        if sign in (">", ">=", "=") and high is not None and high < time:
            return False
        if sign in ("<", "<=", "=") and low is not None and low > time:
            return False
    return True

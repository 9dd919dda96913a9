"""Differences between two versions of a table: rows of only one version, and rows of one key with other content.

Only files that one version has and the other lacks are read, so a rearrangement (compaction) shows no difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import TidegateError, UnavailableError
from lakehouse.catalog import open_table
from lakehouse.dataset import dataset_of
from lakehouse.scan import FileScan, quote_identifier, scan_of

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from duckdb import DuckDBPyConnection

__all__ = ["KEYS", "TableDiff", "diff_table"]

_WINDOW: Final = ("device", "metric", "window_start")
KEYS: Final = {
    "readings": ("partition", "offset", "metric", "index"),
    "dead_letters": ("source_topic", "partition", "offset", "path"),
    "duplicates": ("partition", "offset"),
    "rollups_1m": _WINDOW,
    "rollups_5m": _WINDOW,
    "rollups_1h": _WINDOW,
    "rolling_15m": _WINDOW,
    "latest": ("device", "metric"),
    "ledger": ("device", "minute"),
    "devices": ("device",),
}
"""Columns that identify a row of a table, whatever its other content."""


@dataclass(frozen=True, slots=True)
class TableDiff:
    """Counts, and the first rows of each kind; a changed row holds its key and `{column: {"from": …, "to": …}}`."""

    table: str
    from_version: int
    to_version: int
    keys: tuple[str, ...]
    only_in_from: int
    only_in_to: int
    changed: int
    rows_only_in_from: list[dict[str, Any]]
    rows_only_in_to: list[dict[str, Any]]
    rows_changed: list[dict[str, Any]]


def diff_table(
    root: str, name: str, from_version: int, to_version: int, *, keys: Sequence[str] | None = None, limit: int = 10
) -> TableDiff:
    """Compare two versions of one table.

    Args:
        root: path or URI of the tables.
        name: the table.
        from_version: one version.
        to_version: the other one.
        keys: columns by which rows are the same; by default those of `KEYS`; without any no row counts as changed.
        limit: how many rows of each kind to return.

    Raises:
        UnavailableError: there is no such table, or it has not such a version any more.
        TidegateError: a key is not a column of both versions.
    """
    import duckdb

    one, other = (open_table(root, name, version=version) for version in (from_version, to_version))
    columns = [field.name for field in other.schema().fields if field.name in {f.name for f in one.schema().fields}]
    chosen = tuple(keys if keys is not None else (key for key in KEYS.get(name, ()) if key in columns))
    if missing := [key for key in chosen if key not in columns]:
        message = f"{missing[0]!r} is not a column of {name} in both versions. The columns are: {', '.join(columns)}."
        raise TidegateError(message)
    connection = duckdb.connect(config={"python_enable_replacements": False, "temp_directory": ""})
    try:
        connection.execute("SET TimeZone = 'UTC'")
        _show_differing(connection, one, other)
        return _compare(connection, (name, from_version, to_version), columns, chosen, limit)
    except duckdb.Error as error:
        message = (
            f"Version {from_version} or {to_version} of {name} is no longer complete: {error}. Files that no newer version "
            f"needs are deleted after the log's retention; `tidegate tables history {name}` lists the versions that are kept."
        )
        raise UnavailableError(message) from error
    finally:
        connection.close()


def _show_differing(connection: "DuckDBPyConnection", one: "DeltaTable", other: "DeltaTable") -> None:
    """Views `one` and `other`: the rows of the files that only the one version has."""
    scans = {"one": scan_of(one), "other": scan_of(other)}
    files = {view: set(scan.files) if scan else set() for view, scan in scans.items()}
    for view, table in (("one", one), ("other", other)):
        scan = scans[view]
        if scan is None or None in scans.values():
            connection.register(view, dataset_of(table))
            continue
        theirs = files["other" if view == "one" else "one"]
        _show(connection, view, scan, [file for file in scan.files if file not in theirs])


def _show(connection: "DuckDBPyConnection", view: str, scan: FileScan, files: list[str]) -> None:
    connection.execute(f"SET VARIABLE {quote_identifier(view)} = ?", [files])
    connection.execute(f"CREATE TEMP VIEW {quote_identifier(view)} AS {scan.select(view) if files else scan.empty()}")


def _compare(
    connection: "DuckDBPyConnection",
    named: tuple[str, int, int],
    columns: list[str],
    keys: tuple[str, ...],
    limit: int,
) -> TableDiff:
    listed = ", ".join(map(quote_identifier, columns))
    # Rows of one key differ by their place among them, so that each has one partner at most.
    place = f"row_number() OVER (PARTITION BY {', '.join(map(quote_identifier, keys)) or 'NULL'} ORDER BY {listed})"
    for gone, left, right in (("gone", "one", "other"), ("come", "other", "one")):
        rows = f"SELECT {listed} FROM {left} EXCEPT ALL SELECT {listed} FROM {right}"  # noqa: S608 - quoted names
        connection.execute(f'CREATE TEMP TABLE {gone} AS SELECT {listed}, {place} AS "#" FROM ({rows})')  # noqa: S608
    same = " AND ".join(
        f"g.{quote_identifier(key)} IS NOT DISTINCT FROM c.{quote_identifier(key)}" for key in (*keys, "#")
    )
    pairs = f"gone g JOIN come c ON {same if keys else 'false'}"

    def count(query: str) -> int:
        return int(connection.execute(f"SELECT count(*) FROM {query}").fetchall()[0][0])  # noqa: S608

    def first(query: str) -> list[dict[str, Any]]:
        return list(connection.sql(f"{query} LIMIT {limit}").to_arrow_table().to_pylist(maps_as_pydicts="lossy"))

    def unpaired(rows: str, others: str) -> list[dict[str, Any]]:
        partner = same if keys else "false"
        without = f"NOT EXISTS (SELECT 1 FROM {others} WHERE {partner})"  # noqa: S608
        return first(f"SELECT {listed} FROM {rows} WHERE {without} ORDER BY ALL")  # noqa: S608

    changed = count(pairs)
    sides = ", ".join(
        f"{side}.{quote_identifier(column)} AS {quote_identifier(side + column)}" for column in columns for side in "gc"
    )
    both = first(f"SELECT {sides} FROM {pairs} ORDER BY ALL")  # noqa: S608
    return TableDiff(
        *named,
        keys,
        count("gone") - changed,
        count("come") - changed,
        changed,
        unpaired("gone g", "come c"),
        unpaired("come c", "gone g"),
        [_changed(row, columns, keys) for row in both],
    )


def _changed(row: dict[str, Any], columns: list[str], keys: tuple[str, ...]) -> dict[str, Any]:
    other = {
        column: {"from": row[f"g{column}"], "to": row[f"c{column}"]}
        for column in columns
        if row[f"g{column}"] != row[f"c{column}"]
    }
    return {**{key: row[f"g{key}"] for key in keys}, "columns": other}

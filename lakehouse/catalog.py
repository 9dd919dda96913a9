"""Tables with their columns, size and history, read from the Delta log without a JVM."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import UnavailableError
from lakehouse.commit_metadata import metadata_text
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.paths import is_local, table_uri, to_path
from lakehouse.views import View

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = [
    "ColumnInfo",
    "CommitInfo",
    "TableInfo",
    "columns_of",
    "history_of",
    "list_tables",
    "newest_commits",
    "open_table",
    "table_names",
    "view_columns",
]

FIRST_COMMITS: Final = 200


@dataclass(frozen=True, slots=True)
class TableInfo:
    """One table as it is now."""

    name: str
    version: int
    rows: int
    files: int
    bytes: int
    committed_at: datetime | None


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """One column of a table; `partition` where the table is partitioned by it."""

    name: str
    type: str
    nullable: bool
    comment: str
    partition: bool = False


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """One version of a table."""

    version: int
    committed_at: datetime
    operation: str
    rows: int | None
    engine: str
    user_metadata: str | None


def table_names(root: str) -> list[str]:
    """The tables under the root, by name."""
    from deltalake import DeltaTable

    if not is_local(root):
        return [name for name in ALL_TABLES if DeltaTable.is_deltatable(table_uri(root, name))]
    folder = to_path(root)
    return sorted(log.parent.name for log in folder.glob("*/_delta_log"))


def open_table(root: str, name: str, *, version: int | None = None, at: datetime | None = None) -> "DeltaTable":
    """One table, now or as it was.

    Raises:
        UnavailableError: there is no such table, or it has no such version (any more).
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = DeltaTable(table_uri(root, name), version=version)
        if at is not None:
            table.load_as_version(at)
    except TableNotFoundError as error:
        raise UnavailableError(_no_table(root, name)) from error
    except DeltaError as error:
        if version is None and at is None:
            message = f"Table {name} cannot be read: {error}. Run `tidegate repair` to see the damage and its fix."
            raise UnavailableError(message) from error
        wanted = f"version {version}" if version is not None else f"a version of {at:%Y-%m-%d %H:%M:%S} UTC"
        message = (
            f"Table {name} has no {wanted}: {error}. `tidegate tables history {name}` lists the versions that are kept."
        )
        raise UnavailableError(message) from error
    return table


def newest_commits(table: "DeltaTable") -> Iterator[dict[str, Any]]:
    """The commits of a table, newest first: a few at once, and the whole log only for those who go on."""
    newest = table.history(FIRST_COMMITS)
    yield from newest
    if len(newest) == FIRST_COMMITS:
        yield from table.history()[FIRST_COMMITS:]


def list_tables(root: str) -> list[TableInfo]:
    """Every table under the root with its size."""
    return [_info(name, open_table(root, name)) for name in table_names(root)]


def columns_of(root: str, name: str) -> list[ColumnInfo]:
    """The columns of a table; those of the definition where the table is not there yet.

    Raises:
        UnavailableError: neither a table nor a definition has this name.
    """
    if name not in table_names(root):
        if name not in ALL_TABLES:
            raise UnavailableError(_no_table(root, name))
        table = ALL_TABLES[name]
        return [
            ColumnInfo(c.name, c.type, c.nullable, c.comment, c.name in table.partitioned_by) for c in table.columns
        ]
    stored = open_table(root, name)
    partitions = stored.metadata().partition_columns
    return [
        ColumnInfo(
            field.name,
            _type_name(field.type),
            field.nullable,
            str(field.metadata.get("comment", "")),
            field.name in partitions,
        )
        for field in stored.schema().fields
    ]


def view_columns(root: str, view: View) -> list[ColumnInfo]:
    """The columns of a view, by asking for none of its rows."""
    from lakehouse.query import run_sql

    described = run_sql(root, f'DESCRIBE FROM "{view.name}"', views=[view]).to_pylist()
    return [ColumnInfo(row["column_name"], str(row["column_type"]).lower(), True, "") for row in described]


def history_of(root: str, name: str, *, limit: int = 20) -> list[CommitInfo]:
    """The newest versions first."""
    return [_commit(entry) for entry in open_table(root, name).history(limit)]


def _info(name: str, table: "DeltaTable") -> TableInfo:
    import pyarrow as pa
    import pyarrow.compute as pc

    files = pa.table(table.get_add_actions(flatten=True))
    newest = table.history(1)
    return TableInfo(
        name=name,
        version=table.version(),
        rows=pc.sum(files["num_records"]).as_py() or 0,
        files=files.num_rows,
        bytes=pc.sum(files["size_bytes"]).as_py() or 0,
        committed_at=_commit(newest[0]).committed_at if newest else None,
    )


def _commit(entry: dict[str, Any]) -> CommitInfo:
    metrics = entry.get("operationMetrics") or {}
    rows = metrics.get("numOutputRows") or metrics.get("num_added_rows")
    return CommitInfo(
        version=int(entry["version"]),
        committed_at=datetime.fromtimestamp(entry["timestamp"] / 1000, UTC),
        operation=str(entry.get("operation", "")),
        rows=int(rows) if rows is not None else None,
        engine=str(entry.get("engineInfo") or entry.get("clientVersion") or ""),
        user_metadata=metadata_text(entry),
    )


def _type_name(kind: Any) -> str:
    """A type as SQL says it."""
    from deltalake.schema import ArrayType, MapType

    if isinstance(kind, ArrayType):
        return f"array<{_type_name(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{_type_name(kind.key_type)},{_type_name(kind.value_type)}>"
    return {"long": "bigint", "integer": "int"}.get(kind.type, str(kind.type))


def _no_table(root: str, name: str) -> str:
    names = table_names(root)
    if not names:
        return f"There is no table under {root} yet. Start the pipeline with `tidegate up`, or name another folder."
    return f"There is no table {name} under {root}. The tables here are: {', '.join(names)}."

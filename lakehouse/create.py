"""Creation of the Delta tables with comments and properties, in milliseconds and without a JVM."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any, Final

from ingest.contract.errors import FatalError
from lakehouse.object_store import IMPATIENT, is_s3
from lakehouse.paths import table_uri
from lakehouse.tables import Column, Table

__all__ = ["check_tables", "create_table", "ensure_tables"]

_RUST_TYPES: Final = {"bigint": "long", "int": "integer"}


def check_tables(root: str, tables: Iterable[Table]) -> None:
    """Refuse what `ensure_tables` would refuse, and change nothing.

    Raises:
        FatalError: a table of this name exists whose columns differ; names the first difference.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    options = dict(IMPATIENT) if is_s3(root) else None
    for table in tables:
        uri = table_uri(root, table.name)
        with suppress(TableNotFoundError):
            schema = DeltaTable(uri, storage_options=options).schema()
            added = {column.name for column in _new_columns(table, schema)}
            _refuse_other_shape(table, uri, schema, added)


def ensure_tables(root: str, tables: Iterable[Table], *, log_retention_hours: int) -> None:
    """Create what is missing and refuse what has another shape.

    Raises:
        FatalError: a table of this name exists whose columns differ; names the first difference.
    """
    for table in tables:
        create_table(root, table, log_retention_hours=log_retention_hours)


def create_table(root: str, table: Table, *, log_retention_hours: int) -> None:
    """Create one table, or check the columns of the one that is there and add those that are new."""
    from deltalake import DeltaTable, Schema

    uri = table_uri(root, table.name)
    if not DeltaTable.is_deltatable(uri):
        DeltaTable.create(
            uri,
            schema=Schema([_field(column) for column in table.columns]),
            partition_by=list(table.partitioned_by),
            name=table.name,
            description=table.comment,
            configuration=dict(table.properties(log_retention_hours=log_retention_hours)),
        )
        return
    _add_columns(table, DeltaTable(uri))
    _set_properties(DeltaTable(uri), table.properties(log_retention_hours=log_retention_hours))
    _refuse_other_shape(table, uri, DeltaTable(uri).schema())


def _refuse_other_shape(table: Table, uri: str, schema: Any, added: Collection[str] = ()) -> None:
    if differences := _schema_differences(table, schema, added):
        message = (
            f"The table {uri} does not have the columns of this version: {differences[0]}. "
            "Set lake.root to another folder; the old tables stay readable there."
        )
        raise FatalError(message)


def _add_columns(table: Table, stored: Any) -> None:
    """Add the columns that an older version did not write; its rows have null there."""
    if new := [_field(column) for column in _new_columns(table, stored.schema())]:
        stored.alter.add_columns(new)


def _new_columns(table: Table, schema: Any) -> list[Column]:
    known = {field.name for field in schema.fields}
    if table.columns[0].name not in known:
        return []  # a foreign table: refused by name, not changed
    return [column for column in table.columns if column.name not in known and column.nullable]


def _set_properties(stored: Any, wanted: dict[str, str]) -> None:
    """Give a table of an older version, or of other settings, the properties that count now."""
    known = stored.metadata().configuration
    if any(known.get(name) != value for name, value in wanted.items()):
        stored.alter.set_table_properties(wanted)


def _schema_differences(table: Table, schema: Any, added: Collection[str] = ()) -> list[str]:
    """Return the differences between the definition and a table's schema, as sentences.

    Extra columns at its end do not count, nor columns that will be `added`.
    """
    stored = {field.name: field for field in schema.fields}
    differences = []
    for column in table.columns:
        wanted = _field(column)
        field = stored.get(column.name)
        if column.name in added:
            continue
        if field is None:
            differences.append(f"column {column.name} is missing")
        elif field.type != wanted.type:
            differences.append(f"column {column.name} is {field.type}, wanted {column.type}")
    return differences


def _field(column: Column) -> Any:
    from deltalake import Field

    return Field(column.name, _type(column.type), nullable=column.nullable, metadata={"comment": column.comment})


def _type(name: str) -> Any:
    from deltalake.schema import ArrayType, MapType, PrimitiveType

    if name.startswith("array<"):
        return ArrayType(_type(name[6:-1]), contains_null=True)
    if name.startswith("map<"):
        key, value = name[4:-1].split(",")
        return MapType(_type(key), _type(value), value_contains_null=True)
    return PrimitiveType(_RUST_TYPES.get(name, name))

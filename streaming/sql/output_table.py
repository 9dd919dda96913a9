"""The Delta table of a SQL stream: its definition, allowed changes, time column and deletion."""

import json
import shutil
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import ConfigError, TidegateError
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.paths import table_uri, to_path
from lakehouse.tables import Column, Table
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["delete_table", "ensure_table", "refuse_other_types", "table_schema", "time_expression"]

_PLAIN: Final = ("string", "timestamp", "date", "bigint", "int", "double")
_TIMES: Final = ("event_time", "window_start", "received_at", "kafka_time")


def _table_of(name: str, columns: tuple[tuple[str, str], ...]) -> Table:
    """Return the definition of a stream's table; it is partitioned by `date` if the output has that column."""
    plain = [column for column, kind in columns if kind in _PLAIN]
    return Table(
        name=name,
        comment="Output of a SQL-defined stream: `tidegate streams ls`.",
        columns=tuple(Column(column, kind, "") for column, kind in columns),
        statistics=tuple(plain[:8]),
        partitioned_by=("date",) if ("date", "date") in columns else (),
    )


def ensure_table(root: str, name: str, schema: str, *, log_retention_hours: int) -> Table:
    """Create the table, or add new columns; `schema` is Spark's JSON, which is also Delta's.

    Raises:
        ConfigError: an existing column has another type.
    """
    from deltalake import DeltaTable, Schema

    wanted = Schema.from_json(schema)
    columns = tuple((field["name"], _kind(field["type"])) for field in json.loads(schema)["fields"])
    table, uri = _table_of(name, columns), table_uri(root, name)
    if not DeltaTable.is_deltatable(uri):
        properties = dict(table.properties(log_retention_hours=log_retention_hours))
        DeltaTable.create(
            uri, schema=wanted, partition_by=list(table.partitioned_by), name=name, description=table.comment,
            configuration=properties,
        )  # fmt: skip
        return table
    refuse_other_types(root, name, schema)
    stored = DeltaTable(uri)
    known = {field.name for field in stored.schema().fields}
    if new := [field for field in wanted.fields if field.name not in known]:
        stored.alter.add_columns(new)
    return Table(table.name, table.comment, table.columns, table.statistics, tuple(stored.metadata().partition_columns))


def refuse_other_types(root: str, name: str, schema: str, *, other_fix: str | None = None) -> None:
    """Reject a definition in which a column has another type than in the table. Columns may be missing or new.

    Args:
        root: root of the tables.
        name: name of the table.
        schema: schema of the new rows, as Spark's JSON.
        other_fix: next step that creates the table again; by default, drop the stream.

    Raises:
        ConfigError: a type differs; the text names the column, both types and the next step.
    """
    from deltalake import DeltaTable, Schema

    if not DeltaTable.is_deltatable(uri := table_uri(root, name)):
        return
    stored, wanted = _types(DeltaTable(uri).schema().to_json()), _types(Schema.from_json(schema).to_json())
    for column, kind in wanted.items():
        if stored.get(column, kind) != kind:
            fix = (
                other_fix or f"drop the stream without --keep-table and apply it again (`tidegate streams drop {name}`)"
            )
            msg = (
                f"Column {column} of the table {name} is {_kind(stored[column])}, but the statement gives {_kind(kind)}; a "
                f"table's column keeps its type. CAST it back to {_kind(stored[column])}, or {fix}."
            )
            raise ConfigError(msg)


def _types(schema: str) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in json.loads(table_schema(schema))["fields"]}


def _kind(kind: Any) -> str:
    names = {"long": "bigint", "integer": "int"}
    return names.get(kind, kind) if isinstance(kind, str) else json.dumps(kind)


def table_schema(schema: str) -> str:
    """Return a schema without Spark's metadata and with nullable columns only, as later definitions may leave columns out."""
    return json.dumps(_relaxed(json.loads(schema)))


def _relaxed(kind: Any) -> Any:
    if not isinstance(kind, dict):
        return kind
    relaxed = {key: _relaxed(value) for key, value in kind.items()}
    if "fields" in relaxed:
        fields = [{**_relaxed(field), "nullable": True, "metadata": {}} for field in kind["fields"]]
        relaxed["fields"] = fields
    for key in ("containsNull", "valueContainsNull"):
        if key in relaxed:
            relaxed[key] = True
    return relaxed


def time_expression(schema: "StructType", name: str = "the stream") -> tuple[str, str]:
    """Return the time column and the SQL of its time: a window's start, else event_time, else the first timestamp.

    Raises:
        ConfigError: no column is a timestamp.
    """
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    for column, kind in kinds.items():
        if kind.startswith("struct<start:timestamp,end:timestamp"):
            return column, f"`{column}`.start"
    times = [column for column, kind in kinds.items() if kind == "timestamp"]
    for column in (*_TIMES, *times):
        if column in times:
            return column, f"`{column}`"
    message = f"{name} has no column with a time, so the rows since --since cannot be found; add event_time."
    raise ConfigError(message)


def delete_table(writer: WriterContext, name: str) -> None:
    """Delete the table with its log, and Delta's cached state of it; do nothing if it does not exist.

    Raises:
        TidegateError: it is not a stream's table, but one of Tidegate's own.
    """
    if name in ALL_TABLES:
        message = f"{name} is not the table of a stream."
        raise TidegateError(message)
    uri = table_uri(writer.root, name)
    shutil.rmtree(to_path(uri), ignore_errors=True)
    jvm: Any = writer.spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(uri)
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(writer.spark._jsparkSession, path)

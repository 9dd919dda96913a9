"""The Delta table of a stream's output: its definition, allowed changes, time column and deletion."""

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
    """The definition of a stream's table: partitioned by `date` where the output has such a day."""
    plain = [column for column, kind in columns if kind in _PLAIN]
    return Table(
        name=name,
        comment="Output of a SQL-defined stream: `tidegate streams ls`.",
        columns=tuple(Column(column, kind, "") for column, kind in columns),
        statistics=tuple(plain[:8]),
        partitioned_by=("date",) if ("date", "date") in columns else (),
    )


def ensure_table(root: str, name: str, schema: str, *, log_retention_hours: int) -> Table:
    """Make the table, or add the columns that are new; `schema` is Spark's JSON, which is Delta's too.

    Raises:
        ConfigError: a column that is there has another type.
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
    """Refuse a definition whose column has another type than the table's column of that name; its other columns may differ.

    Args:
        root: of the tables.
        name: of the table.
        schema: what is to be written, as Spark's JSON.
        other_fix: how to create the table again, if not by dropping the stream.

    Raises:
        ConfigError: names the column, both types and what to do.
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
    """A schema without Spark's private metadata, everything nullable: what a later definition writes may lack columns."""
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
    """The column and the SQL that gives its time: a window's start, else event_time, else the first time there is.

    Raises:
        ConfigError: no column is a time.
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
    """Delete the table with its log, and Delta's cached state of it; nothing happens if it does not exist.

    Raises:
        TidegateError: it is a table of Tidegate itself.
    """
    if name in ALL_TABLES:
        message = f"{name} is not the table of a stream."
        raise TidegateError(message)
    uri = table_uri(writer.root, name)
    shutil.rmtree(to_path(uri), ignore_errors=True)
    jvm: Any = writer.spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(uri)
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(writer.spark._jsparkSession, path)

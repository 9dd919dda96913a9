"""Find the column of a stream's output that holds its time, for `rewind --since`."""

from typing import TYPE_CHECKING

from ingest.contract.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["time_expression"]

_KNOWN = ("event_time", "window_start", "received_at", "kafka_time")


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
    for column in (*_KNOWN, *times):
        if column in times:
            return column, f"`{column}`"
    message = f"{name} has no column with a time, so the rows since --since cannot be found; add event_time."
    raise ConfigError(message)

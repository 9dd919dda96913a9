"""Deletes a stream's table: its files, and Delta's cached state of its log."""

import shutil
from typing import Any

from ingest.contract.errors import TidegateError
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.paths import table_uri, to_path
from streaming.writer_context import WriterContext

__all__ = ["delete_table"]


def delete_table(writer: WriterContext, name: str) -> None:
    """Delete the table with its log; nothing happens if it does not exist.

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

"""SQL over Arrow tables for comparisons outside of Spark: one small DuckDB with a single thread."""

import shutil
import tempfile
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowSql"]


class ArrowSql:
    """DuckDB connection with a single thread, because Spark has the cores. Not thread-safe."""

    def __init__(self, memory: str = "256MB", *, spills: bool = False) -> None:
        """`memory` is its limit; `spills`: what does not fit goes to a folder of its own."""
        import duckdb

        config: dict[str, Any] = {"threads": 1, "memory_limit": memory}
        if spills:
            config["temp_directory"] = tempfile.mkdtemp(prefix="tidegate-identities-")
            weakref.finalize(self, shutil.rmtree, config["temp_directory"], ignore_errors=True)
        self._connection = duckdb.connect(config=config)
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET enable_progress_bar = false")  # a log is not a terminal

    def query(self, sql: str, given: dict[str, Any] | None = None, **tables: "pa.Table") -> "pa.Table":
        """The answer to a query over these tables, by their names; `given` are its parameters."""
        for name, table in tables.items():
            self._connection.register(name, table)
        try:
            return self._connection.sql(sql, params=given).to_arrow_table()
        finally:
            for name in tables:  # else a batch stays in memory until the next one
                self._connection.unregister(name)

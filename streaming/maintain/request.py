"""Handler of the request `maintain` of `tidegate maintain`."""

import time
from typing import Any

from ingest.contract.errors import TidegateError
from lakehouse.catalog import table_names
from lakehouse.maintenance_vacuum import check_keep_hours
from lakehouse.requests import Request
from streaming.maintain.table_maintainer import TableMaintainer, maintenance_report
from streaming.writer_context import WriterContext

__all__ = ["maintain"]


def maintain(writer: WriterContext, request: Request) -> dict[str, Any]:
    """Do what is due, or all of it; run twice, the second time finds nothing left to do.

    The request's arguments: `table` (one, else all), `full` (join every small file, write a checkpoint), `dry_run`,
    `keep_hours` (of deleted files and log; the settings' own where None), `drop_days` (drop the days that wait for a person).

    Raises:
        TidegateError: no such table, or `keep_hours` is too short.
    """
    arguments = request.arguments
    table, keep_hours = arguments.get("table"), arguments.get("keep_hours")
    names = table_names(writer.root)
    if table is not None and table not in names:
        message = f"There is no table {table}. Name one of {', '.join(names)}."
        raise TidegateError(message)
    if keep_hours is not None:
        check_keep_hours(keep_hours)
    keeper, began = TableMaintainer(writer), time.monotonic()
    tables = [
        maintenance_report(
            keeper.run_all(
                name,
                full=bool(arguments.get("full")),
                keep_hours=keep_hours,
                dry_run=bool(arguments.get("dry_run")),
                drop_days=bool(arguments.get("drop_days")),
            )
        )
        for name in ([table] if table else names)
    ]
    return {"tables": tables, "seconds": round(time.monotonic() - began, 3), "dry_run": bool(arguments.get("dry_run"))}

"""What an erasure would remove, table by table. Changes nothing, and needs no JVM."""

from typing import Any

from lakehouse.catalog import columns_of, table_names
from lakehouse.query import run_sql
from lakehouse.sql_text import sql_text
from lakehouse.tables import TABLES
from streaming.history.plan import require_device
from streaming.history.selection import Selection, matches

__all__ = ["erasable", "plan_erasure", "unnamed_letters"]


def plan_erasure(root: str, device: str) -> dict[str, Any]:
    """Per table the rows and files that hold the device, and what a person should look at.

    Raises:
        TidegateError: no table knows the device.
    """
    require_device(root, device)
    hot, rest, unlooked = erasable(root)
    found = {name: matches(root, name, Selection(device)) for name in (*hot, *rest)}
    return {
        "tables": {name: {"rows": match.row_count, "files": len(match.files)} for name, match in found.items()},
        "without_device_column": unlooked,
        "letters_that_may_be_its": unnamed_letters(root, device),
    }


def erasable(root: str) -> tuple[list[str], list[str], list[str]]:
    """The hot path's tables, the others with a column `device`, and those without one."""
    found = table_names(root)
    names = [name for name in found if name not in TABLES]
    named = [name for name in names if any(column.name == "device" for column in columns_of(root, name))]
    return [name for name in TABLES if name in found], named, [name for name in names if name not in named]


def unnamed_letters(root: str, device: str) -> int:
    """Dead letters of no known device whose topic or text holds the device's id: whose they are is for a person to say."""
    text = sql_text(device)
    sql = (
        "select count(*) as n from dead_letters where device is null and "  # noqa: S608
        f"(contains(mqtt_topic, {text}) or contains(payload_text, {text}))"
    )
    return int(run_sql(root, sql)["n"][0].as_py())

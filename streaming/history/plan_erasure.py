"""What an erasure would remove, table by table. Changes nothing, and needs no JVM."""

from typing import Any

from lakehouse.catalog import columns_of, table_names
from lakehouse.tables import DEAD_LETTERS, TABLES
from streaming.history.letters import find_naming
from streaming.history.plan import require_device
from streaming.history.selection import Selection, matches

__all__ = ["erasable", "plan_erasure"]


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
        "letters_to_cut": find_naming(root, device)[1].count if DEAD_LETTERS.name in hot else 0,
    }


def erasable(root: str) -> tuple[list[str], list[str], list[str]]:
    """The hot path's tables, the others with a column `device`, and those without one."""
    found = table_names(root)
    names = [name for name in found if name not in TABLES]
    named = [name for name in names if any(column.name == "device" for column in columns_of(root, name))]
    return [name for name in TABLES if name in found], named, [name for name in names if name not in named]

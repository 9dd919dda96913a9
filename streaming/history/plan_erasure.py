"""Preview of an erasure, table by table. It changes nothing, and needs no JVM."""

from typing import Any

from lakehouse.catalog import columns_of, table_names
from lakehouse.tables import DEAD_LETTERS, TABLES
from streaming.history.naming_letters import find_naming
from streaming.history.plan_correction import require_device
from streaming.history.selection import RowSelection, find_matches

__all__ = ["erasable", "plan_erasure", "selection_of"]


def plan_erasure(root: str, device: str) -> dict[str, Any]:
    """Per table the rows and files that hold the device, and what a person should look at.

    Raises:
        TidegateError: no table knows the device.
    """
    require_device(root, device)
    hot, rest, nameless = erasable(root)
    found = {name: find_matches(root, name, selection_of(root, name, device)) for name in (*hot, *rest)}
    return {
        "tables": {name: {"rows": match.row_count, "files": len(match.files)} for name, match in found.items()},
        "without_device_column": nameless,
        "letters_to_cut": find_naming(root, device)[1].count if DEAD_LETTERS.name in hot else 0,
    }


def erasable(root: str) -> tuple[list[str], list[str], list[str]]:
    """The hot path's tables, the others that have a text, and those of them without a column `device`."""
    found = table_names(root)
    names = [name for name in found if name not in TABLES]
    nameless = [name for name in names if all(column.name != "device" for column in columns_of(root, name))]
    searched = [name for name in names if name not in nameless or _texts(root, name)]
    return [name for name in TABLES if name in found], searched, nameless


def selection_of(root: str, name: str, device: str) -> RowSelection:
    """The rows of the device in a table; without a column `device`, those in which any text names it."""
    texts = _texts(root, name)
    return RowSelection(device, named_in=() if "device" in texts else texts)


def _texts(root: str, name: str) -> tuple[str, ...]:
    return tuple(column.name for column in columns_of(root, name) if column.type == "string")

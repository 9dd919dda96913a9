"""Text of other people in our SQL: as bytes, so that nothing in it can be anything but a value."""

import time
from datetime import datetime
from typing import Any

__all__ = ["epoch", "since", "sql_text"]


def sql_text(text: str) -> str:
    """An expression of DuckDB that is this text; it holds digits of a hexadecimal number and nothing of the text itself."""
    return f"decode(unhex('{text.encode('utf-8', 'replace').hex()}'))"


def epoch(value: Any) -> float | None:
    """Epoch seconds of a time of a table."""
    return value.timestamp() if isinstance(value, datetime) else None


def since(seconds: float) -> str:
    """An expression of DuckDB for this long ago: a constant, by which files are left out."""
    return f"make_timestamptz({int((time.time() - seconds) * 1_000_000)})"

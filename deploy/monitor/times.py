"""Times of the tables, from SQL and to it."""

import time
from datetime import datetime
from typing import Any

__all__ = ["epoch", "since"]


def epoch(value: Any) -> float | None:
    """Epoch seconds of a time of a table."""
    return value.timestamp() if isinstance(value, datetime) else None


def since(seconds: float) -> str:
    """An expression of DuckDB for this long ago: a constant, by which files are left out."""
    return f"make_timestamptz({int((time.time() - seconds) * 1_000_000)})"

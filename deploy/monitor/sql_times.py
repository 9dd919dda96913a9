"""Conversion of table times from and to SQL."""

import time
from datetime import datetime
from typing import Any

__all__ = ["epoch_seconds", "since"]


def epoch_seconds(value: Any) -> float | None:
    """Return a table's time in epoch seconds; None for other values."""
    return value.timestamp() if isinstance(value, datetime) else None


def since(seconds: float) -> str:
    """Return a DuckDB expression for the time this long ago; as a constant it lets DuckDB skip files."""
    return f"make_timestamptz({int((time.time() - seconds) * 1_000_000)})"

"""Statistics of data files in the Delta log: which files may have a row.

A file without statistics may have any row. Delta cuts texts to a prefix, so a maximum may be a prefix of the real one. It cuts
times to milliseconds, so a maximum may be up to one millisecond too small (Delta's protocol, per-file statistics).
"""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lakehouse.changes import DataFile

__all__ = ["STEP", "STEP_US", "as_micros", "as_utc", "may_hold_any_text", "may_hold_text", "text_within", "time_span"]

STEP: Final = timedelta(milliseconds=1)
"""A maximum of times may be this much too small."""
STEP_US: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def as_utc(value: Any) -> datetime | None:
    """A time of the statistics (text or datetime; UTC where it names no zone); None where it is not a time."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def as_micros(value: Any) -> int | None:
    """The same in microseconds since the epoch."""
    at = as_utc(value)
    return None if at is None else (at - _EPOCH) // timedelta(microseconds=1)


def time_span(file: "DataFile", column: str) -> tuple[int, int] | None:
    """The first and the last time that a row of the file may have in a column, in microseconds; None where unknown."""
    low, high = as_micros(file.low.get(column)), as_micros(file.high.get(column))
    return None if low is None or high is None else (low, high + STEP_US)


def text_within(low: Any, high: Any, wanted: str) -> bool:
    """A text may lie between these statistics of a column; None is an unknown bound."""
    return low is None or high is None or low <= wanted <= high or (low <= wanted and wanted.startswith(high))


def may_hold_text(file: "DataFile", column: str, wanted: str) -> bool:
    """The file may hold a row with this text in a column."""
    return text_within(file.low.get(column), file.high.get(column), wanted)


def may_hold_any_text(low: str | None, high: str | None, wanted: Sequence[str]) -> bool:
    """A text of the list, which is sorted, may lie between these statistics of a column."""
    if low is None or high is None:
        return True
    at = bisect_left(wanted, low)
    # Texts that begin with the maximum follow it directly in the order, so the first candidate decides.
    return at < len(wanted) and text_within(low, high, wanted[at])

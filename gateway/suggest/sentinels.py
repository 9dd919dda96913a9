"""Numbers that mean a broken or missing sensor, if they are certain for any quantity."""

from typing import Any, Final

__all__ = ["sentinel_of"]

_SURE: Final = frozenset(
    {-127.0, -32768.0, 32767.0, 65535.0, 6553.5, 655.35, -3276.8, 3276.7, -327.68, 327.67, 4294967295.0, 2147483647.0}
    | {-2147483648.0, -999.0, -9999.0, -999.9, 999.9, 9999.0, 99999.0}
)


def sentinel_of(value: Any) -> float | None:
    """Return the sentinel that this is, None if it is a usual value."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
    return number if number in _SURE else None

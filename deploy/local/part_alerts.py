"""Faults that only the supervisor knows: a part that starts again and again or fell back, a disk that fills up.

Everything else is the monitor's to see; these hold when the monitor itself is down.
"""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["part_alerts"]

LOW_DISK_BYTES: Final = 1024**3


def part_alerts(parts: Mapping[str, Mapping[str, Any]], *, disk_free_bytes: int) -> list[dict[str, str]]:
    """Return what a person should look at, each with the next step."""
    found = [
        {"part": name, "text": f"{name}: {(part['detail'] or part['state']).rstrip('.')}. See `tidegate logs {name}`."}
        for name, part in parts.items()
        if part["state"] in ("restarting", "failed") or _was_ready(part)
    ]
    if disk_free_bytes < LOW_DISK_BYTES:
        text = f"Only {disk_free_bytes // 1024**2} MB of disk are free. On a full disk the gateway stops accepting messages."
        found.append({"part": "disk", "text": text})
    return found


def _was_ready(part: Mapping[str, Any]) -> bool:
    """Return whether a part has been ready and is not now, although it was not stopped."""
    return part["state"] == "down" or (part["state"] == "starting" and part.get("seconds") is not None)

"""Rule for silent devices, shared by the fleet's figures, the page of one device and the query for people."""

from typing import Final

__all__ = ["LEAST_LIFE", "LEAST_SILENCE", "MOST_SILENCE", "SHORT_LIFE_SILENCE", "SILENT_DEVICES", "silence_seconds"]

MOST_SILENCE: Final = "greatest(259200, 20 * {interval})"
"""SQL: seconds of silence after which a device counts as switched off and is no longer judged. Three days are longer than a
weekend. The interval counts as well, since a device that sends once a day is silent after five days."""
LEAST_SILENCE: Final = "greatest(60, 5 * {interval})"
"""SQL: seconds without a message after which a device is silent, ..."""
LEAST_LIFE: Final = "greatest(600, 10 * {interval})"
"""... if its messages span at least this many seconds: a device that sent three messages and left has no usual interval."""
SHORT_LIFE_SILENCE: Final = "greatest(3600, 5 * {interval})"
"""SQL: seconds after which a device with a shorter span is silent, an hour or more: most of these fail in their first minutes."""


def silence_seconds(interval: str) -> str:
    """Return SQL for the seconds without a reading after which a device's values are stale; `interval` may be null."""
    return f"CASE WHEN {interval} > 0 THEN {LEAST_SILENCE.format(interval=interval)} ELSE 3600 END"


_INTERVAL: Final = {"interval": "interval_learned_s"}
SILENT_DEVICES: Final = (
    "SELECT device, last_seen, interval_learned_s, last_rejected_because FROM devices "  # noqa: S608 - constants
    f"WHERE epoch(now()) - epoch(last_seen) < {MOST_SILENCE.format(**_INTERVAL)} "
    f"AND epoch(now()) - epoch(last_seen) > CASE WHEN interval_learned_s > 0 "
    f"AND epoch(last_seen) - epoch(first_seen) >= {LEAST_LIFE.format(**_INTERVAL)} "
    f"THEN {LEAST_SILENCE.format(**_INTERVAL)} ELSE {SHORT_LIFE_SILENCE.format(**_INTERVAL)} END ORDER BY last_seen LIMIT 50"
)
"""Query for people: the silent devices, longest first. It does not exclude outages of the pipeline itself."""

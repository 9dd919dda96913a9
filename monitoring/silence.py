"""When a device counts as silent: one rule for the fleet's figures, for the page of one device and for what people query."""

from typing import Final

__all__ = ["LEAST_LIFE", "LEAST_SILENCE", "MOST_SILENCE", "SHORT_LIFE_SILENCE", "SILENT_DEVICES", "silence_seconds"]

MOST_SILENCE: Final = "greatest(259200, 20 * {interval})"
"""SQL: one without a word for so many seconds counts no more, it was switched off. Three days are longer than a weekend; by the
interval as well, since one that sends once a day is silent after five."""
LEAST_SILENCE: Final = "greatest(60, 5 * {interval})"
"""SQL: more seconds without a word than these are silence, ..."""
LEAST_LIFE: Final = "greatest(600, 10 * {interval})"
"""... of one that was heard over so many seconds at least: what sent three messages and left has no habit that it breaks."""
SHORT_LIFE_SILENCE: Final = "greatest(3600, 5 * {interval})"
"""It is silent after an hour all the same: most of those broke down in their first minutes."""


def silence_seconds(interval: str) -> str:
    """SQL: after so many seconds without a reading its values are out of date; `interval` may be null."""
    return f"CASE WHEN {interval} > 0 THEN {LEAST_SILENCE.format(interval=interval)} ELSE 3600 END"


_INTERVAL: Final = {"interval": "interval_learned_s"}
SILENT_DEVICES: Final = (
    "SELECT device, last_seen, interval_learned_s, last_rejected_because FROM devices "  # noqa: S608 - constants
    f"WHERE epoch(now()) - epoch(last_seen) < {MOST_SILENCE.format(**_INTERVAL)} "
    f"AND epoch(now()) - epoch(last_seen) > CASE WHEN interval_learned_s > 0 "
    f"AND epoch(last_seen) - epoch(first_seen) >= {LEAST_LIFE.format(**_INTERVAL)} "
    f"THEN {LEAST_SILENCE.format(**_INTERVAL)} ELSE {SHORT_LIFE_SILENCE.format(**_INTERVAL)} END ORDER BY last_seen LIMIT 50"
)
"""For people: those that count as silent, longest first (while all of the way is well: an outage of ours counts here)."""

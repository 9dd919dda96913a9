"""When a device counts as silent: one rule for the fleet's figures, for the page of one device and for what people query."""

from typing import Final

__all__ = ["LEAST_LIFE", "LEAST_SILENCE", "MOST_SILENCE", "SILENT_DEVICES"]

MOST_SILENCE: Final = "greatest(259200, 20 * {interval})"
"""SQL: one without a word for so many seconds counts no more, it was switched off. Three days are longer than a weekend; by the
interval as well, since one that sends once a day is silent after five."""
LEAST_SILENCE: Final = "greatest(60, 5 * {interval})"
"""SQL: more seconds without a word than these are silence, ..."""
LEAST_LIFE: Final = "greatest(600, 10 * {interval})"
"""... of one that was heard over so many seconds at least: what sent three messages and left has no habit that it breaks."""

_INTERVAL: Final = {"interval": "interval_learned_s"}
SILENT_DEVICES: Final = (
    "SELECT device, last_seen, interval_learned_s, last_rejected_because FROM devices "  # noqa: S608 - constants
    f"WHERE interval_learned_s > 0 AND epoch(now()) - epoch(last_seen) < {MOST_SILENCE.format(**_INTERVAL)} "
    f"AND epoch(now()) - epoch(last_seen) > {LEAST_SILENCE.format(**_INTERVAL)} "
    f"AND epoch(last_seen) - epoch(first_seen) >= {LEAST_LIFE.format(**_INTERVAL)} ORDER BY last_seen LIMIT 50"
)
"""For people: those that count as silent, longest first (while all of the way is well: an outage of ours counts here)."""

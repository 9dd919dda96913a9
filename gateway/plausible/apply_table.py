"""Table of numbers that no sensor measured, applied to the readings of a message of any format."""

from typing import Final

from gateway.decoders.shape import Decoded, RouteMatch
from gateway.decoders.values import BEYOND_DOUBLE
from gateway.plausible.table import PlausibilityChecks, PlausibilityEntry
from gateway.reading_path import native_batch, reading_path, show_reading
from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import Reason

__all__ = ["IMPLAUSIBLE", "SENTINEL", "sift_readings"]

SENTINEL: Final = "sentinel"
"""Flag of a number that is a device's code for a missing value."""
IMPLAUSIBLE: Final = "implausible"
"""Flag of a number outside the range of its quantity, if that is not certain."""


def sift_readings(decoded: Decoded, match: RouteMatch, table: PlausibilityChecks) -> None:
    """Move readings that are not measurements to `rejects`, one by one, and flag doubtful ones."""
    refused: dict[int, PlausibilityEntry] = {}
    known = table.known
    for reading in decoded.readings:
        value = reading.value
        if value is None:
            continue
        try:
            watch = known[reading.unit][reading.metric]
        except KeyError:
            watch = table.watch(reading.metric, reading.unit)
        # Like `Watch.passes`, without a call for the usual reading.
        if (watch.low <= value <= watch.high and value not in watch.codes) or _is_boolean(reading):
            continue
        found = watch.judge(value)
        if found is None:
            continue
        entry, action = found
        if action == "refuse":
            refused[id(reading)] = entry
        else:
            reading.flags = [*(reading.flags or ()), IMPLAUSIBLE if entry.is_range else SENTINEL]
    if not refused:
        return
    is_batch = native_batch(decoded, match)
    decoded.rejects = [
        *decoded.rejects,
        *(
            _reject(reading_path(match, reading, is_batch=is_batch), reading, refused[id(reading)])
            for reading in decoded.readings
            if id(reading) in refused
        ),
    ]
    decoded.readings = [reading for reading in decoded.readings if id(reading) not in refused]


def _is_boolean(reading: Reading) -> bool:
    return reading.text is not None and BEYOND_DOUBLE not in (reading.flags or ())


def _reject(path: str, reading: Reading, entry: PlausibilityEntry) -> Reject:
    reason = Reason.OUT_OF_RANGE if entry.is_range else Reason.BAD_NUMBER
    wanted = f"a measurement, not {entry.means}; or a profile with `accept`"
    return Reject(reason, path, f"{show_reading(reading)} ({entry.name})", show_text(wanted))

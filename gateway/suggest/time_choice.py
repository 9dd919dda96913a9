"""Choice of the measurement's time among the times of a message, and its sentence for a person."""

from collections.abc import Iterable
from typing import Final

from gateway.suggest.fields import SampleField
from gateway.suggest.time_fields import FoundTime, looks_like_time, may_be_time

__all__ = ["choose_time", "no_time_note", "time_note"]

_FORMAT_WORDS: Final = {
    "s": "epoch seconds",
    "ms": "epoch milliseconds",
    "us": "epoch microseconds",
    "ns": "epoch nanoseconds",
    "min": "epoch minutes",
    "rfc3339": "ISO 8601 with an offset",
    "local": "ISO 8601 without an offset",
}


def choose_time(times: Iterable[FoundTime], zone: str | None) -> FoundTime | None:
    """Return the first time of no other event; one without an offset only if its zone is known or there is no other.

    Of an interval with both ends it is the end, when the values were known.
    """
    known = list(times)
    usual = [one for one in known if not one.of_event]
    if not usual and any(one.begins for one in known):
        usual = [one for one in known if one.ends]
    return next((one for one in usual if zone is not None or not one.local), next(iter(usual), None))


def time_note(chosen: FoundTime, zone: str | None) -> str:
    """Return the note on a chosen time."""
    if chosen.local and zone is None:
        shown = " ".join(str(one.first) for one in chosen.fields)
        return f"time: {chosen.name} has no offset ({shown}); name its zone with --zone, else the receive time is used"
    where = f", in zone {zone if chosen.local else chosen.zone}" if chosen.local or chosen.zone else ""
    return f"time: {chosen.name} ({_FORMAT_WORDS.get(chosen.format, f'written {chosen.format}')}{where})"


def no_time_note(free: Iterable[SampleField], times: Iterable[FoundTime]) -> str:
    """Return the note on the time that counts if none was chosen; `times` are those of other events."""
    said = {one.steps for time in times for one in time.fields}
    for one in free:
        if one.steps not in said and (looks_like_time(one) or may_be_time(one)):
            return (
                f"time: {one.name} ({one.first}) looks like a time in an unknown format; "
                "the receive time is used until `time` names it"
            )
    return "time: the receive time for values without their own time, because the message has no time field"

"""Which of the times of a message is that of the measurement, and how that is said to a person."""

from collections.abc import Iterable
from typing import Final

from gateway.suggest.fields import Field
from gateway.suggest.times import FoundTime, looks_like_time, may_be_time

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
    """The first that is no other event's; one without an offset only where its zone is known or there is no other.

    Of an interval that has both it is the end: then the values were known.
    """
    known = list(times)
    usual = [one for one in known if not one.of_event]
    if not usual and any(one.begins for one in known):
        usual = [one for one in known if one.ends]
    return next((one for one in usual if zone is not None or not one.local), next(iter(usual), None))


def time_note(chosen: FoundTime, zone: str | None) -> str:
    """What a chosen time is."""
    if chosen.local and zone is None:
        shown = " ".join(str(one.first) for one in chosen.fields)
        return f"time: {chosen.name} has no offset ({shown}); name its zone with --zone, else the receive time counts"
    where = f", in zone {zone if chosen.local else chosen.zone}" if chosen.local or chosen.zone else ""
    return f"time: {chosen.name} ({_FORMAT_WORDS.get(chosen.format, f'written {chosen.format}')}{where})"


def no_time_note(free: Iterable[Field], times: Iterable[FoundTime]) -> str:
    """What counts where no time was chosen; `times` are those of other events."""
    said = {one.steps for time in times for one in time.fields}
    for one in free:
        if one.steps not in said and (looks_like_time(one) or may_be_time(one)):
            return (
                f"time: {one.name} ({one.first}) looks like a time in a spelling of its own; "
                "the receive time counts until `time` names it"
            )
    return "time: the receive time for values without one of their own, since no field of the message says it"

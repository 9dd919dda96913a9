"""Backlog above capacity: how far a pipeline falls behind an open loop, from due times and arrival times. Pure."""

import bisect
import statistics
from collections.abc import Sequence
from typing import Final

__all__ = ["schedule_delay_figures"]

_PART: Final = 5
"""The delay of the first fifth of the messages is compared with that of the last fifth."""


def schedule_delay_figures(
    due: Sequence[float], seen: Sequence[float | None], *, earlier: Sequence[float] = ()
) -> dict[str, float]:
    """Figures of one run; nothing where no message was seen.

    Args:
        due: seconds, ascending.
        seen: seconds, of the same messages; None of one that never came.
        earlier: when messages that were due before these were seen, such as those of a warm-up.

    Returns:
        `messages_per_second` of all that were seen from the first due message to the last one of them that was seen (a warm-up
        may have left a backlog, which comes first); `backlog_at_end`: messages that were due
        and not seen when the last one was due; `drain_seconds` from then to the last one seen, at least 0;
        `delay_growth_ms_per_second`: how much longer a message takes each second (about 0 where the pipeline keeps up, and
        nothing of so short a run that the fifths are one moment).
    """
    came = sorted(at for at in seen if at is not None)
    if not came:
        return {}
    seconds = came[-1] - due[0]
    figures = {
        "backlog_at_end": float(len(due) - bisect.bisect_right(came, due[-1])),
        "drain_seconds": round(max(0.0, came[-1] - due[-1]), 3),
    }
    if seconds > 0:
        count = len(came) + sum(due[0] < at <= came[-1] for at in earlier)
        figures["messages_per_second"] = round(count / seconds, 1)
    delays = [(at, then - at) for at, then in zip(due, seen, strict=True) if then is not None]
    size = max(1, len(delays) // _PART)
    first, last = delays[:size], delays[-size:]
    between = statistics.median(at for at, _ in last) - statistics.median(at for at, _ in first)
    if between > 0:
        growth = statistics.median(delay for _, delay in last) - statistics.median(delay for _, delay in first)
        figures["delay_growth_ms_per_second"] = round(growth / between * 1000, 2)
    return figures

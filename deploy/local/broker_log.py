"""Warnings from mosquitto's own log about clients: a packet above the limit, and two clients with one id.

No figure under `$SYS` names a client, and a device that keeps its queue sends the same packet for ever.
"""

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from gateway.safe_text import show_text

__all__ = ["broker_alerts"]

RECENT_SECONDS: Final = 600.0
CONTENDED_TIMES: Final = 6
"""A client that reconnects over a bad link takes its own session over, but not so often."""
_SHOWN_CLIENTS: Final = 5
_LINE: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d): Client (.+?) (?:"
    r"(disconnected due to oversize packet)|(already connected, closing old connection))\.",
)


def broker_alerts(lines: Iterable[str], *, now: float) -> list[dict[str, str]]:
    """Alerts of the last ten minutes, each with the clients' names and the next step.

    Args:
        lines: the end of the broker's log.
        now: epoch seconds; the log's times are UTC.
    """
    oversize: Counter[str] = Counter()
    contended: Counter[str] = Counter()
    for line in lines:
        found = _LINE.fullmatch(line.strip())
        if found is None or not _is_recent(found[1], now):
            continue
        (oversize if found[3] else contended)[found[2]] += 1
    texts = []
    if oversize:
        texts.append(
            f"In the last 10 minutes the broker refused packets above its limit from {_named(oversize)} and closed the "
            "connections. These packets never arrive, and a device that keeps its queue sends them again without end. Send "
            "smaller packets, or clear the device's queue."
        )
    if fights := Counter({name: times for name, times in contended.items() if times >= CONTENDED_TIMES}):
        texts.append(
            f"Two clients share a client id and took over each other's session in the last 10 minutes: {_named(fights)}. Give "
            "each client its own id."
        )
    return [{"part": "broker", "text": text} for text in texts]


def _is_recent(stamp: str, now: float) -> bool:
    try:
        at = datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return False
    return now - RECENT_SECONDS <= at <= now + 60


def _named(clients: Counter[str]) -> str:
    names = [f"{show_text(name)} ({times} times)" for name, times in clients.most_common(_SHOWN_CLIENTS)]
    more = len(clients) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")

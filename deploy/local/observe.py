"""What the supervisor sees of its parts: rates, latency and alerts from their exporters, every few seconds.

`observe` is pure: scrapes in, figures out. The answer is what `tidegate status --json` prints.
"""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from monitoring.scrape import Scrape, histogram_quantiles, scrape

__all__ = ["Observer", "alerts_of", "latency_ms", "rates"]

RATE_SECONDS: Final = 10.0
LATENCY_SECONDS: Final = 120.0
END_TO_END: Final = "tidegate_end_to_end_latency_seconds"

RATE_METRICS: Final = {
    "received": ("gateway", "tidegate_gateway_messages_received_total"),
    "accepted": ("gateway", "tidegate_gateway_messages_accepted_total"),
    "dead_lettered": ("gateway", "tidegate_gateway_messages_rejected_total"),
    "ignored": ("gateway", "tidegate_gateway_messages_ignored_total"),
    "acknowledged": ("gateway", "tidegate_gateway_messages_acknowledged_total"),
    "rows": ("stream", "tidegate_stream_rows_total"),
}
"""Name in `status` -> (part, counter); each per second."""

Look = Mapping[str, Scrape]


def rates(now: Look, before: Look) -> dict[str, float]:
    """Events per second between two looks; 0 where a part did not answer or started anew."""
    found: dict[str, float] = {}
    for name, (part, metric) in RATE_METRICS.items():
        found[name] = 0.0
        if part in now and part in before:
            elapsed = now[part].at - before[part].at
            grown = now[part].total(metric) - before[part].total(metric)
            found[name] = round(max(0.0, grown) / elapsed, 2) if elapsed > 0 else 0.0
    return found


def latency_ms(now: Look, before: Look) -> dict[str, float | None]:
    """Publish to queryable row, as the canary measured it between the two looks (or since its start)."""
    found = None
    if "canary" in now:
        earlier = before.get("canary")
        if earlier is not None and earlier.total(f"{END_TO_END}_count") > now["canary"].total(f"{END_TO_END}_count"):
            earlier = None
        found = histogram_quantiles(now["canary"], earlier, END_TO_END, (0.5, 0.95, 0.99))
        found = found or histogram_quantiles(now["canary"], None, END_TO_END, (0.5, 0.95, 0.99))
    values = [round(value * 1000) for value in found] if found else [None, None, None]
    return dict(zip(("p50", "p95", "p99"), values, strict=True))


def alerts_of(parts: Mapping[str, Mapping[str, Any]], now: Look, *, disk_free_bytes: int) -> list[dict[str, str]]:
    """What a person should look at, each with the next step."""
    found = [
        {"part": name, "text": f"{name}: {part['detail'] or part['state']}. See `tidegate logs {name}`."}
        for name, part in parts.items()
        if part["state"] in ("restarting", "failed") or _was_ready(part)
    ]
    if "gateway" in now and now["gateway"].total("tidegate_gateway_connected") == 0:
        found.append(
            {"part": "gateway", "text": "No MQTT session: see `tidegate logs gateway` and `tidegate logs broker`."}
        )
    if "gateway" in now and (lost := now["gateway"].total("tidegate_gateway_sessions_lost_total")):
        text = f"The broker forgot the gateway's session ({lost:.0f} times): what it held is gone (see sequence gaps)."
        found.append({"part": "broker", "text": text})
    if disk_free_bytes < 1024**3:
        text = f"Only {disk_free_bytes // 1024**2} MB of disk are free: the gateway stops accepting when it is full."
        found.append({"part": "disk", "text": text})
    return found


def _was_ready(part: Mapping[str, Any]) -> bool:
    """Whether a part has been ready and is not now, though nobody stops it."""
    return part["state"] == "starting" and part.get("seconds") is not None


class Observer:
    """Scrapes the parts and keeps as many looks as the windows need."""

    def __init__(self, metrics_urls: Mapping[str, str]) -> None:
        self._urls = metrics_urls
        self._looks: deque[tuple[float, dict[str, Scrape]]] = deque()

    def look(self) -> dict[str, Any]:
        """Scrape now; the figures of the last seconds."""
        found = {part: scrape(url) for part, url in self._urls.items()}
        now = {part: samples for part, samples in found.items() if samples is not None}
        self._looks.append((time.monotonic(), now))
        while self._looks[0][0] < time.monotonic() - LATENCY_SECONDS:
            self._looks.popleft()
        return {
            "rates": rates(now, self._before(RATE_SECONDS)),
            "latency_ms": latency_ms(now, self._before(LATENCY_SECONDS)),
            "lag": lag_of(now),
            "scrapes": now,
        }

    def _before(self, seconds: float) -> dict[str, Scrape]:
        """The oldest look within the window."""
        since = time.monotonic() - seconds
        return next((look for at, look in self._looks if at >= since), {})


def lag_of(now: Look) -> dict[str, float]:
    """Records in Kafka not yet committed to a table, per topic; empty while the stream does not answer."""
    return now["stream"].by_label("tidegate_stream_offsets_behind", "topic") if "stream" in now else {}

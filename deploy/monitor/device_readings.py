"""Last readings of one device for its page: numbers to plot, and texts joined while they stay the same.

Retained messages are left out: a broker replays them, so they do not come from the device now.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lakehouse.query import run_sql

__all__ = ["RecentReadings", "last_readings", "text_runs"]

SPANS: Final = (3600.0, 86_400.0)
"""Seconds before the device's newest message in which readings are searched: first the short span, then the long one."""
POINTS: Final = 200
METRICS: Final = 12
RUNS: Final = 5
MOST_TEXT: Final = 400
"""Characters shown of a text; `device watch` and SQL show the whole text."""

_READINGS: Final = """
WITH these AS (
    SELECT metric, unit, value, left(text, {characters}) AS text, event_time, received_at, value IS NULL AS is_text, mqtt_topic,
        row_number() OVER (PARTITION BY metric, value IS NULL ORDER BY received_at DESC, "offset" DESC) AS back
    FROM readings WHERE device = {device} AND (value IS NOT NULL OR text IS NOT NULL)
        AND received_at >= make_timestamptz({first}) AND NOT coalesce(list_contains(flags, 'retained'), false)
)
SELECT metric, is_text, arg_max(unit, received_at) AS unit, epoch(max(received_at)) AS received_at,
    list(epoch(event_time) ORDER BY event_time, back DESC) AS at, list(value ORDER BY event_time, back DESC) AS value,
    CASE WHEN is_text THEN list(text ORDER BY event_time, back DESC) ELSE [] END AS text, list(DISTINCT mqtt_topic) AS topics
FROM these WHERE back <= {points} GROUP BY metric, is_text
QUALIFY row_number() OVER (PARTITION BY is_text ORDER BY max(received_at) DESC, metric) <= {metrics}
ORDER BY max(received_at) DESC, metric"""


@dataclass(frozen=True, slots=True)
class RecentReadings:
    """Last readings of a device.

    Attributes:
        metrics: readings with a number: metric, unit, at, value; `at` is in ascending epoch seconds.
        texts: metric, text, first_at, last_at, count; the newest first.
        received_at: receive time of the newest reading; None without any.
        topics: MQTT topics of the messages.
    """

    metrics: list[dict[str, Any]] = field(default_factory=list)
    texts: list[dict[str, Any]] = field(default_factory=list)
    received_at: float | None = None
    topics: frozenset[str] = frozenset()


def last_readings(root: str, quoted: str, heard_at: float | None) -> RecentReadings:
    """Return the last readings of a device, given by its quoted SQL name.

    `heard_at` is a time at or before its last message; without it, search the last hour.
    """
    rows: list[Mapping[str, Any]] = []
    spans, heard_at = (SPANS[:1], time.time()) if heard_at is None else (SPANS, heard_at)
    for span in spans:
        query = _READINGS.format(
            device=quoted,
            first=int((heard_at - span) * 1_000_000),
            points=POINTS,
            metrics=METRICS,
            characters=MOST_TEXT,
        )
        rows = run_sql(root, query).to_pylist()
        if rows and all(len(row["at"]) >= POINTS for row in rows):
            break
    texts = [run for row in rows if row["is_text"] for run in text_runs(row["metric"], row["at"], row["text"])[:RUNS]]
    return RecentReadings(
        [{name: row[name] for name in ("metric", "unit", "at", "value")} for row in rows if not row["is_text"]],
        sorted(texts, key=lambda run: run["last_at"], reverse=True),
        max((row["received_at"] for row in rows), default=None),
        frozenset(topic for row in rows for topic in row["topics"] if topic is not None),
    )


def text_runs(metric: str, at: Iterable[float], texts: Iterable[str]) -> list[dict[str, Any]]:
    """Join equal consecutive texts to runs; the newest run first."""
    return list(_runs(metric, at, texts))[::-1]


def _runs(metric: str, at: Iterable[float], texts: Iterable[str]) -> Iterator[dict[str, Any]]:
    run: dict[str, Any] | None = None
    for moment, text in zip(at, texts, strict=True):
        if run is not None and run["text"] == text:
            run |= {"last_at": moment, "count": run["count"] + 1}
            continue
        if run is not None:
            yield run
        run = {"metric": metric, "text": text, "first_at": moment, "last_at": moment, "count": 1}
    if run is not None:
        yield run

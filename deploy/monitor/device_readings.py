"""The last readings of one device for its page: numbers to plot, and texts as the runs in which they stayed the same.

Retained messages, which a broker replays, are no word of the device: they are left out.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lakehouse.query import run_sql

__all__ = ["LastReadings", "last_readings", "text_runs"]

SPANS: Final = (3600.0, 86_400.0)
"""How far before its newest message a device's readings are looked for: first near, then further."""
POINTS: Final = 200
METRICS: Final = 12
RUNS: Final = 5
MOST_TEXT: Final = 400
"""Characters shown of a text; `device watch` and SQL have all of it."""

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
class LastReadings:
    """What a device told last.

    Attributes:
        metrics: with a number: metric, unit, at, value; `at` is in ascending epoch seconds.
        texts: metric, text, first_at, last_at, count; the newest first.
        received_at: when the newest was received; None without any.
        topics: those that the messages were published to.
    """

    metrics: list[dict[str, Any]] = field(default_factory=list)
    texts: list[dict[str, Any]] = field(default_factory=list)
    received_at: float | None = None
    topics: frozenset[str] = frozenset()


def last_readings(root: str, quoted: str, heard_at: float | None) -> LastReadings:
    """Of the device whose name is this SQL; it was heard at this time or later, or nobody knows it yet: then of the last hour."""
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
    return LastReadings(
        [{name: row[name] for name in ("metric", "unit", "at", "value")} for row in rows if not row["is_text"]],
        sorted(texts, key=lambda run: run["last_at"], reverse=True),
        max((row["received_at"] for row in rows), default=None),
        frozenset(topic for row in rows for topic in row["topics"] if topic is not None),
    )


def text_runs(metric: str, at: Iterable[float], texts: Iterable[str]) -> list[dict[str, Any]]:
    """A text that stays is one run, however often it was told; the newest first."""
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

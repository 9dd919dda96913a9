"""Data of the page of one device, from the tables: its row, silence, ledger, dead letters and last readings.

Queries are bounded in time, so that a large table costs no more. Numbers are points to plot; texts are joined while they stay the
same. Retained messages are left out: a broker replays them, so they do not come from the device now.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.monitor.dead_letters import count_unread, letters_of
from deploy.monitor.left_out_reader import LeftOutReader
from deploy.monitor.silent_devices import HealthyFlowSpans, judged_devices
from deploy.monitor.sql_times import epoch_seconds, since
from ingest.contract.errors import TidegateError
from lakehouse.catalog import table_names
from lakehouse.query import duckdb_literal, run_sql

__all__ = ["RecentReadings", "find_devices", "show_device", "text_runs"]

DAY: Final = 86_400.0
LETTERS: Final = 20
SURELY_HEARD_SECONDS: Final = 60.0
"""No rule counts a device as silent sooner after its last message."""
COUNTS: Final = ("received", "stored", "dead_lettered", "ignored", "duplicate", "gap", "late")

_ROW: Final = """
SELECT device, first_seen, last_seen, interval_learned_s, clock_skew_ms, last_rejected_because, last_rejected_at,
    epoch(now()) - epoch(last_seen) AS silent_seconds
FROM devices WHERE {where} ORDER BY last_seen DESC LIMIT {limit}"""

_SILENT: Final = "{judged} SELECT is_silent FROM judged WHERE device = {device}"

_STALE: Final = "SELECT min(stale_since) AS since FROM latest WHERE device = {device}"

_LEDGER: Final = "SELECT {sums} FROM ledger WHERE device = {device} AND minute >= {since}"

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


def find_devices(root: str, search: str, limit: int) -> dict[str, Any]:
    """Return the devices whose id contains the text, ignoring case; the last seen first."""
    if "devices" not in table_names(root):
        return {"devices": []}
    where = f"contains(lower(device), lower({duckdb_literal(search)}))" if search else "true"
    return {"devices": [_row(row) for row in run_sql(root, _ROW.format(where=where, limit=int(limit))).to_pylist()]}


def show_device(
    root: str, device: str, flow: HealthyFlowSpans, left_out: LeftOutReader | None = None
) -> dict[str, Any]:
    """Return everything that the device's page shows; unknown values are None or empty.

    Args:
        root: the root of the tables.
        device: the device's id.
        flow: the spans in which data reached the tables.
        left_out: the fields that mappings leave out, by route.
    """
    names, quoted, now = table_names(root), duckdb_literal(device), time.time()
    rows: list[Any] = []
    if "devices" in names:
        rows = run_sql(root, _ROW.format(where=f"device = {quoted}", limit=1)).to_pylist()
    row = _row(rows[0]) if rows else None
    readings = (
        _last_readings(root, quoted, row["last_seen"] if row else None) if "readings" in names else RecentReadings()
    )
    letters = letters_of(root, device=device, limit=LETTERS) if "dead_letters" in names else []
    silent = _is_silent(root, quoted, flow) if row else None
    if row:
        _hear(row, [readings.received_at, *(letter["received_at"] for letter in letters[:1])], now)
        silent = silent and row["silent_seconds"] > SURELY_HEARD_SECONDS
    topics = readings.topics | {letter["mqtt_topic"] for letter in letters if letter["mqtt_topic"]}
    return {
        "device": row,
        "left_out": None if left_out is None else left_out.of(topics),
        "metrics": readings.metrics,
        "texts": readings.texts,
        "ledger": _balance(root, quoted) if "ledger" in names else dict.fromkeys(COUNTS),
        "refused_unread": count_unread(root, device, DAY) if "dead_letters" in names else None,
        "dead_letters": letters,
        "silent_seconds": row["silent_seconds"] if row else None,
        "is_silent": silent,
        "stale_since": _stale_since(root, quoted) if "latest" in names else None,
    }


def _hear(row: dict[str, Any], received: Iterable[float | None], now: float) -> None:
    """Use the newest receive time, since `devices` lags one pass behind `readings` and the page shows both."""
    newest = max((at for at in received if at is not None), default=row["last_seen"])
    if newest > row["last_seen"]:
        row |= {"last_seen": newest, "silent_seconds": max(0.0, now - newest)}


def _is_silent(root: str, quoted: str, flow: HealthyFlowSpans) -> bool | None:
    """Return whether the fleet's figures count the device as silent; None if they do not judge it."""
    rows = run_sql(root, _SILENT.format(judged=judged_devices(flow), device=quoted)).to_pylist()
    return rows[0]["is_silent"] if rows else None


def _stale_since(root: str, quoted: str) -> float | None:
    """Return the time since which values of the device are stale; None if none is, or if an older stream writes the table."""
    try:
        rows = run_sql(root, _STALE.format(device=quoted)).to_pylist()
    except TidegateError:
        return None
    return epoch_seconds(rows[0]["since"])


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "device": row["device"],
        "first_seen": epoch_seconds(row["first_seen"]),
        "last_seen": epoch_seconds(row["last_seen"]),
        "silent_seconds": max(0.0, row["silent_seconds"]),
        "interval_s": row["interval_learned_s"],
        "clock_skew_ms": row["clock_skew_ms"],
        "last_rejected_because": row["last_rejected_because"],
        "last_rejected_at": epoch_seconds(row["last_rejected_at"]),
    }


def _balance(root: str, quoted: str) -> dict[str, int]:
    sums = ", ".join(f"coalesce(sum({name}), 0)::BIGINT AS {name}" for name in COUNTS)
    row: dict[str, int] = run_sql(root, _LEDGER.format(sums=sums, device=quoted, since=since(DAY))).to_pylist()[0]
    return row


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


def _last_readings(root: str, quoted: str, heard_at: float | None) -> RecentReadings:
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

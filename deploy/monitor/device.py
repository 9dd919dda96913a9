"""What the page of one device shows, from the tables: bounded in time, so that a large table costs no more than a small one."""

from collections.abc import Mapping
from typing import Any, Final

from deploy.monitor.dead_letters import letters_of
from deploy.monitor.flowing import FlowTime
from deploy.monitor.silence import judged_devices
from deploy.monitor.texts import epoch, since, sql_text
from lakehouse.catalog import table_names
from lakehouse.query import run_sql

__all__ = ["find_devices", "show_device"]

DAY: Final = 86_400.0
SPANS: Final = (3600.0, DAY)
"""How far before its newest message a device's readings are looked for: first near, then further."""
POINTS: Final = 200
METRICS: Final = 12
LETTERS: Final = 20
COUNTS: Final = ("received", "stored", "dead_lettered", "ignored", "duplicate", "gap", "late")

_ROW: Final = """
SELECT device, first_seen, last_seen, interval_learned_s, clock_skew_ms, last_rejected_because, last_rejected_at,
    epoch(now()) - epoch(last_seen) AS silent_seconds
FROM devices WHERE {where} ORDER BY last_seen DESC LIMIT {limit}"""

_SILENT: Final = "{judged} SELECT is_silent FROM judged WHERE device = {device}"

_READINGS: Final = """
WITH these AS (
    SELECT metric, unit, value, event_time, received_at, "offset",
        row_number() OVER (PARTITION BY metric ORDER BY received_at DESC, "offset" DESC) AS back
    FROM readings WHERE device = {device} AND value IS NOT NULL
        AND received_at >= make_timestamptz({first})
)
SELECT metric, arg_max(unit, received_at) AS unit, list(epoch(event_time) ORDER BY event_time) AS at,
    list(value ORDER BY event_time) AS value
FROM these WHERE back <= {points} GROUP BY metric ORDER BY max(received_at) DESC, metric LIMIT {metrics}"""

_LEDGER: Final = "SELECT {sums} FROM ledger WHERE device = {device} AND minute >= {since}"


def find_devices(root: str, search: str, limit: int) -> dict[str, Any]:
    """Devices whose id contains the text, in either case; the newest heard first."""
    if "devices" not in table_names(root):
        return {"devices": []}
    where = f"contains(lower(device), lower({sql_text(search)}))" if search else "true"
    return {"devices": [_row(row) for row in run_sql(root, _ROW.format(where=where, limit=int(limit))).to_pylist()]}


def show_device(root: str, device: str, flow: FlowTime) -> dict[str, Any]:
    """All that its page shows; what is not known of it is None or empty."""
    names, quoted = table_names(root), sql_text(device)
    rows: list[Any] = []
    if "devices" in names:
        rows = run_sql(root, _ROW.format(where=f"device = {quoted}", limit=1)).to_pylist()
    row = _row(rows[0]) if rows else None
    return {
        "device": row,
        "metrics": _metrics(root, quoted, row["last_seen"]) if row and "readings" in names else [],
        "ledger": _balance(root, quoted) if "ledger" in names else dict.fromkeys(COUNTS),
        "dead_letters": letters_of(root, device=device, limit=LETTERS) if "dead_letters" in names else [],
        "silent_seconds": row["silent_seconds"] if row else None,
        "is_silent": _is_silent(root, quoted, flow) if row else None,
    }


def _is_silent(root: str, quoted: str, flow: FlowTime) -> bool | None:
    """Whether the fleet's figures count it as silent; None where it does not count at all."""
    rows = run_sql(root, _SILENT.format(judged=judged_devices(flow), device=quoted)).to_pylist()
    return rows[0]["is_silent"] if rows else None


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "device": row["device"],
        "first_seen": epoch(row["first_seen"]),
        "last_seen": epoch(row["last_seen"]),
        "silent_seconds": max(0.0, row["silent_seconds"]),
        "interval_s": row["interval_learned_s"],
        "clock_skew_ms": row["clock_skew_ms"],
        "last_rejected_because": row["last_rejected_because"],
        "last_rejected_at": epoch(row["last_rejected_at"]),
    }


def _metrics(root: str, quoted: str, last_seen: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for span in SPANS:
        first = int((last_seen - span) * 1_000_000)
        query = _READINGS.format(device=quoted, first=first, points=POINTS, metrics=METRICS)
        found = run_sql(root, query).to_pylist()
        if found and all(len(each["at"]) >= POINTS for each in found):
            break
    return found


def _balance(root: str, quoted: str) -> dict[str, int]:
    sums = ", ".join(f"coalesce(sum({name}), 0)::BIGINT AS {name}" for name in COUNTS)
    row: dict[str, int] = run_sql(root, _LEDGER.format(sums=sums, device=quoted, since=since(DAY))).to_pylist()[0]
    return row

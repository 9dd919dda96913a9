"""The probe `tables`: figures of the fleet from `devices` and `ledger`: silent devices, top senders, rejections.

The probe reads both without a JVM, in two scans, and leaves out the canary. After a look it pauses for twenty times the look's
CPU time, so that it never takes more than a twentieth of one core, however large the fleet is.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from deploy.monitor.silent_devices import HealthyFlowSpans, judged_devices
from deploy.monitor.sql_times import since
from ingest.contract.errors import TidegateError, UnavailableError
from lakehouse.query import duckdb_literal, run_sql
from monitoring.metrics.families import Samples

__all__ = ["FleetProbe"]

TOP: Final = 20
LEDGER_SECONDS: Final = 3600
MOST_SHARE: Final = 0.05
OUTCOMES: Final = ("stored", "dead_lettered", "ignored", "duplicate")
SKEW_MS: Final = 60_000
NEWS_SECONDS: Final = 3600
CLEAN_SECONDS: Final = 25 * 3600

_DEVICES: Final = """
{judged}
, fleet AS (
    SELECT *, silent_seconds < 86400 AND abs(clock_skew_ms) > {skew} AS is_skewed FROM judged WHERE device <> {canary}
)
SELECT count(*) AS known, count(is_silent) AS heard,
    count(*) FILTER (silent_seconds < 3600) AS active,
    count(*) FILTER (is_silent) AS silent_count, count(*) FILTER (is_skewed) AS skewed_count,
    arg_max({{'device': device, 'last_seen': seen, 'silent_seconds': silent_seconds, 'interval_s': interval_s}},
        silent_seconds, {top}) FILTER (is_silent) AS silent,
    arg_max({{'device': device, 'clock_skew_ms': clock_skew_ms}}, abs(clock_skew_ms), {top}) FILTER (is_skewed) AS skewed
FROM fleet"""

_LEDGER: Final = """
WITH per AS (
    SELECT device, sum(received)::BIGINT AS received, sum(dead_lettered)::BIGINT AS refused, sum(gap)::BIGINT AS gap,
        sum(late) FILTER (settled) AS late, sum(stored) FILTER (settled) AS stored,
        sum(dead_lettered) FILTER (settled) AS dead_lettered, sum(ignored) FILTER (settled) AS ignored,
        sum(duplicate) FILTER (settled) AS duplicate
    FROM ledger WHERE minute >= {since} AND device <> {canary} GROUP BY device
)
SELECT sum(stored)::BIGINT AS stored, sum(dead_lettered)::BIGINT AS dead_lettered, sum(ignored)::BIGINT AS ignored,
    sum(duplicate)::BIGINT AS duplicate, sum(gap)::BIGINT AS gap, sum(late)::BIGINT AS late,
    arg_max({{'device': device, 'received': received}}, received, {top}) FILTER (device <> '') AS talkers,
    arg_max({{'device': device, 'dead_lettered': refused}}, refused, {top}) FILTER (refused > 0 AND device <> '') AS offenders
FROM per"""

_REFUSED: Final = """
WITH pairs AS (
    SELECT device, reason, min(received_at) AS first, count(*) AS messages
    FROM dead_letters WHERE date >= ({clean})::DATE AND received_at >= {clean} AND retain IS NOT TRUE
        AND device IS DISTINCT FROM {canary}
    GROUP BY device, reason
)
SELECT count(*) AS newly_refused_count,
    arg_max({{'device': device, 'reason': reason, 'messages': messages, 'first_at': epoch(first)}}, first, {top}) AS newly_refused
FROM pairs WHERE first >= {news}"""

_LATEST: Final = """
SELECT count(*) AS values_known, count(stale_since) AS values_stale FROM latest WHERE device <> {canary}"""

_REASONS: Final = "SELECT device, last_rejected_because FROM devices WHERE device IN ({devices})"

logger = logging.getLogger("tidegate.deploy.monitor")


class FleetProbe:
    """Probe that reads the tables at each look, except during its pauses.

    Args:
        root: the root of the tables.
        flow: the spans in which data reached the tables; only in these does a device's silence count.
    """

    def __init__(self, root: str, flow: HealthyFlowSpans) -> None:
        self._root, self._flow = root, flow
        self._not_before = 0.0
        self._samples: Samples = {}
        self.devices: Mapping[str, Any] = {}

    def look(self) -> Samples:
        """Return the families of the probe and set `devices`, the data for the page.

        Raises:
            TidegateError: a table cannot be read.
        """
        if time.monotonic() < self._not_before:
            return self._samples
        spent = time.process_time()
        try:
            devices, hour, values = self._ask_devices(), self._ask_ledger(), self._ask_latest()
            refused = self._ask_refused()
        except UnavailableError:
            if _has_tables(self._root):
                raise
            devices, hour, values, refused = None, None, None, None
        self._not_before = time.monotonic() + (time.process_time() - spent) / MOST_SHARE
        self.devices = {**_shown(devices), **_shown_hour(hour), **(values or {}), **_shown_refused(refused)}
        self._samples = {**_device_samples(devices), **_hour_samples(hour), **_refused_samples(refused)}
        return self._samples

    def _ask_devices(self) -> Mapping[str, Any] | None:
        from deploy.local.canary_probe import DEVICE

        query = _DEVICES.format(
            canary=duckdb_literal(DEVICE),
            judged=judged_devices(self._flow),
            skew=SKEW_MS,
            top=TOP,
        )
        return self._row("devices", query)

    def _ask_ledger(self) -> Mapping[str, Any] | None:
        from deploy.local.canary_probe import DEVICE

        query = _LEDGER.format(since=since(LEDGER_SECONDS), canary=duckdb_literal(DEVICE), top=TOP)
        found = self._row("ledger", query)
        if found is None:
            return None
        offenders = found["offenders"] or []
        reasons = self._reasons([each["device"] for each in offenders])
        named = [{**each, "reason": reasons.get(each["device"])} for each in offenders]
        return {**found, "offenders": named}

    def _ask_refused(self) -> Mapping[str, Any] | None:
        """Return the devices with rejections for a reason that they did not have in the day before."""
        from deploy.local.canary_probe import DEVICE

        query = _REFUSED.format(
            canary=duckdb_literal(DEVICE), clean=since(CLEAN_SECONDS), news=since(NEWS_SECONDS), top=TOP
        )
        return self._row("dead_letters", query)

    def _ask_latest(self) -> Mapping[str, Any] | None:
        """Return the number of values and how many of them are stale; None if an older stream writes the table."""
        from deploy.local.canary_probe import DEVICE

        try:
            return self._row("latest", _LATEST.format(canary=duckdb_literal(DEVICE)))
        except TidegateError as error:
            logger.debug("the table latest cannot be queried: %s", error)
            return None

    def _reasons(self, devices: list[str]) -> dict[str, str]:
        if not devices or "devices" not in _names(self._root):
            return {}
        query = _REASONS.format(devices=", ".join(map(duckdb_literal, devices)))
        return {
            row["device"]: row["last_rejected_because"] for row in run_sql(self._root, query, person=False).to_pylist()
        }

    def _row(self, table: str, query: str) -> Mapping[str, Any] | None:
        if table not in _names(self._root):
            return None
        row: dict[str, Any] = run_sql(self._root, query, person=False).to_pylist()[0]
        return row


def _names(root: str) -> list[str]:
    from lakehouse.catalog import table_names

    return table_names(root)


def _has_tables(root: str) -> bool:
    try:
        return bool(_names(root))
    except (OSError, TidegateError):
        return False


def _shown(found: Mapping[str, Any] | None) -> dict[str, Any]:
    if found is None:
        return {}
    counts = {name: found[name] for name in ("known", "heard", "active", "silent_count", "skewed_count")}
    return {**counts, "silent": found["silent"] or [], "skewed": found["skewed"] or []}


def _shown_hour(found: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if found is None else {"talkers": found["talkers"] or [], "offenders": found["offenders"] or []}


def _shown_refused(found: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if found is None else {"newly_refused": found["newly_refused"] or []}


def _refused_samples(found: Mapping[str, Any] | None) -> dict[str, list[tuple[tuple[str, ...], float]]]:
    return {} if found is None else {"tidegate_devices_newly_refused": [((), float(found["newly_refused_count"]))]}


def _device_samples(found: Mapping[str, Any] | None) -> dict[str, list[tuple[tuple[str, ...], float]]]:
    if found is None:
        return {}
    counts = {
        "known": "known",
        "heard": "heard",
        "active": "active",
        "silent": "silent_count",
        "skewed": "skewed_count",
    }
    return {f"tidegate_devices_{name}": [((), float(found[column]))] for name, column in counts.items()}


def _hour_samples(found: Mapping[str, Any] | None) -> dict[str, list[tuple[tuple[str, ...], float]]]:
    if found is None:
        return {}
    return {
        "tidegate_ledger_messages": [((outcome,), float(found[outcome] or 0)) for outcome in OUTCOMES],
        "tidegate_ledger_gap_messages": [((), float(found["gap"] or 0))],
        "tidegate_ledger_late_messages": [((), float(found["late"] or 0))],
    }

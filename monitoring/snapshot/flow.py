"""Path of the data as six stations, each with its figures and its state.

A station is bad as soon as its part does not answer or is not ready. An alert about a station makes it at least a warning.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from monitoring.metrics.buckets import LATENCY_BUCKETS
from monitoring.sample_history import History
from monitoring.snapshot.kafka_figures import kafka_rate, lag
from monitoring.snapshot.snapshot_inputs import KafkaNames, SnapshotInputs
from monitoring.snapshot.sums import finite, is_silent, total
from monitoring.targets import JVMS

__all__ = ["METRICS", "flow", "parts_of"]

LATENCY_SECONDS: Final = 120.0
BEHIND_SECONDS: Final = 60.0
_IN_FLIGHT: Final = "tidegate_gateway_inflight_messages"
_CONNECTED: Final = "tidegate_gateway_connected"
_HOLDERS: Final = "tidegate_gateway_lease_held"
_STANDBYS: Final = "tidegate_gateway_standby_waiting"
_CLIENTS: Final = "broker_clients_connected"
_PUBLISHED: Final = "broker_publish_messages_received"
_DROPPED: Final = "broker_publish_messages_dropped"
_BROKER: Final = "tidegate_broker_reachable"
_KAFKA: Final = "tidegate_kafka_reachable"
_LAG_SECONDS: Final = "tidegate_kafka_lag_seconds"
_BATCH: Final = "tidegate_stream_batch_duration_seconds"
_UP: Final = "up"

METRICS: Final = frozenset(
    {
        _LAG_SECONDS,
        _IN_FLIGHT,
        _CONNECTED,
        _HOLDERS,
        _STANDBYS,
        _CLIENTS,
        _PUBLISHED,
        _DROPPED,
        _BROKER,
        _KAFKA,
        f"{_BATCH}_bucket",
        f"{_BATCH}_count",
    }
)

Figure = dict[str, Any]
Verdict = tuple[str, str]
"""(state, detail) of a station."""

JVM_JOBS: Final = tuple(f"tidegate-{part}" for part in JVMS)
STATES: Final = ("unknown", "ok", "warn", "bad")
_HELD: Final = {"critical": "bad", "warning": "warn"}
PARTS: Final = {
    "devices": ("devices", "fleet"),
    "broker": ("broker",),
    "gateway": ("gateway",),
    "kafka": ("kafka", "topics"),
    "stream": ("stream", "spark"),
    "tables": ("tables", "disk", "canary"),
}
"""Station -> parts whose alerts are shown there."""


def parts_of(memory: History, side: SnapshotInputs) -> dict[str, dict[str, Any]]:
    """Return every part with its state: from its supervisor, or else by its answers."""
    if side.parts is not None:
        return {name: {key: part.get(key) for key in ("state", "since", "detail")} for name, part in side.parts.items()}
    found = {}
    for job, address in side.targets.items():
        if job in JVM_JOBS:
            continue  # a JVM may run without the agent
        answers = memory.latest(_UP, job=job).values()
        found[job.removeprefix("tidegate-")] = _part(min(answers, default=None), f"{address} does not answer")
    for name, metric in (("broker", _BROKER), ("kafka", _KAFKA)):
        found[name] = _part(total(memory.latest(metric)), f"{name} does not answer the monitor")
    found["monitor"] = {"state": "ready", "since": side.started_at, "detail": ""}
    return found


def _part(answers: float | None, words: str) -> dict[str, Any]:
    state = "unknown" if answers is None else "ready" if answers else "down"
    return {"state": state, "since": None, "detail": words if state == "down" else ""}


@dataclass(frozen=True, slots=True)
class _Look:
    memory: History
    side: SnapshotInputs
    names: KafkaNames

    def one(self, metric: str, **labels: str) -> float | None:
        return total(self.memory.latest(metric, **labels))


def flow(
    memory: History,
    side: SnapshotInputs,
    names: KafkaNames,
    *,
    rates: Mapping[str, float | None],
    tables: Sequence[Mapping[str, Any]],
    latency_seconds: float | None = None,
    wanted_seconds: float = math.inf,
) -> list[dict[str, Any]]:
    """Return the six stations in order of the path; `latency_seconds` is the canary's median latency."""
    look = _Look(memory, side, names)
    stations = (
        ("devices", "Devices", _devices_state(side), _devices(side, rates)),
        ("broker", "MQTT broker", _answers(look, "broker", _BROKER), _broker(look)),
        ("gateway", "Gateway", _gateway_state(look), _gateway(look, rates)),
        ("kafka", "Kafka", _answers(look, "kafka", _KAFKA), _kafka(look)),
        ("stream", "Spark stream", _stream_state(look, latency_seconds, wanted_seconds), _stream(look, rates)),
        ("tables", "Delta tables", _tables_state(look, tables), _tables(tables)),
    )
    return [_station(name, label, verdict, figures, side.alerts) for name, label, verdict, figures in stations]


def _station(
    name: str, label: str, verdict: Verdict, figures: list[Figure], alerts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    state, detail = verdict
    for alert in _told(alerts, name):
        held = _held(alert)
        if STATES.index(held) > STATES.index(state):
            state, detail = held, detail or str(alert.get("text") or alert.get("summary") or alert["name"])
        elif not detail and held != "ok":
            detail = str(alert.get("text") or alert["name"])
    return {"id": name, "label": label, "state": state, "detail": detail, "figures": figures}


def _held(alert: Mapping[str, Any]) -> str:
    """Return the state that an alert gives its station: at most a warning if it is pending or follows from another alert."""
    if alert["state"] != "firing" or alert.get("explained_by"):
        return "warn"
    return _HELD.get(alert["severity"], "ok")


def _told(alerts: Iterable[Mapping[str, Any]], station: str) -> Iterable[Mapping[str, Any]]:
    return (
        alert
        for alert in alerts
        if alert.get("part") in PARTS[station]
        and alert["state"] in ("pending", "firing")
        and alert["severity"] in ("critical", "warning")
    )


def _supervised(look: _Look, name: str) -> Verdict | None:
    """Return the problem that the supervisor reports about a part; None without one."""
    part = (look.side.parts or {}).get(name)
    if part is None or part["state"] in ("ready", "done", "unknown"):
        return None
    words = str(part["detail"] or part["state"])
    first = part["state"] in ("starting", "waiting") and part.get("seconds") is None
    return ("warn" if first else "bad"), words


def _answers(look: _Look, name: str, metric: str) -> Verdict:
    """Return the verdict on a part that a probe checks."""
    wrong, reachable = _supervised(look, name), look.one(metric)
    if reachable == 0:
        return ("warn" if wrong and wrong[0] == "warn" else "bad"), wrong[1] if wrong else "does not answer"
    if wrong:
        return wrong
    if reachable is None:
        return (
            ("ok", "")
            if (look.side.parts or {}).get(name, {}).get("state") == "ready"
            else ("unknown", "not checked yet")
        )
    return "ok", ""


def _target(look: _Look, name: str) -> Verdict:
    """Return the verdict on a part that is scraped."""
    job = f"tidegate-{name}"
    if wrong := _supervised(look, name):
        return wrong
    answers = list(look.memory.latest(_UP, job=job).values())
    if silent := answers.count(0):
        many = f"{silent} of {len(answers)} do not answer" if len(answers) > 1 else "does not answer"
        return "bad", f"{many} at {look.side.targets.get(job, 'its address')}"
    return ("ok", "") if answers else ("unknown", "not checked yet")


def _gateway_state(look: _Look) -> Verdict:
    state, detail = _target(look, "gateway")
    if state == "ok" and 0 in look.memory.latest(_CONNECTED).values():
        return "bad", "no MQTT session"
    waiting, working = look.one(_STANDBYS) or 0, look.one(_HOLDERS) or 0
    if state == "ok" and working > waiting:
        return "warn", "no standby waits"
    if state == "ok" and waiting:
        return "ok", "a standby waits" if waiting == 1 else f"{waiting:g} standbys wait"
    return state, detail


def _stream_state(look: _Look, latency_seconds: float | None, wanted_seconds: float) -> Verdict:
    """Return the verdict on the stream; one that runs but does not keep up is a warning."""
    state, detail = _target(look, "stream")
    if state != "ok":
        return state, detail
    behind = 0.0
    if look.one(_KAFKA) != 0:
        behind = max(look.memory.latest(_LAG_SECONDS, consumergroup=look.names.group).values(), default=0.0)
    if behind > BEHIND_SECONDS:
        return "warn", f"the oldest record has waited for {behind:.0f} s"
    if latency_seconds is not None and latency_seconds > wanted_seconds:
        most = LATENCY_BUCKETS[-1]
        took = f"{latency_seconds:.1f} s" if latency_seconds < most else f"more than {most:g} s"
        return "warn", f"median latency is {took}, objective {wanted_seconds:g} s"
    return state, detail


def _devices_state(side: SnapshotInputs) -> Verdict:
    if "known" not in side.devices:
        return "unknown", "no devices in the tables yet"
    silent = _silent(side.devices) or 0
    return "ok", f"{silent:.0f} silent" if silent else ""


def _silent(devices: Mapping[str, Any]) -> float | None:
    """Return the number of silent devices; the list has only those that are silent longest."""
    many: float | None = devices.get("silent_count")
    return len(devices["silent"]) if many is None and "silent" in devices else many


def _tables_state(look: _Look, tables: Sequence[Mapping[str, Any]]) -> Verdict:
    if wrong := look.side.probes.get("tables"):
        return "bad", wrong
    if not tables:
        return "unknown", "no tables yet"
    stream = _target(look, "stream")
    return ("warn", "no rows are written: the stream is down") if stream[0] == "bad" else ("ok", "")


def _figure(name: str, value: float | None, unit: str = "") -> Figure:
    return {"name": name, "value": finite(value, 2), "unit": unit}


def _devices(side: SnapshotInputs, rates: Mapping[str, float | None]) -> list[Figure]:
    known = side.devices
    return [
        _figure("messages", rates["received"], "/s"),
        _figure("active", known.get("active")),
        _figure("silent", _silent(known)),
    ]


def _broker(look: _Look) -> list[Figure]:
    is_away = look.one(_BROKER) == 0
    return [
        _figure("published", None if is_away else total(look.memory.rate(_PUBLISHED, 30.0)), "/s"),
        _figure("clients", None if is_away else look.one(_CLIENTS)),
        _figure("dropped", None if is_away else look.one(_DROPPED)),
    ]


def _gateway(look: _Look, rates: Mapping[str, float | None]) -> list[Figure]:
    return [
        _figure("received", rates["received"], "/s"),
        _figure("dead letters", rates["dead_lettered"], "/s"),
        _figure("unacknowledged", None if is_silent(look.memory, "tidegate-gateway") else look.one(_IN_FLIGHT)),
    ]


def _kafka(look: _Look) -> list[Figure]:
    behind = lag(look.memory, look.names)
    return [
        _figure("records", kafka_rate(look.memory, look.names.readings), "/s"),
        _figure("lag", sum(behind.values()) if behind else None),
    ]


def _stream(look: _Look, rates: Mapping[str, float | None]) -> list[Figure]:
    is_away = is_silent(look.memory, "tidegate-stream")
    found = None if is_away else look.memory.quantiles(_BATCH, LATENCY_SECONDS, (0.5,))
    return [_figure("rows", rates["rows"], "/s"), _figure("batch", found[0] * 1000 if found else None, "ms")]


def _tables(tables: Sequence[Mapping[str, Any]]) -> list[Figure]:
    readings = next((table for table in tables if table["name"] == "readings"), {})
    files = [table["files"] for table in tables if table["files"] is not None]
    return [
        _figure("last commit", readings.get("last_commit_seconds_ago"), "s"),
        _figure("files", sum(files) if files else None),
        _figure("tables", len(tables)),
    ]

"""What a test shows on the ops page: snapshots, an alert, a letter, a device."""

import time
from collections.abc import Callable
from typing import Any

import pytest

HOPS = ("device_to_gateway", "gateway_to_kafka", "kafka_to_read", "read_to_commit", "commit_to_queryable")
READINGS = "telemetry.readings"


def _flow(rate: float) -> list[dict[str, Any]]:
    def box(name: str, label: str, *figures: tuple[str, float | None, str]) -> dict[str, Any]:
        listed = [{"name": what, "value": value, "unit": unit} for what, value, unit in figures]
        return {"id": name, "label": label, "state": "ok", "detail": "", "figures": listed}

    return [
        box("devices", "Devices", ("active", 1204, ""), ("silent", 3, "")),
        box("broker", "MQTT broker", ("messages", rate, "/s"), ("clients", 1207, ""), ("dropped", 0, "")),
        box("gateway", "Gateway", ("received", rate, "/s"), ("refused", 3.6, "/s"), ("in flight", 112, "")),
        box("kafka", "Kafka", ("written", rate + 3.6, "/s"), ("lag", 412, ""), ("partitions", 12, "")),
        box("stream", "Spark stream", ("rows", 2470.4, "/s"), ("batch p95", 840, "ms")),
        box("tables", "Delta tables", ("last commit", 0.8, "s"), ("tables", 9, ""), ("size", 5_212_004_112, "bytes")),
    ]


def normal_snapshot() -> dict[str, Any]:
    """A pipeline that runs well, with figures that are all different."""
    at, rate = time.time(), 823.47
    partitions = [
        {
            "topic": READINGS,
            "partition": n,
            "end": 1_204_331 + n,
            "committed": 1_204_300 - n,
            "lag": 31 + 2 * n,
            "per_second": 68.6 + n,
        }
        for n in range(12)
    ]
    medians = (4.2, 6.8, 410.0, 355.0, 22.0)
    return {
        "at": at,
        "version": "0.1.0",
        "ready": True,
        "read_only": True,
        "redrive": True,
        "prometheus": {"url": "http://127.0.0.1:9090", "up": True},
        "alertmanager": {"url": "http://127.0.0.1:9093", "up": True},
        "parts": {
            name: {"state": "ready", "since": at - 7200, "detail": ""}
            for name in ("broker", "kafka", "gateway", "stream", "canary", "monitor", "prometheus")
        },
        "flow": _flow(rate),
        "kafka": {
            "brokers": 1,
            "partitions": partitions,
            "groups": [
                {
                    "group": "tidegate-stream",
                    "topic": READINGS,
                    "lag": 412,
                    "lag_seconds": 0.6,
                    "per_second": 824.1,
                    "time_to_data_loss_seconds": None,
                },
                {
                    "group": "tidegate-stream",
                    "topic": "telemetry.dead-letters",
                    "lag": 0,
                    "lag_seconds": 0.0,
                    "per_second": 3.6,
                    "time_to_data_loss_seconds": None,
                },
                {
                    "group": "tidegate-stream-hot",
                    "topic": READINGS,
                    "lag": 1_204_917,
                    "lag_seconds": 5230.0,
                    "per_second": 12.5,
                    "time_to_data_loss_seconds": 41_000.0,
                },
            ],
        },
        "rates": {
            "received": rate,
            "accepted": 818.31,
            "readings": 2474.9,
            "dead_lettered": 3.6,
            "ignored": 1.5,
            "acknowledged": 822.9,
            "rows": 2470.4,
        },
        "latency_ms": {"p50": 801.0, "p95": 1204.0, "p99": 1630.0},
        "hops": [
            {"hop": hop, "p50": ms, "p95": ms * 1.7, "p99": ms * 2.2} for hop, ms in zip(HOPS, medians, strict=True)
        ],
        "readings_latency_ms": {"p50": 740.0, "p95": 1120.0, "p99": 1502.0},
        "clock_skew_ms": {},
        "lag": {READINGS: 412, "telemetry.dead-letters": 0},
        "errors": [
            {"reason": "bad_json", "per_second": 2.1, "total": 18_204},
            {"reason": "out_of_range", "per_second": 1.2, "total": 9_011},
            {"reason": "unknown_device", "per_second": 0.3, "total": 311},
        ],
        "slo": {
            "freshness": {
                "objective": 0.99,
                "threshold_seconds": 2.5,
                "good_ratio": 0.99921,
                "budget_left": 0.921,
                "window_seconds": 1200,
            },
            "validity": {
                "objective": 0.98,
                "threshold_seconds": None,
                "good_ratio": 0.9956,
                "budget_left": 0.178,
                "window_seconds": 1200,
            },
        },
        "alerts": [
            {
                "name": "TidegateWatchdog",
                "severity": "info",
                "state": "firing",
                "since": at - 7000,
                "value": 1.0,
                "labels": {},
                "summary": "Alerts are evaluated",
                "impact": "None.",
                "causes": [],
                "actions": [],
                "runbook": "/runbooks/TidegateWatchdog",
                "source": "builtin",
                "part": "monitor",
                "text": "Alerts are evaluated.",
            },
        ],
        "burn_rate_alerts": True,
        "canary": {"published": 3541, "seen": 3540, "last_seen_seconds_ago": 1.4, "oldest_wait_seconds": 0.7},
        "devices": {
            "known": 1311,
            "active": 1204,
            "silent": [
                {"device": f"pump-{n}", "last_seen": at - 900 * n, "silent_seconds": 900.0 * n, "interval_s": 10.0}
                for n in (1, 4, 9)
            ],
            "talkers": [{"device": f"line-{n}/press", "received": 9120 - 411 * n} for n in range(8)],
            "offenders": [
                {"device": f"boiler-{n}", "dead_lettered": 211 - 40 * n, "reason": "out_of_range"} for n in range(4)
            ],
            "skewed": [{"device": "gate-7", "clock_skew_ms": -3_600_000.0}],
        },
        "tables": [
            {
                "name": name,
                "version": 8120 - n,
                "files": 44 + n,
                "small_files": n,
                "bytes": 4_120_331_204 // (n + 1),
                "last_commit_seconds_ago": 0.8 + 3 * n,
            }
            for n, name in enumerate(
                (
                    "readings",
                    "dead_letters",
                    "rollups_1m",
                    "rollups_5m",
                    "rollups_1h",
                    "rolling_15m",
                    "latest",
                    "devices",
                    "ledger",
                )
            )
        ],
        "disk": {"free_bytes": 81_204_331_008, "full_days": 64.2},
        "host": {
            "cpu_ratio": 0.431,
            "iowait_ratio": 0.012,
            "memory_available_bytes": 3_120_331_776,
            "memory_total_bytes": 8_120_331_264,
        },
        "audit": {"at": at - 240, "messages": 4_120_331, "unaccounted": 0, "duplicate_rows": 0, "order_violations": 0},
        "point": {
            "received": rate,
            "readings": 2474.9,
            "rows": 2470.4,
            "dead_lettered": 3.6,
            "lag": 412,
            "latency_p50": 801.0,
            "latency_p95": 1204.0,
            "latency_p99": 1630.0,
        },
    }


def an_alert(**changes: Any) -> dict[str, Any]:
    """Kafka does not answer; `changes` make it another one."""
    return {
        "name": "TidegateKafkaUnreachable",
        "severity": "critical",
        "state": "firing",
        "since": time.time() - 95,
        "value": 0.0,
        "labels": {"job": "tidegate-monitor"},
        "summary": "Kafka does not answer",
        "source": "builtin",
        "part": "kafka",
        "impact": "Nothing is stored. The broker keeps what devices send with QoS 1 until its queue is full.",
        "causes": ["Kafka was stopped or hangs.", "The network between gateway and Kafka is down."],
        "actions": [
            "Look what runs: `tidegate status`.",
            "Start it again: `tidegate up --only kafka`.",
            "Prove that nothing is lost: `tidegate audit`.",
        ],
        "runbook": "/runbooks/TidegateKafkaUnreachable",
        "text": "Kafka has not answered for 95 s.",
        **changes,
    }


def alerting_snapshot() -> dict[str, Any]:
    """Kafka hangs: one alert fires, one is pending, one is over."""
    snapshot = normal_snapshot()
    snapshot["ready"] = False
    snapshot["prometheus"] = {"url": None, "up": None}
    snapshot["alertmanager"] = {"url": None, "up": None}
    snapshot["burn_rate_alerts"] = False
    snapshot["parts"]["kafka"] = {"state": "down", "since": time.time() - 95, "detail": "does not answer"}
    for box, state, detail in (
        (2, "warn", "waits for Kafka; 4,000 messages are unacknowledged"),
        (3, "bad", "Kafka has not answered for 95 s."),
        (4, "warn", "no batch for 96 s"),
    ):
        snapshot["flow"][box] |= {"state": state, "detail": detail}
    snapshot["alerts"] += [
        an_alert(),
        an_alert(
            name="TidegateStreamStalled",
            severity="warning",
            state="pending",
            part="stream",
            text="No batch was committed for 96 s though there is lag.",
        ),
        an_alert(
            name="TidegateDeadLetterRatio",
            severity="warning",
            state="resolved",
            part="gateway",
            text="4 % of messages were refused.",
        ),
    ]
    snapshot["clock_skew_ms"] = {"device_to_gateway": -340.0}
    snapshot["canary"] |= {"last_seen_seconds_ago": 96.0, "oldest_wait_seconds": 97.0}
    snapshot["rates"] |= {"acknowledged": 0.0, "rows": 0.0}
    return snapshot


def empty_snapshot() -> dict[str, Any]:
    """The first look after a start: nothing is known."""
    nothing = dict.fromkeys(("p50", "p95", "p99"))
    snapshot = normal_snapshot()
    for box in snapshot["flow"]:
        box |= {"state": "unknown", "detail": "not checked yet"}
        box["figures"] = [figure | {"value": None} for figure in box["figures"]]
    for objective in snapshot["slo"].values():
        objective |= {"good_ratio": None, "budget_left": None}
    return snapshot | {
        "ready": False,
        "prometheus": {"url": None, "up": None},
        "alertmanager": {"url": None, "up": None},
        "redrive": False,
        "parts": {"broker": {"state": "starting", "since": None, "detail": ""}},
        "kafka": {"brokers": None, "partitions": [], "groups": []},
        "rates": dict.fromkeys(snapshot["rates"]),
        "latency_ms": nothing,
        "readings_latency_ms": nothing,
        "hops": [{"hop": hop, **nothing} for hop in HOPS],
        "lag": {},
        "errors": [],
        "alerts": [],
        "burn_rate_alerts": False,
        "canary": dict.fromkeys(snapshot["canary"]),
        "devices": {"known": None, "active": None, "silent": [], "talkers": [], "offenders": [], "skewed": []},
        "tables": [],
        "disk": {"free_bytes": None, "full_days": None},
        "host": dict.fromkeys(snapshot["host"]),
        "audit": None,
        "point": dict.fromkeys(snapshot["point"]),
    }


def a_letter(number: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"3-{1000 + number}",
        "reason": "out_of_range",
        "stage": "gateway",
        "device": "boiler-0",
        "mqtt_topic": "tidegate/v1/boiler-0/readings",
        "received_at": time.time() - 60 * number,
        "path": "$.values.temperature",
        "got": "number 412.5",
        "wanted": "at most 120",
        "partial": False,
        "redriven_as": None,
        **changes,
    }


def a_field(name: str, count: int, **changes: Any) -> dict[str, Any]:
    """A field that a mapping leaves out."""
    return {
        "gateway": "gw-1",
        "route": "preset owntracks number 2 (owntracks/{user}/{phone}/#)",
        "field": name,
        "count": count,
        "since": time.time() - 7200,
        "next": "Write your own route for the filter `owntracks/{user}/{phone}/#` with a mapping that has "
        '`extends = "owntracks"`; in it, leave `"conn"` out of `skip` of its case 1. To see the extended mapping, run '
        "`tidegate route show owntracks`.",
        **changes,
    }


def a_device(name: str, **changes: Any) -> dict[str, Any]:
    at = time.time()
    return {
        "device": name,
        "first_seen": at - 864_000,
        "last_seen": at - 2,
        "silent_seconds": 2.0,
        "interval_s": 10.0,
        "clock_skew_ms": -120.0,
        "last_rejected_because": "out_of_range",
        "last_rejected_at": at - 60,
        **changes,
    }


@pytest.fixture
def page_stories() -> dict[str, Callable[..., dict[str, Any]]]:
    """Makers of what a test shows: snapshots, an alert, a letter, a device."""
    return {
        "normal": normal_snapshot,
        "alerting": alerting_snapshot,
        "empty": empty_snapshot,
        "alert": an_alert,
        "letter": a_letter,
        "device": a_device,
    }

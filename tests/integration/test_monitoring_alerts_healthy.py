"""A healthy fleet and its restarts raise no alarm, in real promtool and in the monitor's own check alike."""

from math import inf
from typing import Any

from monitoring.alerts.catalog import ALERTS
from monitoring.alerts.rules import rule_file
from monitoring.monitoring_settings import MonitoringSettings
from tests.support.promtool import DAY, STEP, Key, key


def healthy(second: int, life: int, *, started: float) -> dict[Key, float | None]:
    """A demo fleet at 20 messages a second, 1.4 % of them wrong, `life` seconds after the start of all parts."""
    land = {"consumergroup": "tidegate-land", "topic": "telemetry.readings"}
    kafka, broker, gateway, streams, seen = (life >= wait for wait in (15, 3, 20, 60, 75))
    received, rows = 20.0 * max(0, life - 25), 60.0 * max(0, life - 60)
    refused = float(int(0.014 * received))
    found: dict[Key, float | None] = {}

    def tell(job: str, there: bool, **values: float) -> None:
        found[key("up", job)] = float(there)
        found.update({key(metric, job): value if there else None for metric, value in values.items()})
        found[key("process_start_time_seconds", job)] = started if there else None

    tell("gateway", gateway, tidegate_gateway_connected=float(life >= 25), tidegate_gateway_sessions_lost_total=0.0)
    tell(
        "stream",
        streams,
        tidegate_rollup_watermark_timestamp_seconds=max(0.0, second - 130.0) if life >= 90 else 0.0,
        tidegate_rollup_watermark_bound_seconds=180.0,
    )
    tell(
        "canary",
        gateway,
        tidegate_canary_published_total=float(max(0, life - 20) // 5),
        tidegate_canary_acknowledged_total=float(max(0, life - 25) // 5),
        tidegate_canary_seen_total=float(max(0, life - 75) // 5 if seen else 0),
    )
    tell(
        "monitor",
        True,
        tidegate_kafka_reachable=float(kafka),
        tidegate_broker_reachable=float(broker),
        tidegate_devices_silent=0.0,
        tidegate_devices_active=25.0 if streams else 0.0,
        tidegate_devices_heard=25.0 if streams else 0.0,
        tidegate_ledger_late_messages=8.0,
        tidegate_audit_unaccounted_messages=0.0,
        tidegate_audit_timestamp_seconds=max(0.0, second // 600 * 600.0),
        broker_publish_messages_dropped=0.0,
    )
    tell("kafka", kafka, kafka_controller_kafkacontroller_offlinepartitionscount=0.0)
    tell("spark", life >= 45)
    for reason, value in (("invalid_json", refused), ("internal_error", 0.0)):
        found[key("tidegate_gateway_messages_rejected_total", "gateway", reason=reason)] = value if gateway else None
    found[key("tidegate_gateway_messages_received_total", "gateway", qos="1")] = received if gateway else None
    found[key("tidegate_stream_rows_total", "stream", table="readings")] = rows if streams else None
    found[key("tidegate_table_maintained_timestamp_seconds", "stream", table="readings")] = (
        (second - 30.0 if life > 200 else 0.0) if streams else None
    )
    found[key("kafka_consumergroup_lag", "monitor", partition="0", **land)] = (
        (60.0 * max(0, life - 25) if not streams else 12.0) if kafka else None
    )
    found[key("tidegate_kafka_lag_seconds", "monitor", **land)] = (
        (float(max(0, life - 25)) if not streams else 0.3) if kafka else None
    )
    found[key("tidegate_kafka_time_to_data_loss_seconds", "monitor", **land)] = 7.0 * DAY if kafka else None
    found[key("tidegate_ledger_messages", "monitor", outcome="stored")] = 900.0
    found[key("node_filesystem_avail_bytes", "monitor", mountpoint="/")] = 60.0 * 2**30
    found[key("tidegate_table_disk_full_days", "monitor", mountpoint="/")] = inf
    for probe, starts in (("kafka", 30), ("tables", 90), ("host", 0)):
        complete = key("tidegate_monitor_probe_complete_timestamp_seconds", "monitor", probe=probe)
        found[complete] = second - 10.0 if life > starts + 10 else started
    for bound in ("2.5", "+Inf"):
        found[key("tidegate_end_to_end_latency_seconds_bucket", "canary", le=bound)] = (
            float(max(0, life - 85 if bound == "2.5" else life - 75) // 5) if gateway else None
        )
    return found


def run_of_fleet(seconds: int, *starts: int) -> dict[Key, list[float | None]]:
    """The healthy fleet with all parts started at those seconds."""
    found: dict[Key, list[float | None]] = {}
    for step, second in enumerate(range(0, seconds + 1, STEP)):
        start = max(each for each in starts if each <= second)
        for each, value in healthy(second, second - start, started=start + 1.0).items():
            found.setdefault(each, [None] * step).append(value)
    return found


QUIET = {
    "a healthy demo fleet from its first second on": run_of_fleet(2700, 0),
    "two restarts of everything in a row": run_of_fleet(2700, 0, 900, 960),
}


def test_a_healthy_fleet_and_its_restarts_raise_no_alarm(
    promtool_test: Any, as_input_series: Any, built_in: Any
) -> None:
    seconds = range(0, 2701, 60)
    tests = []
    for title, series in QUIET.items():
        assert {at: each for at, each in built_in(ALERTS, series, seconds).items() if each} == {}, title
        expr = 'count by (alertname) (ALERTS{alertname!="TidegateWatchdog", alertstate="firing"})'
        checks = [{"expr": expr, "eval_time": f"{at}s", "exp_samples": []} for at in seconds]
        tests.append(
            {"name": title, "interval": f"{STEP}s", "input_series": as_input_series(series), "promql_expr_test": checks}
        )
    promtool_test((rule_file(MonitoringSettings()), {"evaluation_interval": f"{STEP}s", "tests": tests}))

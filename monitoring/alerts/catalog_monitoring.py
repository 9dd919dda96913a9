"""Alerts on the monitoring: targets, probes, and alerting itself."""

from typing import Final

from monitoring.alerts.model import Alert, Severity
from monitoring.alerts.operands import Age, Changes, select
from monitoring.alerts.signals import OURS, STARTED, Compare, Either, PrometheusQuery, Unless, started_within

__all__ = ["monitoring_alerts"]

BLIND_SECONDS: Final = 300.0
BLIND_PERIODS: Final = 5


def _target_down(severity: Severity, jobs: str, seconds: int) -> Alert:
    return Alert(
        name="TidegateTargetDown",
        part="monitor",
        severity=severity,
        signal=Unless(
            Compare(select("up", job=f"~tidegate-({jobs})"), "==", 0), started_within("tidegate-monitor", 300), on=()
        ),
        for_seconds=seconds,
        summary="A part does not answer",
        text="{job} does not answer on its metrics address.",
        impact="The part is down or is not scraped, so its other alerts cannot fire.",
        causes=(
            "The part is down, is starting, or hangs.",
            "Its metrics port is in use by another program, or not reachable from here.",
            "The part does not run at all, or its JVM has no JMX agent, but the settings say that it is watched.",
        ),
        actions=(
            "`tidegate status`: check the state and the last message of each part.",
            "`tidegate logs gateway -n 100`, or `stream`, `canary`, `kafka`, `spark`, `monitor`: read its last lines.",
            "`curl -s http://HOST:PORT/healthz`: ask the part for its own state.",
            "Start it again. Embedded parts restart automatically.",
            "If it should not run, such as a canary, set its port in `monitoring` to 0, or its `targets` to [].",
        ),
        follows=("TidegateKafkaUnreachable",) if severity == "warning" else (),
    )


def monitoring_alerts(tables_seconds: float) -> tuple[Alert, ...]:
    """Return all alerts on the monitoring; `tables_seconds` is the period of the tables probe."""
    return (*_PARTS, _blind(max(BLIND_SECONDS, BLIND_PERIODS * tables_seconds)), _ALERTMANAGER)


def _blind(tables_seconds: float) -> Alert:
    """Return the alert on a probe that fails, hangs or sees only a part. The running audit has an alert of its own."""
    complete = "tidegate_monitor_probe_complete_timestamp_seconds"
    often, tables = select(complete, probe="~host|broker|kafka|certificates"), select(complete, probe="tables")
    return Alert(
        name="TidegateMonitorBlind",
        part="monitor",
        severity="warning",
        signal=Either(Compare(Age(often), ">", BLIND_SECONDS), Compare(Age(tables), ">", tables_seconds)),
        for_seconds=30,
        unit="seconds",
        summary="The monitor cannot check something that alerts need",
        text="The probe {probe} has not completed a full check for {value}.",
        impact="Alerts on lag, time to data loss, devices, disk or certificates cannot fire.",
        causes=(
            "The monitor's user lacks the right to describe a group, a topic or its settings in Kafka.",
            "Tables cannot be read: rights, a damaged log, an object store that does not answer.",
            "A server is down or hangs.",
        ),
        actions=(
            "`tidegate logs monitor -n 100`: find the error of the probe.",
            "`tidegate doctor --config FILE`: check that Kafka answers, and that ports and disk are free.",
            "`tidegate tables ls`: check whether the tables can be read by hand.",
            "`tidegate repair`: with the stream stopped, find damaged tables.",
        ),
        follows=("TidegateKafkaUnreachable", "TidegateBrokerUnreachable"),
    )


_PARTS: Final = (
    Alert(
        name="TidegateWatchdog",
        part="monitor",
        severity="info",
        signal=PrometheusQuery("vector(1)"),
        summary="Alerts are delivered",
        text="This alert always fires. If it stops arriving, alerting itself does not work.",
        impact="None while it arrives.",
        causes=("It fires on purpose.",),
        actions=(
            "Send it to a dead man's switch that wakes a person when it is missing.",
            "If it is missing: `tidegate status`, then read the logs of Prometheus and Alertmanager.",
        ),
    ),
    _target_down("critical", "gateway|stream|monitor", 120),
    _target_down("warning", "canary|kafka|spark", 120),
    Alert(
        name="TidegatePartRestarts",
        part="monitor",
        severity="warning",
        signal=Compare(Changes(select(STARTED, job=OURS), 900), ">", 2),
        keep_firing_seconds=300,
        summary="A part restarts repeatedly",
        text="{job} was restarted {value} times within 15 minutes.",
        impact="Each restart delays readings. Counters of the part start again at 0, and alerts that wait for it wait longer.",
        causes=(
            "It exits with an error soon after its start.",
            "The machine is short of memory, so the kernel ends it.",
            "A supervisor or container runtime takes it for dead: its health check is too strict, or its port is in use.",
        ),
        actions=(
            "`tidegate status`: find the part and its last message.",
            "`tidegate logs gateway -n 200`, or `stream`, `canary`, `kafka`, `spark`, `monitor`: read what precedes each start.",
            "`tidegate doctor`: check that memory, disk and ports are enough for a run.",
            "`journalctl -k | grep -i oom`: check whether the kernel ended it because memory was short.",
        ),
        follows=("TidegateKafkaUnreachable",),
    ),
)

_ALERTMANAGER: Final = Alert(
    name="AlertmanagerDown",
    part="monitor",
    severity="critical",
    signal=PrometheusQuery('up{job="alertmanager"} == 0'),
    for_seconds=60,
    summary="Alertmanager does not answer",
    text="Alertmanager does not answer: alerts fire, but nobody is notified.",
    impact="Only the ops page and Prometheus show alerts.",
    causes=("It is down, or it rejected its configuration at the start.",),
    actions=(
        "`tidegate status`: check the part `alertmanager`. Check that your own one answers at the address in `prometheus.yml`.",
        "`amtool check-config alertmanager.yml`: check its configuration.",
        "`tidegate logs alertmanager -n 50`: read its last lines.",
    ),
)

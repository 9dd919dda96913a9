"""Alerts on what watches: targets, probes, and alerting itself."""

from typing import Final

from monitoring.alerts.model import Alert, Severity
from monitoring.alerts.operands import Age, Changes, select
from monitoring.alerts.signals import OURS, STARTED, Compare, Either, Query, Unless, young

__all__ = ["monitoring_alerts"]

BLIND_SECONDS: Final = 300.0
BLIND_PERIODS: Final = 5


def _target_down(severity: Severity, jobs: str, seconds: int) -> Alert:
    return Alert(
        name="TidegateTargetDown",
        part="monitor",
        severity=severity,
        signal=Unless(Compare(select("up", job=f"~tidegate-({jobs})"), "==", 0), young("tidegate-monitor", 300), on=()),
        for_seconds=seconds,
        summary="A part does not answer",
        text="{job} does not answer on its metrics address.",
        impact="The part is down, or nobody sees how it is: its alerts are silent.",
        causes=(
            "The part is down, starts, or hangs.",
            "Its metrics port is taken or not reachable from here.",
            "The part is not run at all, or its JVM has no JMX agent, and the settings say that it is watched.",
        ),
        actions=(
            "`tidegate status`: state and last words of each part.",
            "`tidegate logs gateway -n 100`, or `stream`, `canary`, `kafka`, `spark`, `monitor`: its last words.",
            "`curl -s http://HOST:PORT/healthz`: what it says of itself.",
            "Start it again; the embedded parts are restarted by themselves.",
            "If it is not meant to run, such as a canary: set its port in `monitoring` to 0, or its `targets` to [].",
        ),
        follows=("TidegateKafkaUnreachable",) if severity == "warning" else (),
    )


def monitoring_alerts(tables_seconds: float) -> tuple[Alert, ...]:
    """All of them; `tables_seconds` is how often the tables are asked."""
    return (*_PARTS, _blind(max(BLIND_SECONDS, BLIND_PERIODS * tables_seconds)), _ALERTMANAGER)


def _blind(tables_seconds: float) -> Alert:
    """A probe that fails, hangs or sees a part only. The running audit has an alert of its own."""
    complete = "tidegate_monitor_probe_complete_timestamp_seconds"
    often, tables = select(complete, probe="~host|broker|kafka|certificates"), select(complete, probe="tables")
    return Alert(
        name="TidegateMonitorBlind",
        part="monitor",
        severity="warning",
        signal=Either(Compare(Age(often), ">", BLIND_SECONDS), Compare(Age(tables), ">", tables_seconds)),
        for_seconds=30,
        unit="seconds",
        summary="The monitor cannot see something that alerts rest on",
        text="The probe {probe} has not seen all that it looks at for {value}.",
        impact="Alerts on lag, time to data loss, devices, disk or certificates are silent without being well.",
        causes=(
            "The monitor's user may not see a group, a topic or its settings in Kafka.",
            "Tables cannot be read: rights, a damaged log, an object store away.",
            "A server is down or hangs.",
        ),
        actions=(
            "`tidegate logs monitor -n 100`: the probe's fault, in a sentence.",
            "`tidegate doctor --config FILE`: does Kafka answer, are ports and disk free?",
            "`tidegate tables ls`: can the tables be read by hand?",
            "`tidegate repair`: with the stream stopped, finds damaged tables.",
        ),
        follows=("TidegateKafkaUnreachable", "TidegateBrokerUnreachable"),
    )


_PARTS: Final = (
    Alert(
        name="TidegateWatchdog",
        part="monitor",
        severity="info",
        signal=Query("vector(1)"),
        summary="Alerts are delivered",
        text="This alert always fires. When it stops arriving, alerting itself is broken.",
        impact="None while it arrives.",
        causes=("It fires on purpose.",),
        actions=(
            "Send it to a dead man's switch that wakes somebody when it is missing.",
            "If it is missing: `tidegate status`, then Prometheus' and Alertmanager's logs.",
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
        summary="A part restarts again and again",
        text="{job} was started anew {value} times within 15 minutes.",
        impact="Each restart delays readings; what the part counts begins anew, and alerts that wait for it wait longer.",
        causes=(
            "It ends by a fault soon after its start.",
            "The machine is short of memory and ends it.",
            "A supervisor or container runtime takes it for dead: its health check is too strict or its port is taken.",
        ),
        actions=(
            "`tidegate status`: which part, and its last words.",
            "`tidegate logs gateway -n 200`, or `stream`, `canary`, `kafka`, `spark`, `monitor`: what stands before each start?",
            "`tidegate doctor`: memory, disk and ports against what a run needs.",
            "`journalctl -k | grep -i oom`: was it ended for want of memory?",
        ),
        follows=("TidegateKafkaUnreachable",),
    ),
)

_ALERTMANAGER: Final = Alert(
    name="AlertmanagerDown",
    part="monitor",
    severity="critical",
    signal=Query('up{job="alertmanager"} == 0'),
    for_seconds=60,
    summary="Alertmanager does not answer",
    text="Alertmanager does not answer: alerts fire, and nobody is told.",
    impact="Only the ops page and Prometheus show alerts.",
    causes=("It is down, or its configuration was refused at the start.",),
    actions=(
        "`tidegate status`: is the part `alertmanager` ready? Does one of your own answer where `prometheus.yml` says?",
        "`amtool check-config alertmanager.yml`: is its configuration right?",
        "`tidegate logs alertmanager -n 50`: its last words.",
    ),
)
